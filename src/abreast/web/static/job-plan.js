// A plan: the tree of subplans with their states and sizes, and the files that several of them changed.
import { el } from "./dom.js";
import { brief, count, many, span } from "./format.js";
import { fetched, review } from "./review.js";
import { cut, facts, patch, stage } from "./stage.js";

export function draw(container, data, page) {
  stage(container, data, page, picture);
}

function picture(data, chosen, again, page) {
  const children = new Map();
  const known = new Set(data.nodes.map((node) => node.id));
  for (const node of data.nodes) {
    const parent = known.has(node.parent) ? node.parent : null;
    children.set(parent, [...(children.get(parent) ?? []), node]);
  }
  const leaves = data.nodes.filter((node) => node.leaf);
  const most = Math.max(1, ...leaves.map((node) => node.tokens ?? 0));
  const shown = data.nodes.find((node) => node.id === chosen.id) ?? leaves.find((node) => ["failed", "blocked"].includes(node.state));
  const choose = async (id) => {
    chosen.id = id;
    again();
    if (page.alone || chosen.diffs?.[id] || !data.nodes.find((node) => node.id === id)?.changed) return;
    const diff = await fetched(data.run, { part: id });
    chosen.diffs = { ...chosen.diffs, [id]: diff };
    again();
  };
  return [
    el("p", { class: "verdict", role: "status" }, ["done", "running", "queued", "pending", "failed", "blocked", "cancelled", "not run"].filter((state) => data.counts[state])
      .map((state) => el("span", { class: "badge", dataset: { state } }, `${count(data.counts[state])} ${state}`))),
    facts([["Directory", el("code", {}, data.directory)], ["Order", data.order], ["Work", data.what ? el("code", {}, data.what) : ""]]),
    el("div", { class: "two" },
      el("div", { class: "plantree", dataset: { scroll: "tree" } }, data.nodes.length ? branch(children, null, { shown, most, choose }) : el("p", { class: "muted" }, "It is not divided yet.")),
      shown ? detail(shown, page, data, chosen, again) : null),
    clashes(data),
    page.alone || !data.counts.done ? null : review(data, chosen, again, page),
    cut(data.cut),
  ];
}

function branch(children, parent, how) {
  return el("ul", {}, (children.get(parent) ?? []).map((node) => {
    if (!children.has(node.id)) return el("li", {}, leaf(node, how));
    const inner = beneath(children, node.id);
    const bad = inner.filter((one) => one.state === "failed").length;
    return el("li", {}, el("details", { open: true, dataset: { key: `node-${node.id}` } },
      el("summary", {}, el("b", {}, node.scope), " ", el("small", {}, [many(inner.length, "subplan"), `${inner.filter((one) => one.state === "done").length} done`, bad ? `${bad} failed` : "", node.files ? many(node.files, "file") : "", REASONS[node.reason]].filter(Boolean).join(" · ")),
        el("span", { class: "meter", "aria-hidden": "true" }, ["done", "running", "failed", "blocked", "cancelled", "rest"].map((state) => part(inner, state)))),
      branch(children, node.id, how)));
  }));
}

/** The part of a bar that subplans in a state take up; all that have not begun are one. */
function part(inner, state) {
  const waits = ["pending", "queued", "not run"];
  const number = inner.filter((one) => (state === "rest" ? waits.includes(one.state) : one.state === state)).length;
  return number ? el("i", { dataset: { state }, style: { "flex-grow": String(number) } }) : null;
}

const REASONS = { directories: "by directories", imports: "by imports", communities: "by communities of imports", names: "by names" };

function beneath(children, id) {
  return (children.get(id) ?? []).flatMap((node) => (children.has(node.id) ? beneath(children, node.id) : [node]));
}

function leaf(node, { shown, most, choose }) {
  return el("button", { type: "button", class: "leaf", "aria-pressed": String(node === shown), dataset: { key: `node-${node.id}`, state: node.state }, onclick: () => choose(node.id) },
    el("span", { class: "badge", dataset: { state: node.state } }, node.state),
    el("span", { class: "scope" }, node.scope, node.clashes ? el("span", { class: "crown clash" }, `${many(node.clashes, "file")} changed by others too`) : null, node.over_budget ? el("span", { class: "crown clash" }, "over budget") : null),
    el("span", { class: "size" }, el("small", {}, [node.files === null ? "" : many(node.files, "file"), node.tokens ? `${brief(node.tokens)} tokens` : "", node.seconds ? span(node.seconds) : ""].filter(Boolean).join(" · ")),
      el("i", { class: "weight", "aria-hidden": "true", style: { width: `${(100 * (node.tokens ?? 0)) / most}%` } })));
}

function detail(node, page, data, chosen, again) {
  const diff = chosen.diffs?.[node.id];
  const look = async () => {
    chosen.diffs = { ...chosen.diffs, [node.id]: await fetched(data.run, { part: node.id }) };
    again();
  };
  return el("article", { class: "chosen", "aria-live": "polite" },
    el("h3", {}, node.scope, " ", node.state ? el("span", { class: "badge", dataset: { state: node.state } }, node.state) : null),
    facts([["Subplan", el("code", {}, node.id)], ["Files", count(node.files)], ["Tokens", brief(node.tokens)], ["Took", node.seconds ? span(node.seconds) : ""], ["Attempts", node.attempts > 1 ? node.attempts : ""], ["Round", node.round > 1 ? node.round : ""]]),
    node.requests?.length ? [el("h4", {}, "It was asked for changes by"), el("ul", { class: "files" }, node.requests.map((one) => el("li", {}, el("code", {}, one))))] : null,
    node.said ? el("p", { class: "wrong" }, node.said) : null,
    node.changed ? [el("h4", {}, `It changed ${many(node.changed, "file")}`), el("ul", { class: "files" }, node.changes.map((path) => el("li", {}, el("code", {}, path))), node.changed > node.changes.length ? el("li", { class: "muted" }, `and ${count(node.changed - node.changes.length)} more`) : null)] : node.state === "done" ? el("p", { class: "muted" }, "It changed nothing.") : null,
    node.path ? el("button", { type: "button", dataset: { key: "open" }, onclick: () => page.open(node.path) }, "Open the subplan") : null,
    node.changed && !page.alone ? el("button", { type: "button", dataset: { key: "diff" }, onclick: look }, diff ? "Read the diff again" : "Show the diff") : null,
    diff ? (diff.error ? el("p", { class: "wrong" }, diff.error) : patch(diff.diff, `diff-${node.id}`)) : null);
}

function clashes(data) {
  if (!data.clashes.length && !data.outside.length) return null;
  return el("article", { class: "gate" },
    el("h3", {}, "To be merged with care"),
    data.clashes.length ? [el("p", { class: "muted" }, "Files that several subplans changed: they merge if their changes don't touch."),
      el("ul", { class: "files" }, data.clashes.map((one) => el("li", {}, el("code", {}, one.file), el("small", {}, one.leaves.join(", ")))))] : null,
    data.more_clashes ? el("p", { class: "muted" }, `and ${count(data.more_clashes)} more`) : null,
    data.outside.length ? [el("p", { class: "muted" }, "Changes of files that another subplan owns: refused, unless the owners are asked."),
      el("ul", { class: "files" }, data.outside.map((one) => el("li", {}, el("code", {}, one.file), el("small", {}, `changed by ${one.leaves.join(", ")}`))))] : null,
    data.more_outside ? el("p", { class: "muted" }, `and ${count(data.more_outside)} more`) : null);
}
