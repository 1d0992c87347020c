// Candidates: a verdict for each, how much faster it is and how surely, its patch, and the call that shows it wrong.
import { el, svg } from "./dom.js";
import { count } from "./format.js";
import { cut, facts, stage } from "./stage.js";

const WIDTH = 220, HEIGHT = 26, EDGE = 8;
const TONES = { faster: "passed", same: "done", slower: "retried", undecided: "pending", wrong: "failed", refused: "failed", timeout: "failed", error: "error", duplicate: "cancelled" };

export function draw(container, data, page) {
  stage(container, data, page, picture);
}

function picture(data, chosen, again, page) {
  const timed = data.candidates.filter((one) => one.ratio);
  const scale = scaled(timed);
  const shown = data.candidates.find((one) => one.name === chosen.name) ?? data.candidates.find((one) => one.name === data.winner);
  const choose = (name) => {
    chosen.name = name;
    again();
  };
  const base = data.baseline;
  return [
    el("p", { class: "verdict", role: "status" }, headline(data)),
    facts([["Target", el("code", {}, data.target)], ["Original", base ? `${base.passed} of ${base.tests} tests pass, ${count(base.calls)} calls` : ""],
      ["Noise floor", data.noise_floor === null ? "" : `${(100 * data.noise_floor).toFixed(1)}%`], ["Threshold", data.threshold === null ? "" : `${(100 * data.threshold).toFixed(0)}%`]]),
    data.candidates.length ? el("div", { class: "table", dataset: { scroll: "candidates" } }, el("table", { class: "candidates" },
      el("thead", {}, el("tr", {}, ["Candidate", "Verdict"].map((one) => el("th", { scope: "col" }, one)), el("th", { scope: "col", class: "number" }, "Speed"),
        timed.length ? el("th", { scope: "col" }, axis(scale)) : null,
        el("th", { scope: "col", class: "number" }, "Memory"), el("th", { scope: "col", class: "number" }, "Lines"), el("th", { scope: "col" }, "Why"))),
      el("tbody", {}, data.candidates.map((one) => row(one, data, shown, scale, timed.length > 0, choose))))) : el("p", { class: "muted" }, data.known ? "There are no candidates yet." : "This run keeps too little of its target to be shown here."),
    data.trouble.length ? el("ul", { class: "wrong" }, data.trouble.map((one) => el("li", {}, one))) : null,
    shown ? detail(shown, data, page) : null,
    data.confinement.length ? el("details", { dataset: { key: "confinement" } }, el("summary", {}, `Candidates run confined by ${data.confinement.length} layers`), el("p", { class: "muted" }, data.confinement.join(", "))) : null,
    cut(data.cut),
  ];
}

const times = (value) => `${value >= 100 ? value.toFixed(0) : value.toFixed(2)}×`;

function headline(data) {
  const winner = data.candidates.find((one) => one.name === data.winner);
  if (winner) return `${winner.name} behaves like the original and is ${times(winner.ratio)} as fast, from ${times(winner.low)} to ${times(winner.high)}.`;
  if (data.state === "running") return "No candidate is known to be faster yet.";
  return `None of ${count(data.candidates.length)} candidates is known to be faster and to behave like the original.`;
}

function row(one, data, shown, scale, drawn, choose) {
  const best = one.name === data.winner;
  return el("tr", { class: one === shown ? "picked" : "", dataset: { best: best ? "yes" : "no" } },
    el("th", { scope: "row" }, el("button", { type: "button", class: "open", "aria-pressed": String(one === shown), dataset: { key: `candidate-${one.name}` }, onclick: () => choose(one.name) }, one.name),
      best ? el("span", { class: "crown" }, "winner") : null, one.parent ? el("small", {}, `${one.origin} of ${one.parent}`) : null),
    el("td", {}, el("span", { class: "badge", dataset: { state: one.under_way ? "running" : TONES[one.verdict] ?? "pending" } }, one.verdict)),
    el("td", { class: "number" }, one.ratio ? times(one.ratio) : "–"),
    drawn ? el("td", {}, one.ratio ? interval(one, scale) : null) : null,
    el("td", { class: "number" }, one.memory ? times(one.memory) : "–"),
    el("td", { class: "number" }, one.size || "–"),
    el("td", { class: "message clamp" }, one.reason));
}

/** A scale by powers on which all intervals and 1 have a place. */
function scaled(timed) {
  const ends = timed.flatMap((one) => [one.low ?? one.ratio, one.high ?? one.ratio]).filter((one) => one > 0);
  const low = Math.log(Math.min(0.8, ...ends)), high = Math.log(Math.max(1.25, ...ends));
  return { low: Math.exp(low), high: Math.exp(high), x: (value) => EDGE + ((Math.log(Math.max(value, 1e-9)) - low) / (high - low)) * (WIDTH - 2 * EDGE) };
}

function axis(scale) {
  const marks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000].filter((one) => one >= scale.low && one <= scale.high);
  const apart = marks.filter((one, at) => one === 1 || (Math.abs(scale.x(one) - scale.x(1)) > 26 && (at === 0 || marks.slice(0, at).every((other) => Math.abs(scale.x(other) - scale.x(one)) > 26))));
  return svg("svg", { class: "axis", width: WIDTH, height: 16, viewBox: `0 0 ${WIDTH} 16`, role: "img", "aria-label": "Times as fast as the original" },
    apart.map((one) => svg("text", { class: "label", x: scale.x(one), y: 12, "text-anchor": "middle" }, `${one}×`)));
}

function interval(one, scale) {
  const middle = HEIGHT / 2;
  const [left, right] = [scale.x(one.low ?? one.ratio), scale.x(one.high ?? one.ratio)];
  return svg("svg", { class: "interval", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${times(one.ratio)}, from ${times(one.low)} to ${times(one.high)}`, "data-verdict": one.verdict },
    one.noise ? svg("rect", { class: "noise", x: Math.max(0, scale.x(1 / (1 + one.noise))), y: 2, width: Math.min(WIDTH, scale.x(1 + one.noise)) - Math.max(0, scale.x(1 / (1 + one.noise))), height: HEIGHT - 4 }) : null,
    svg("line", { class: "grid", x1: scale.x(1), x2: scale.x(1), y1: 0, y2: HEIGHT }),
    svg("line", { class: "whisker", x1: left, x2: right, y1: middle, y2: middle }),
    [left, right].map((x) => svg("line", { class: "whisker", x1: x, x2: x, y1: middle - 4, y2: middle + 4 })),
    svg("circle", { class: "estimate", cx: scale.x(one.ratio), cy: middle, r: 4.5 }));
}

function detail(one, data, page) {
  return el("article", { class: "chosen", "aria-live": "polite" },
    el("h3", {}, one.name, " ", el("span", { class: "badge", dataset: { state: one.under_way ? "running" : TONES[one.verdict] ?? "pending" } }, one.verdict)),
    el("p", {}, one.reason),
    one.diffs.length ? el("div", { class: "table", dataset: { scroll: "diffs" } }, el("table", {},
      el("caption", {}, "Where it behaves otherwise"),
      el("thead", {}, el("tr", {}, ["Call", "Where", "Original", "Candidate"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, one.diffs.map((diff) => el("tr", {}, el("td", {}, el("code", {}, diff.call)), el("td", {}, el("code", {}, diff.where), el("small", {}, diff.reason)), el("td", {}, el("code", {}, diff.original)), el("td", {}, el("code", {}, diff.candidate))))))) : null,
    one.more_diffs ? el("p", { class: "muted" }, `and ${count(one.more_diffs)} more differences`) : null,
    one.notes.length ? el("ul", { class: "muted" }, one.notes.map((note) => el("li", {}, note))) : null,
    one.patch ? el("pre", { class: "patch", tabindex: 0, "aria-label": `Patch of ${one.name}`, dataset: { scroll: "patch" } }, one.patch.split("\n").map((line) => el("span", { class: kind(line) }, `${line}\n`))) : null,
    one.patch_cut ? el("p", { class: "muted" }, `and ${count(one.patch_cut)} more characters`) : null,
    one.path ? el("button", { type: "button", dataset: { key: "open" }, onclick: () => page.open(one.path) }, `Open ${one.name}`) : null);
}

function kind(line) {
  if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("@@")) return "hunk";
  return { "+": "added", "-": "removed" }[line[0]] ?? "";
}
