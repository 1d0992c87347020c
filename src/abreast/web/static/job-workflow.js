// A workflow: its steps from top to bottom, those side by side that need nothing of each other, and gates to decide on.
import { el, svg } from "./dom.js";
import { count, span } from "./format.js";
import { cut, facts, fit, press, stage } from "./stage.js";

const WIDTH = 184, HEIGHT = 50, GAP = 24, SIDE = 16, PAD = 10, HEAD = 44;
const SIGNS = { done: "✓", failed: "✕", tolerated: "✕", cancelled: "–", running: "▸", waiting: "?", pending: "", skipped: "·" };

export function draw(container, data, page) {
  stage(container, data, page, picture);
}

function picture(data, chosen, again, page) {
  const every = flat(data.steps);
  const shown = every.find((step) => step.key === chosen.key) ?? ["waiting", "running", "failed"].map((state) => every.find((step) => step.state === state)).find(Boolean) ?? every.at(-1);
  return [
    data.gates.map((gate) => question(gate, data, chosen, again, page)),
    data.more_gates ? el("p", { class: "muted" }, `and ${count(data.more_gates)} more gates wait`) : null,
    every.length === 0 ? el("p", { class: "muted" }, "Its journal has no outline of its steps yet.") : el("div", { class: "two" },
      el("div", { class: "drawing", dataset: { scroll: "graph", centre: "" } }, graph(data.steps, shown, (key) => {
        chosen.key = key;
        again();
      })),
      shown ? detail(shown, page) : null),
    cut(data.cut),
  ];
}

function flat(steps) {
  return steps.flatMap((step) => [step, ...step.beneath.flatMap((held) => flat(held.steps))]);
}

// --- gates ---------------------------------------------------------------------------------------------------------------

function question(gate, data, chosen, again, page) {
  const decided = chosen.decided?.[gate.gate];
  const may = data.decidable && !page.alone && !decided;
  const decide = async (option) => {
    const no = ["reject", "abort"].includes(option.toLowerCase());
    const what = no ? `The gate ${gate.gate} is answered with “${option}”${gate.on_reject === "abort" ? ", which ends the run" : ""}.` : `The gate ${gate.gate} is answered with “${option}”, and the run goes on.`;
    const sure = await page.ask(`${option.charAt(0).toUpperCase()}${option.slice(1)} ${gate.gate}?`, what, { yes: option, no: "Not yet", danger: no });
    if (!sure || !(await page.act("approve", { gate: gate.gate, option }))) return;
    chosen.decided = { ...chosen.decided, [gate.gate]: option };
    again();
  };
  return el("article", { class: "gate", "aria-label": `Gate ${gate.gate}` },
    el("h3", {}, gate.gate, " ", el("span", { class: "badge", dataset: { state: "paused" } }, decided ? `answered: ${decided}` : "waits for a decision")),
    el("pre", { tabindex: 0, dataset: { scroll: `gate-${gate.gate}` } }, gate.message),
    gate.show_file ? el("p", { class: "muted" }, `It asks to look at the file ${gate.show_file}.`) : null,
    el("div", { class: "choices" }, gate.options.map((option) => el("button", {
      type: "button", disabled: !may, dataset: { key: `gate-${gate.gate}-${option}` }, onclick: () => decide(option),
      class: ["reject", "abort"].includes(option.toLowerCase()) ? "danger" : "primary",
    }, option))),
    data.decidable || page.alone ? null : el("p", { class: "muted" }, "It is asked where the run was started; here it can be decided once the run pauses."));
}

// --- the graph -----------------------------------------------------------------------------------------------------------

function graph(steps, shown, choose) {
  const laid = lay(steps);
  const width = laid.width + 2, height = laid.height + 2;
  return svg("svg", { class: "flow", width, height, viewBox: `-1 -1 ${width} ${height}`, role: "group", "aria-label": "Steps" },
    render(laid, shown, choose));
}

/** Places for a list of steps: layers from top to bottom, each step below all that it waits for. */
function lay(steps) {
  const layer = new Map();
  const placeOf = new Map(steps.map((step, at) => [step.id, at]));
  const side = steps.some((step) => step.needs !== null);
  const waits = steps.map((step, at) => {
    if (step.needs === null) return at ? [at - 1] : [];
    return step.needs.map((name) => placeOf.get(name)).filter((one) => one !== undefined);
  });
  const depth = (at, seen = 0) => {
    if (seen > steps.length) return 0; // no circle can be here, and none would hang the page
    if (!layer.has(at)) layer.set(at, waits[at].length ? 1 + Math.max(...waits[at].map((one) => depth(one, seen + 1))) : 0);
    return layer.get(at);
  };
  steps.forEach((_, at) => (side ? depth(at) : layer.set(at, at)));
  const layers = [];
  steps.forEach((step, at) => (layers[layer.get(at)] ??= []).push({ ...box(step), at }));
  const rows = layers.filter(Boolean);
  const width = Math.max(WIDTH, ...rows.map((row) => row.reduce((sum, one) => sum + one.width, SIDE * (row.length - 1))));
  const placed = [];
  let top = 0;
  for (const row of rows) {
    const all = row.reduce((sum, one) => sum + one.width, SIDE * (row.length - 1));
    let left = (width - all) / 2;
    for (const one of row) {
      placed[one.at] = { ...one, left, top };
      left += one.width + SIDE;
    }
    top += Math.max(...row.map((one) => one.height)) + GAP;
  }
  const edges = waits.flatMap((from, at) => from.map((one) => [placed[one], placed[at]]));
  return { width, height: Math.max(0, top - GAP), placed, edges };
}

function box(step) {
  const lists = step.beneath.filter((held) => held.steps.length).map((held) => ({ name: held.name, laid: lay(held.steps) }));
  if (!lists.length) return { step, width: WIDTH, height: HEIGHT, lists: [] };
  let top = HEAD + PAD;
  for (const held of lists) {
    top += held.name ? 18 : 0;
    held.top = top;
    top += held.laid.height + PAD;
  }
  return { step, width: Math.max(WIDTH, ...lists.map((held) => held.laid.width)) + 2 * PAD, height: top, lists };
}

function render(laid, shown, choose) {
  return [
    laid.edges.map(([from, to]) => {
      const [x1, y1, x2, y2] = [from.left + from.width / 2, from.top + from.height, to.left + to.width / 2, to.top];
      const bend = Math.max(10, (y2 - y1) / 2);
      return svg("path", { class: "wire", "data-state": from.step.state, d: `M${x1} ${y1} C ${x1} ${y1 + bend}, ${x2} ${y2 - bend}, ${x2} ${y2}` });
    }),
    laid.placed.map((one) => node(one, shown, choose)),
  ];
}

function node({ step, left, top, width, height, lists }, shown, choose) {
  const progress = step.items !== null || total(step) > 1 ? meter(step, left + 12, top + 40, width - 24) : null;
  const label = `${step.id}, ${step.type}: ${step.state}${line(step) ? `, ${line(step)}` : ""}`;
  return svg("g", { "data-state": step.state },
    svg("g", press(`step-${step.key}`, label, step.key === shown?.key, () => choose(step.key)),
      svg("title", {}, label),
      svg("rect", { class: lists.length ? "box around" : "box", x: left, y: top, width, height, rx: 8 }),
      svg("rect", { class: "stripe", x: left, y: top + 8, width: 3, height: Math.min(height, HEIGHT) - 16, rx: 1.5 }),
      svg("text", { class: "id", x: left + 12, y: top + 20 }, fit(step.id, width - 42, 7.6)),
      svg("text", { class: "label", x: left + 12, y: top + 35 }, fit([step.type, line(step)].filter(Boolean).join(" · "), width - 20, 6.2)),
      svg("text", { class: "sign", x: left + width - 12, y: top + 21, "text-anchor": "end" }, SIGNS[step.state] ?? ""),
      progress),
    lists.map((held) => svg("g", { transform: `translate(${left + (width - held.laid.width) / 2} ${top + held.top})` },
      held.name ? svg("text", { class: "label", x: 0, y: -6 }, fit(held.name, held.laid.width)) : null,
      render(held.laid, shown, choose))));
}

function total(step) {
  return Object.values(step.counts).reduce((sum, one) => sum + one, step.running);
}

function line(step) {
  const ended = total(step) - step.running;
  if (step.waiting > 1) return `${count(step.waiting)} wait`;
  if (step.items !== null) return `${count(ended)} of ${count(step.items)}${step.running ? `, ${count(step.running)} running` : ""}`;
  if (total(step) > 1) return `${count(ended)} times`;
  return step.seconds ? span(step.seconds) : "";
}

function meter(step, left, top, width) {
  const all = Math.max(step.items ?? 0, total(step), 1);
  let x = left;
  const parts = [["done", step.counts.done], ["failed", step.counts.failed], ["cancelled", step.counts.cancelled], ["running", step.running]];
  return [svg("rect", { class: "track", x: left, y: top, width, height: 4, rx: 2 }),
    parts.filter(([, number]) => number).map(([state, number]) => {
      const part = svg("rect", { class: "part", "data-state": state, x, y: top, width: (width * number) / all, height: 4 });
      x += (width * number) / all;
      return part;
    })];
}

function detail(step, page) {
  const counts = Object.entries(step.counts).filter(([, number]) => number);
  return el("article", { class: "chosen", "aria-live": "polite" },
    el("h3", {}, step.id, " ", el("span", { class: "badge", dataset: { state: step.state === "waiting" ? "paused" : step.state } }, step.state)),
    facts([["Type", step.type], ["Needs", step.needs?.join(", ")], ["Items", step.items === null ? "" : count(step.items)],
      ["Ended", counts.map(([state, number]) => `${count(number)} ${state}`).join(", ")], ["Running", step.running || ""],
      ["Took", step.seconds ? `${span(step.seconds)}${total(step) > 1 ? " in all" : ""}` : ""]]),
    step.said ? el("pre", { class: step.state === "failed" ? "wrong" : "" }, step.said) : el("p", { class: "muted" }, SAYS[step.state] ?? ""),
    step.path ? el("button", { type: "button", dataset: { key: "open" }, onclick: () => page.open(step.path) }, total(step) > 1 ? "Open the last item" : "Open the step") : null);
}

const SAYS = { pending: "It has not begun.", skipped: "The run did not come this way.", running: "It is running.", waiting: "It waits for a decision.", done: "It is done and wrote nothing." };
