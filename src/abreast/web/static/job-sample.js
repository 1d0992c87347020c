// A sample: a tree of branches and rounds. What was drawn, what the checks said of it, and which draw was chosen.
import { el, svg } from "./dom.js";
import { span } from "./format.js";
import { cut, facts, press, stage } from "./stage.js";

const STEP = 84, ROW = 46, LEFT = 108, TOP = 34, RADIUS = 13;
const SIGNS = { passed: "✓", failed: "✕", error: "!", cancelled: "–", drawing: "…", "cut off": "×" };

export function draw(container, data, page) {
  stage(container, data, page, picture);
}

function picture(data, chosen, again, page) {
  const draws = data.branches.flatMap((branch) => branch.draws.map((one) => ({ ...one, branch })));
  const winner = data.chosen && draws.find((one) => one.branch.branch === data.chosen.branch && one.round === data.chosen.round);
  const shown = draws.find((one) => one.number === chosen.number) ?? winner ?? draws.at(-1);
  return [
    data.prompt ? el("blockquote", { class: "asked" }, data.prompt) : null,
    facts([["Branches", data.breadth], ["Rounds", data.depth], ["Model", data.model], ["Strategy", data.strategy], ["Pick", data.pick],
      ["Draws", Object.entries(data.counts).map(([state, number]) => `${number} ${state}`).join(", ")]]),
    el("p", { class: "verdict", role: "status" }, said(data, winner)),
    el("div", { class: "two" },
      el("div", { class: "drawing", dataset: { scroll: "tree" } }, tree(data, shown, winner, (number) => {
        chosen.number = number;
        again();
      })),
      shown ? detail(shown, shown === winner, page) : null),
    cut(data.cut),
  ];
}

function said(data, winner) {
  if (!data.over) return "Drawing: nothing is chosen yet.";
  if (!winner) return data.ok === false ? "No draw was chosen." : "The sample is over.";
  const where = `branch ${winner.branch.branch}, round ${winner.round}`;
  return data.ok ? `Chosen: ${where}.` : `No draw passed. The best of them: ${where}.`;
}

function tree(data, shown, winner, choose) {
  const deepest = Math.max(0, ...data.branches.flatMap((branch) => branch.draws.map((one) => one.round)));
  const columns = [...new Set(data.branches.flatMap((branch) => branch.draws.map((one) => one.round)))].sort((a, b) => a - b);
  const x = (round) => LEFT + columns.indexOf(round) * STEP;
  const y = (row) => TOP + ROW / 2 + row * ROW;
  const height = TOP + Math.max(1, data.branches.length) * ROW + 8;
  const width = LEFT + Math.max(1, columns.length) * STEP - STEP / 2 + 12;
  const middle = (TOP + height - 8) / 2;
  const lines = [];
  const nodes = [];
  data.branches.forEach((branch, row) => {
    const wins = winner?.branch.branch === branch.branch;
    lines.push(svg("path", { class: wins ? "twig won" : "twig", d: `M22 ${middle} C 40 ${middle}, 34 ${y(row)}, 52 ${y(row)}` }));
    nodes.push(svg("text", { x: 54, y: y(row) + 4, class: "label" }, `${branch.branch}`));
    let from = 54 + 8 * String(branch.branch).length + 4;
    for (const one of branch.draws) {
      const on = wins && one.round <= winner.round;
      lines.push(svg("line", { class: on ? "twig won" : "twig", x1: from, x2: x(one.round) - RADIUS, y1: y(row), y2: y(row) }));
      from = x(one.round) + RADIUS;
      const best = wins && one.round === winner.round;
      const label = `branch ${branch.branch}, round ${one.round}: ${one.state}${best ? ", chosen" : ""}`;
      nodes.push(svg("g", { ...press(`draw-${one.number}`, label, one.number === shown?.number, () => choose(one.number)), "data-state": one.state, "data-best": best ? "yes" : null },
        svg("title", {}, `${label}${one.why ? `\n${one.why}` : ""}`),
        best ? svg("circle", { class: "halo", cx: x(one.round), cy: y(row), r: RADIUS + 5 }) : null,
        svg("circle", { class: "dot", cx: x(one.round), cy: y(row), r: RADIUS }),
        svg("text", { class: "sign", x: x(one.round), y: y(row) + 4.5, "text-anchor": "middle" }, SIGNS[one.state] ?? "?")));
    }
  });
  return svg("svg", { class: "sampletree", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Branches and rounds, to round ${deepest}` },
    svg("text", { x: 54, y: 18, class: "label", "text-anchor": "middle" }, "branch"),
    columns.map((round) => svg("text", { x: x(round), y: 18, class: "label", "text-anchor": "middle" }, `round ${round}`)),
    lines, svg("circle", { class: "root", cx: 16, cy: middle, r: 6 }), nodes);
}

function detail(one, best, page) {
  const failing = (one.verdicts ?? []).length ? null : one.why;
  return el("article", { class: "chosen", "aria-live": "polite" },
    el("h3", {}, `Branch ${one.branch.branch}, round ${one.round}`, " ", el("span", { class: "badge", dataset: { state: one.state } }, best ? `${one.state}, chosen` : one.state)),
    facts([["Number", one.number], ["Model", one.model], ["Took", one.seconds ? span(one.seconds) : ""], ["Output tokens", one.tokens || ""]]),
    one.text ? el("blockquote", {}, one.text) : el("p", { class: "muted" }, one.state === "drawing" ? "Waiting for the reply." : "There is no text."),
    one.error ? el("p", { class: "wrong" }, one.error) : null,
    failing ? el("p", { class: "wrong" }, failing) : null,
    one.verdicts?.length ? el("ul", { class: "verdicts" }, one.verdicts.map((verdict) => el("li", { dataset: { ok: verdict.ok } },
      el("b", { "aria-label": verdict.ok ? "passed" : "failed" }, verdict.ok ? "✓" : "✕"),
      el("span", {}, verdict.check, verdict.score === null ? null : ` (${verdict.score.toFixed(2)})`, verdict.reason ? el("small", {}, verdict.reason) : null)))) : null,
    one.more_verdicts ? el("p", { class: "muted" }, `and ${one.more_verdicts} more checks`) : null,
    one.state === "cancelled" && one.branch.why ? el("p", { class: "muted" }, `Cancelled: ${one.branch.why}.`) : null,
    el("button", { type: "button", dataset: { key: "open" }, onclick: () => page.open(one.branch.path) }, `Open branch ${one.branch.branch}`));
}
