// A study: models by strategies as a heatmap of one score, and what each arm costs or takes for it.
import { el, svg } from "./dom.js";
import { brief, count, money, span } from "./format.js";
import { choices, cut, facts, fit, press, stage } from "./stage.js";

const PRICES = { usd: ["Cost", "dollars per cell", money], tokens: ["Tokens", "tokens per cell", brief], seconds: ["Latency", "median seconds", span] };
const WIDTH = 460, HEIGHT = 280, LEFT = 46, RIGHT = 34, TOP = 14, BOTTOM = 40;

export function draw(container, data, page) {
  stage(container, data, page, picture);
}

function picture(data, chosen, again, page) {
  const choose = (what) => {
    Object.assign(chosen, what);
    again();
  };
  if (!data.arms.length) return [el("p", { class: "muted" }, "No cell has ended yet.")];
  const score = data.scores.includes(chosen.score) ? chosen.score : data.scores[0];
  const known = Object.keys(PRICES).filter((price) => data.arms.some((arm) => arm[price]));
  const price = known.includes(chosen.price) ? chosen.price : known[0];
  const shown = data.arms.find((arm) => name(arm) === chosen.arm);
  return [
    facts([["Arms", count(data.arms.length)], ["Inputs", count(data.inputs)], ["Repeats", data.repeats > 1 ? data.repeats : ""],
      ["Cells", count(data.arms.reduce((sum, arm) => sum + arm.n, 0))], ["Failed", count(data.arms.reduce((sum, arm) => sum + arm.failed, 0) || null)]]),
    data.scores.length > 1 ? choices("Score", data.scores.map((one) => [one, one]), score, (value) => choose({ score: value })) : null,
    score === undefined ? el("p", { class: "muted" }, "No score is given yet.") : null,
    el("div", { class: "two even" },
      el("figure", {}, el("figcaption", {}, score === undefined ? "Cells" : `Mean ${score}; what failed counts as 0`), heatmap(data, score, shown, choose)),
      price && score !== undefined ? el("figure", {},
        el("figcaption", {}, `Mean ${score} against ${PRICES[price][1]}; the line is the best for its price`),
        known.length > 1 ? choices("Against", known.map((one) => [one, PRICES[one][0]]), price, (value) => choose({ price: value })) : null,
        el("div", { class: "drawing", dataset: { scroll: "pareto" } }, pareto(data, score, price, shown, choose)),
        data.models.length > 1 ? legend(data) : null) : null),
    beside(data, chosen, again, page),
    shown ? detail(shown, data, page) : el("p", { class: "muted" }, "Choose an arm to see its cells."),
    data.controls.length ? controls(data) : null,
    data.left_out ? el("p", { class: "muted" }, `${data.left_out}.`) : null,
    cut(data.cut),
  ];
}

const name = (arm) => `${arm.model} · ${arm.strategy}`;
const figure = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));

function heatmap(data, score, shown, choose) {
  const arms = new Map(data.arms.map((arm) => [name(arm), arm]));
  const means = data.arms.map((arm) => arm.means[score]).filter((one) => typeof one === "number");
  const within = means.every((one) => one >= 0 && one <= 1);
  const [low, high] = within ? [0, 1] : [Math.min(...means), Math.max(...means)];
  return el("div", { class: "table", dataset: { scroll: "heatmap" } }, el("table", { class: "heatmap" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "unseen" }, "Model")), data.strategies.map((one) => el("th", { scope: "col" }, one)))),
    el("tbody", {}, data.models.map((model) => el("tr", {}, el("th", { scope: "row" }, model.split("/").flatMap((part, at) => (at ? ["/", el("wbr"), part] : [part]))), data.strategies.map((strategy) => {
      const arm = arms.get(`${model} · ${strategy}`);
      if (!arm) return el("td", { class: "muted" }, "–");
      const mean = arm.means[score];
      const heat = typeof mean === "number" ? Math.round(8 + 47 * ((mean - low) / (high - low || 1))) : 0;
      const failed = arm.failed ? `, ${count(arm.failed)} failed` : "";
      return el("td", {}, el("button", {
        type: "button", class: "heat", style: { "--heat": `${heat}%` }, "aria-pressed": String(arm === shown), dataset: { key: `arm-${name(arm)}` },
        "aria-label": `${name(arm)}: ${figure(mean)}, ${count(arm.n)} cells${failed}`, onclick: () => choose({ arm: name(arm) }),
      }, el("b", {}, figure(mean)), el("small", {}, `${score === undefined ? "" : `${count(arm.passes[score])} of `}${count(arm.n)}${score === undefined ? " cells" : " pass"}${failed}`)));
    }))))));
}

function pareto(data, score, price, shown, choose) {
  const offers = data.arms.map((arm, at) => ({ arm, at, x: arm[price], y: arm.means[score] })).filter((one) => one.x !== null && one.y !== null);
  if (!offers.length) return el("p", { class: "muted" }, "Nothing is known of that yet.");
  const [step, most] = even(Math.max(...offers.map((one) => one.x)) * 1.04 || 1);
  const ys = offers.map((one) => one.y);
  const within = ys.every((one) => one >= 0 && one <= 1);
  const [low, high] = within ? [0, 1] : [Math.min(...ys), Math.max(...ys)];
  const x = (value) => LEFT + (value / most) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low || 1)) * (HEIGHT - TOP - BOTTOM);
  const front = data.fronts[score][price].map((at) => offers.find((one) => one.at === at)).filter(Boolean);
  const path = front.map((one, at) => (at ? `H${x(one.x)} V${y(one.y)}` : `M${x(one.x)} ${y(one.y)}`)).join(" ");
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  const few = offers.length <= 8;
  const labels = spread(offers.map((one) => ({ ...one, left: x(one.x), top: y(one.y), wanted: few || one.arm === shown || front.includes(one) })));
  const marks = Array.from({ length: Math.round(most / step) + 1 }, (_, at) => at * step);
  return svg("svg", { class: "pareto", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `${score} against ${PRICES[price][1]}` },
    ticks.map((part) => [
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(low + part * (high - low)), y2: y(low + part * (high - low)) }),
      svg("text", { class: "label", x: LEFT - 8, y: y(low + part * (high - low)) + 4, "text-anchor": "end" }, figure(low + part * (high - low))),
    ]),
    marks.map((mark) => svg("text", { class: "label", x: x(mark), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, mark ? short(mark) : "0")),
    svg("text", { class: "label", x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, PRICES[price][1]),
    front.length > 1 ? svg("path", { class: "front", d: path }) : null,
    labels.map((one) => {
      const best = front.some((other) => other.at === one.at);
      const label = `${name(one.arm)}: ${figure(one.y)} at ${PRICES[price][2](one.x)}${best ? ", best for its price" : ""}`;
      return svg("g", { ...press(`point-${name(one.arm)}`, label, one.arm === shown, () => choose({ arm: name(one.arm) })), style: { "--ink-of": `var(--series-${(data.models.indexOf(one.arm.model) % 6) + 1})` } },
        svg("title", {}, label),
        svg("circle", { class: best ? "point best" : "point", cx: one.left, cy: one.top, r: 6 }),
        one.name ? svg("text", { class: "label named", x: one.name.left, y: one.name.top, "text-anchor": "middle" }, fit(one.arm.strategy, 150, 6.2)) : null);
    }));
}

/** Steps of 1, 2 or 5 that lead past the most: their size, and where they end. */
function even(most) {
  const power = 10 ** Math.floor(Math.log10(most / 4));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one * 5 >= most);
  return [step, step * Math.ceil(most / step)];
}

const short = (value) => (value >= 10_000 ? brief(value) : String(Number(value.toPrecision(2))));

/** Which colour is whose. */
function legend(data) {
  return el("div", { class: "legend models" }, data.models.slice(0, 12).map((model, at) => el("span", { style: { "--tone": `var(--series-${(at % 6) + 1})` } }, model)));
}

/** Where names stand: above their points or below, and none over another, nor over a point. */
function spread(points) {
  const taken = [];
  return points.map((point) => {
    if (!point.wanted) return point;
    const half = 3.1 * Math.min(point.arm.strategy.length, 24);
    const left = Math.min(Math.max(point.left, LEFT + half), WIDTH - half - 2);
    const free = (top) => !taken.some((other) => Math.abs(other.top - top) < 13 && Math.abs(other.left - left) < other.half + half + 6);
    const clear = (top) => points.every((other) => other === point || Math.abs(other.top - top + 4) > 11 || Math.abs(other.left - left) > half + 8);
    const top = [-11, 20].map((shift) => point.top + shift).find((one) => free(one) && clear(one));
    if (top === undefined) return point;
    taken.push({ top, left, half });
    return { ...point, name: { top, left } };
  });
}

function detail(arm, data, page) {
  return el("article", { class: "chosen", "aria-live": "polite" },
    el("h3", {}, name(arm)),
    facts([["Cells", count(arm.n)], ["Failed", arm.failed || ""], ["Cost per cell", arm.usd ? money(arm.usd) : ""], ["Tokens per cell", brief(arm.tokens)], ["Median latency", arm.seconds ? span(arm.seconds) : ""]]),
    el("div", { class: "table", dataset: { scroll: "cells" } }, el("table", {},
      el("caption", {}, arm.cells.length < arm.n ? `The ${arm.cells.length} worst of ${count(arm.n)} cells` : "Its cells, the worst first"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Input"), data.scores.map((one) => el("th", { scope: "col", class: "number" }, one)), el("th", { scope: "col" }, "Error"))),
      el("tbody", {}, arm.cells.map((cell) => el("tr", {},
        el("th", { scope: "row" }, el("button", { type: "button", class: "open", dataset: { key: cell.path }, onclick: () => page.open(cell.path) }, data.repeats > 1 ? `${cell.input}, ${cell.repeat}` : cell.input)),
        data.scores.map((one) => el("td", { class: "number" }, figure(cell.scores[one]))),
        el("td", { class: "message" }, cell.error ?? "")))))));
}

/** The replies of all arms to one input, side by side. */
function beside(data, chosen, again, page) {
  if (!data.beside?.cells.length) return null;
  const names = data.input_names;
  const said = chosen.input && chosen.input !== data.beside.input ? chosen.beside : data.beside;
  const now = chosen.input ?? data.beside.input;
  const look = async (to) => {
    chosen.input = to;
    if (to !== data.beside.input) chosen.beside = await page.replies(to);
    again();
  };
  const at = names.indexOf(now);
  const turn = (key, label, sign, by) => el("button", { type: "button", "aria-label": label, dataset: { key }, disabled: !names[at + by], onclick: () => look(names[at + by]) }, sign);
  const select = el("select", { "aria-label": "Input", dataset: { key: "input" }, onchange: () => look(select.value) }, names.map((one) => el("option", { value: one, selected: one === now }, one)));
  return el("article", { class: "replies", "aria-label": "Replies side by side" },
    el("div", { class: "choices" }, el("h3", {}, "Replies to"), page.alone ? el("b", {}, now) : [turn("input-before", "Previous input", "‹", -1), select, turn("input-after", "Next input", "›", 1)], el("small", {}, `${at + 1} of ${count(names.length)}`)),
    el("div", { class: "columns", tabindex: 0, role: "group", "aria-label": `Replies to ${now}`, dataset: { scroll: "beside" } }, (said?.cells ?? []).map((cell) => el("div", { class: "reply" },
      el("h4", {}, el("button", { type: "button", class: "open", dataset: { key: `beside-${cell.path}` }, onclick: () => page.open(cell.path) }, data.models.length > 1 ? `${cell.model} · ${cell.strategy}` : cell.strategy), data.repeats > 1 ? el("small", {}, ` ${cell.repeat + 1} of ${data.repeats}`) : null),
      cell.scores ? el("p", { class: "scores" }, cell.scores) : null,
      cell.error ? el("p", { class: "wrong" }, cell.error) : el("pre", { tabindex: 0 }, cell.reply || "(empty)", cell.characters > cell.reply.length ? "…" : "")))));
}

function controls(data) {
  return el("details", { dataset: { key: "controls" } }, el("summary", {}, `Controls: ${data.controls.map((one) => one.name).join(", ")}`),
    el("div", { class: "table" }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Control"), el("th", { scope: "col", class: "number" }, "n"), data.scores.map((one) => el("th", { scope: "col", class: "number" }, one)))),
      el("tbody", {}, data.controls.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name), el("td", { class: "number" }, count(one.n)), data.scores.map((score) => el("td", { class: "number" }, figure(one.means[score])))))))));
}
