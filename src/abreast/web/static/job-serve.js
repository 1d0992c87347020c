// A server: its calls by client, by model and by tag, and what they cost.
import { el } from "./dom.js";
import { count, money } from "./format.js";
import { cut, stage } from "./stage.js";

const NUMBERS = ["Calls", "Input tokens", "Output tokens", "Cost"];

export function draw(container, data, page) {
  stage(container, data, page, picture);
}

function picture(data) {
  if (!data.parts.length) return [el("p", { class: "muted" }, "No call has ended yet.")];
  return data.parts.flatMap(({ part, rows, cut: left }) => [
    el("div", { class: "table", tabindex: 0, role: "group", "aria-label": `Calls by ${part}`, dataset: { scroll: part } }, el("table", { class: "served", "aria-label": `Calls by ${part}` },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, part.charAt(0).toUpperCase() + part.slice(1)), NUMBERS.map((name) => el("th", { scope: "col", class: "number" }, name)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, row.name),
        [count(row.calls), count(row.input), count(row.output), row.usd === null ? "unknown" : money(row.usd)].map((text) => el("td", { class: "number" }, text))))))),
    cut(left),
  ]);
}
