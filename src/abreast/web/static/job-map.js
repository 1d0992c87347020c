// A plain map: what its items came to, equal outcomes together.
import { el } from "./dom.js";
import { count } from "./format.js";
import { cut, stage } from "./stage.js";

export function draw(container, data, page) {
  stage(container, data, page, picture);
}

function picture(data, _chosen, _again, page) {
  if (!data.groups.length) return [el("p", { class: "muted" }, "No item has ended yet.")];
  return [
    el("div", { class: "table", dataset: { scroll: "groups" } }, el("table", { class: "groups" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Outcome"), el("th", { scope: "col", class: "number" }, "Items"), el("th", { scope: "col" }, "Says"), el("th", { scope: "col" }, "Such as"))),
      el("tbody", {}, data.groups.map((group) => el("tr", {},
        el("td", {}, el("span", { class: "badge", dataset: { state: group.state } }, group.state)),
        el("td", { class: "number" }, count(group.count), el("div", { class: "meter", "aria-hidden": "true" },
          el("i", { dataset: { state: group.state }, style: { "flex-grow": String(group.count) } }), el("i", { style: { "flex-grow": String(Math.max(0, data.total - group.count)) } }))),
        el("td", { class: "message" }, group.text || el("span", { class: "muted" }, "nothing")),
        el("td", { class: "examples" }, group.examples.map((path, at) => el("button", {
          type: "button", class: "open", dataset: { key: path }, "aria-label": `Open item ${name(path)}`, onclick: () => page.open(path),
          tabindex: at ? -1 : 0, // one stop for each line is enough on the way by Tab
        }, name(path))))))))),
    cut(data.cut),
  ];
}

function name(path) {
  return path.split("/").at(-1).replaceAll("%2F", "/").replaceAll("%25", "%");
}
