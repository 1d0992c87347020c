// The lanes: one row per slot, each item a bar in time. The server says what is to be seen at this width; here it is drawn.
import { colour } from "./charts.js";
import { el, fill, released } from "./dom.js";
import { count, many, span } from "./format.js";
import { alone, get, of, paced } from "./net.js";

const STRIP = 60; // height of what was in flight, with its words and marks above
const PLOT = 24; // where in it the plot begins
const AXIS = 22;
const FOLLOWED = 60; // seconds that are seen of a run that goes on
const PARTS = 6; // numbers of one bar: since, start, end, state, count, item
const LEGEND = ["running", "done", "failed", "retried", "cancelled", "crashed", "speculative"];

/** The lanes of a run; `open(place)` shows an item. */
export class Lanes {
  constructor(container, run, open) {
    this.run = run;
    this.open = open;
    this.head = null;
    this.seen = null; // what the server said last
    this.view = { begin: 0, end: 1, follows: true, whole: true };
    this.picked = null; // by the keyboard: {lane, row, bar}
    this.parts = new Map();
    this.colours = {};
    this.drawn = new Promise((resolve) => { // for the first time
      this.fetch = paced(() => this.#fetch().finally(resolve), 250);
      this.glance = paced(() => this.#fetch().finally(resolve), 1200);
    });
    this.#frame(container);
    document.addEventListener("theme", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new ResizeObserver(() => { this.draw(); this.fetch(); }).observe(this.box);
  }

  /** They are seen from now on. */
  begin(head) {
    this.update(head);
  }

  /** The head of the run has changed. */
  update(head) {
    const first = this.head === null;
    this.head = head;
    this.heard = performance.now();
    if (first) this.view.whole = head.state !== "running" || head.now < FOLLOWED;
    if (head.read < 1) this.glance();
    else this.fetch();
    if (head.state === "running") this.#tick();
  }

  get live() {
    return this.head?.state === "running";
  }

  /** The run's own time, here. */
  get now() {
    const late = this.live ? (performance.now() - this.heard) / 1000 : 0;
    return (this.head?.now ?? 0) + late;
  }

  #frame(container) {
    const button = (name, label, work) => el("button", { type: "button", "aria-label": label, title: label, onclick: work }, name);
    this.said = el("span", { class: "muted window" });
    this.following = el("button", { type: "button", "aria-pressed": "true", title: "Keep to the newest", onclick: () => this.#follow(true) }, "Follow");
    const tools = el("div", { class: "tools", role: "toolbar", "aria-label": "Window" },
      button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)),
      button("‹", "Earlier", () => this.pan(-0.5)), button("›", "Later", () => this.pan(0.5)),
      button("Whole", "The whole run", () => this.whole()), this.following, this.said);
    this.axis = el("canvas", { class: "axis", "aria-hidden": "true" });
    this.lanes = el("div", { class: "lanes" });
    this.inner = el("div", { class: "lanes", hidden: true }); // those within items, folded until they are asked for
    this.fold = el("button", { type: "button", class: "quiet fold", "aria-expanded": "false", hidden: true, onclick: () => this.#unfold() });
    this.tip = el("div", { class: "tip", hidden: true });
    this.choice = el("div", { class: "choice", hidden: true });
    this.voice = el("div", { class: "unseen", role: "status" });
    this.box = el("div", {
      class: "lanebox", tabindex: "0", role: "application", id: "lanes",
      "aria-label": "Lanes. Plus and minus zoom, left and right move, up and down choose a row, comma and full stop choose a bar, Enter opens it, 0 shows the whole run.",
    }, this.axis, this.lanes, this.inner, this.tip, this.choice);
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.#pointer();
    const legend = el("div", { class: "legend" }, el("span", { class: "waits" }, "waiting"),
      LEGEND.map((state) => el("span", { dataset: { state } }, state)));
    fill(container, tools, this.box, this.fold, legend, this.voice);
  }

  #unfold() {
    this.inner.hidden = !this.inner.hidden;
    this.fold.setAttribute("aria-expanded", String(!this.inner.hidden));
    this.#arrange();
    this.draw();
  }

  // --- the window --------------------------------------------------------------------------------------------------

  zoom(by, around = null) {
    const { begin, end } = this.view;
    const centre = around ?? (this.view.follows && this.live ? end : (begin + end) / 2);
    const size = Math.min(Math.max((end - begin) * by, 0.001), Math.max(this.now, 0.01));
    const part = (centre - begin) / (end - begin);
    this.#show(centre - part * size, centre + (1 - part) * size);
  }

  pan(by) {
    const size = this.view.end - this.view.begin;
    this.#show(this.view.begin + by * size, this.view.end + by * size);
  }

  whole() {
    this.view = { ...this.view, whole: true, follows: true };
    this.#moved();
  }

  #follow(yes) {
    this.view.follows = yes;
    this.view.whole = false;
    this.#moved();
  }

  #show(begin, end) {
    const size = end - begin;
    const last = Math.max(this.now, 0.01);
    const from = Math.max(0, Math.min(begin, last - size));
    const to = from + Math.min(size, last);
    this.view = { begin: from, end: to, whole: false, follows: this.live && to >= last - 1e-9 };
    this.#moved();
  }

  #moved() {
    this.draw();
    this.fetch.now();
  }

  #settle() {
    const view = this.view;
    const last = Math.max(this.now, 0.01);
    if (view.whole) Object.assign(view, { begin: 0, end: last });
    else if (view.follows && this.live) {
      const size = Math.min(view.end - view.begin || FOLLOWED, last);
      Object.assign(view, { begin: last - size, end: last });
    }
  }

  async #fetch() {
    if (this.head === null) return;
    if (this.live && !this.view.whole && this.seen === null) this.view.begin = this.view.end - FOLLOWED;
    this.#settle();
    const { begin, end } = this.view;
    const columns = Math.round(this.box.clientWidth) || 800;
    // A little more than is seen, so that there is something to draw while it moves on.
    const more = this.live ? 0 : 0.25 * (end - begin);
    const seen = await get(of(this.run, "/lanes.json"), { begin: Math.max(0, begin - more), end: end + more, columns: Math.round(columns * (more ? 1.5 : 1)) });
    await released();
    this.seen = seen;
    this.#arrange();
    this.draw();
  }

  #tick() {
    if (this.ticking) return;
    this.ticking = true;
    const every = matchMedia("(prefers-reduced-motion: reduce)").matches ? 500 : 200;
    const step = () => {
      if (!this.live) {
        this.ticking = false;
        return;
      }
      const began = performance.now();
      if (!document.hidden) this.draw();
      setTimeout(() => requestAnimationFrame(step), Math.max(every, 15 * (performance.now() - began)));
    };
    step();
  }

  // --- drawing -----------------------------------------------------------------------------------------------------

  #arrange() {
    const names = new Set(this.seen.lanes.map((lane) => lane.name));
    for (const [name, part] of this.parts) {
      if (!names.has(name)) {
        part.section.remove();
        this.parts.delete(name);
      }
    }
    for (const lane of this.seen.lanes) {
      if (!this.parts.has(lane.name)) this.parts.set(lane.name, this.#part(lane.name, lane.nested));
      const part = this.parts.get(lane.name);
      part.lane = lane;
      const done = ["done", "failed", "cancelled", "retried", "crashed"].filter((state) => lane.counts[state])
        .map((state) => el("span", { dataset: { state } }, `${count(lane.counts[state])} ${state}`));
      const now = lane.running ? el("span", { dataset: { state: "running" } }, `${count(lane.running)} running`) : null;
      const waits = lane.waiting ? el("span", { class: "waits" }, `${count(lane.waiting)} waiting`) : null;
      const limit = lane.limits.at(-1)?.[1];
      fill(part.facts, now, waits, done, limit ? el("span", {}, `limit ${count(Math.round(limit))}`) : null,
        lane.decisions.length ? el("span", {}, many(lane.decisions.length, "decision")) : null);
    }
    const inner = this.seen.lanes.filter((lane) => lane.nested).length;
    this.fold.hidden = inner === 0;
    this.fold.textContent = `${this.inner.hidden ? "Show" : "Hide"} ${many(inner, "lane")} within items`;
    if (!this.seen.lanes.length) {
      this.lanes.dataset.empty = this.head.read < 1 ? "Reading the journal…" : "Nothing has started yet.";
    } else delete this.lanes.dataset.empty;
  }

  #part(name, nested) {
    const facts = el("span", { class: "facts" });
    const canvas = el("canvas", { role: "img", "aria-label": `Lane ${name}` });
    const fold = el("button", { type: "button", class: "name", "aria-expanded": "true" }, name);
    const section = el("section", { class: "lane", dataset: { lane: name } }, el("h3", {}, fold, facts), canvas);
    fold.onclick = () => {
      const open = fold.getAttribute("aria-expanded") === "true";
      fold.setAttribute("aria-expanded", String(!open));
      canvas.hidden = open;
      this.draw();
    };
    (nested ? this.inner : this.lanes).append(section);
    return { section, canvas, facts, lane: null, high: 10 };
  }

  draw() {
    if (this.head === null) return;
    this.#settle();
    const { begin, end } = this.view;
    this.said.textContent = `${span(begin)} – ${span(end)} of ${span(this.now)}`;
    this.following.setAttribute("aria-pressed", String(this.view.follows && !this.view.whole));
    this.following.hidden = !this.live;
    for (const name of [...LEGEND, "line", "muted", "ink", "accent", "paper", "waiting", "limit"]) this.colours[name] = colour(name);
    const width = this.lanes.clientWidth;
    if (!width) return;
    this.scale = width / (end - begin);
    this.#drawAxis(width);
    if (this.seen) for (const part of this.parts.values()) if (!part.canvas.hidden && part.section.offsetParent) this.#drawLane(part, width);
    this.box.dataset.begin = begin.toFixed(4);
    this.box.dataset.end = end.toFixed(4);
  }

  #x(time) {
    return (time - this.view.begin) * this.scale;
  }

  #drawAxis(width) {
    const pen = sized(this.axis, width, AXIS);
    pen.fillStyle = this.colours.muted;
    pen.font = font();
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    for (const time of ticks(this.view.begin, this.view.end, width / 90)) {
      const x = Math.round(this.#x(time)) + 0.5;
      pen.fillRect(x, AXIS - 4, 1, 4);
      const text = said(time, this.view.end - this.view.begin);
      const half = pen.measureText(text).width / 2;
      if (x < width - half) pen.fillText(text, Math.max(half, x), AXIS / 2 - 2);
    }
  }

  #drawLane(part, width) {
    const { lane } = part;
    const rows = lane.rows.length;
    const high = rows <= 12 ? 16 : rows <= 32 ? 10 : rows <= 80 ? 6 : 3;
    part.high = high;
    const pen = sized(part.canvas, width, STRIP + 6 + rows * high + 2);
    this.#grid(pen, width, part.canvas.clientHeight);
    this.#drawStrip(pen, lane, width);
    lane.rows.forEach((row, index) => this.#drawRow(pen, row, STRIP + 6 + index * high, high));
    for (const seam of this.seen.seams) {
      pen.strokeStyle = this.colours.crashed;
      pen.setLineDash([3, 3]);
      line(pen, [[this.#x(seam), 0], [this.#x(seam), part.canvas.clientHeight]]);
      pen.setLineDash([]);
    }
    if (this.picked?.lane === lane.name) this.#ring(pen, lane.rows[this.picked.row], high);
  }

  #grid(pen, width, height) {
    pen.fillStyle = this.colours.line;
    pen.globalAlpha = 0.5;
    for (const time of ticks(this.view.begin, this.view.end, width / 90)) pen.fillRect(Math.round(this.#x(time)), 0, 1, height);
    pen.globalAlpha = 1;
  }

  /** What was in flight over time, against the limit; every change of that is marked. */
  #drawStrip(pen, lane, width) {
    const { begin, end, bins } = this.seen;
    const limits = lane.limits.map(([, value]) => value);
    const top = Math.max(1, ...lane.busy, ...limits) * 1.04;
    const y = (value) => STRIP - (value / top) * (STRIP - PLOT);
    const at = (index) => this.#x(begin + ((end - begin) * index) / bins);
    const waits = Math.max(...lane.waits);
    hill(pen, lane.busy, at, y, this.colours.done, 0.45);
    pen.fillStyle = this.colours.line;
    pen.fillRect(0, STRIP, width, 1);
    if (waits > 0.05) { // against its own highest: how many wait may be a thousand times what is in flight
      pen.strokeStyle = this.colours.waiting;
      line(pen, lane.waits.flatMap((value, index) => [[at(index), y((value / waits) * top * 0.9)], [at(index + 1), y((value / waits) * top * 0.9)]]));
    }
    if (limits.length) {
      const points = lane.limits.flatMap(([time, value], index) => [[this.#x(time), y(limits[index - 1] ?? value)], [this.#x(time), y(value)]]);
      points.push([width, y(limits.at(-1))]);
      pen.strokeStyle = this.colours.limit;
      pen.lineWidth = 1.5;
      line(pen, points);
      pen.lineWidth = 1;
    }
    for (const decision of lane.decisions) {
      const x = this.#x(decision.at);
      const down = decision.held !== undefined || (decision.new ?? 0) < (decision.old ?? 0);
      pen.fillStyle = down ? this.colours.failed : this.colours.limit;
      triangle(pen, x, down ? 16 : 22, down ? 6 : -6);
    }
    pen.font = font(11);
    pen.fillStyle = this.colours.muted;
    pen.textAlign = "left";
    pen.textBaseline = "top";
    pen.fillText(`${count(Math.round(Math.max(...lane.busy) * 10) / 10)} at once${waits > 0.5 ? ` · up to ${count(Math.round(waits))} waiting` : ""}`, 0, 1);
  }

  #drawRow(pen, row, y, high) {
    const states = this.seen.states;
    const width = this.lanes.clientWidth;
    const { begin, end } = this.view;
    const gap = high > 4 ? 2 : 1;
    for (let at = 0; at < row.length; at += PARTS) {
      const state = states[row[at + 3]];
      const until = state === "running" ? this.now : row[at + 2];
      if (until < begin || row[at] > end) continue;
      const since = Math.max(0, this.#x(row[at]));
      const from = Math.max(0, this.#x(row[at + 1]));
      const to = Math.min(width, this.#x(until));
      if (from - since > 1) {
        pen.fillStyle = this.colours.waiting;
        pen.globalAlpha = 0.55;
        pen.fillRect(since, y + high / 2 - 0.5, from - since, 1);
        pen.globalAlpha = 1;
      }
      if (to < 0) continue;
      pen.fillStyle = this.colours[state];
      pen.globalAlpha = row[at + 4] > 1 ? 0.75 : 1;
      const wide = Math.max(0.75, to - from - (to - from > 3 ? 1 : 0));
      if (wide > 4 && high > 4) round(pen, from, y, wide, high - gap);
      else pen.fillRect(from, y, wide, high - gap);
      pen.globalAlpha = 1;
    }
  }

  #ring(pen, row, high) {
    const at = this.picked.bar * PARTS;
    if (!row || at >= row.length) return;
    const from = this.#x(row[at + 1]);
    const to = this.#x(this.seen.states[row[at + 3]] === "running" ? this.now : row[at + 2]);
    pen.strokeStyle = this.colours.ink;
    pen.lineWidth = 2;
    pen.strokeRect(from - 1, STRIP + 6 + this.picked.row * high - 1, Math.max(4, to - from) + 1, high);
    pen.lineWidth = 1;
  }

  // --- pointer and keys --------------------------------------------------------------------------------------------

  #pointer() {
    let drag = null;
    const time = (event) => this.view.begin + (event.clientX - this.lanes.getBoundingClientRect().left) / this.scale;
    this.box.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !(event.target instanceof HTMLCanvasElement) || event.pointerType === "touch") return;
      drag = { from: time(event), x: event.clientX };
    });
    addEventListener("pointermove", (event) => {
      if (drag && Math.abs(event.clientX - drag.x) > 4) {
        const left = this.lanes.getBoundingClientRect().left - this.box.getBoundingClientRect().left;
        const [a, b] = [drag.x, event.clientX].sort((one, other) => one - other);
        const origin = this.box.getBoundingClientRect().left;
        this.choice.hidden = false;
        this.choice.style.left = `${Math.max(left, a - origin)}px`;
        this.choice.style.width = `${b - a}px`;
        this.tip.hidden = true;
      } else if (this.box.contains(event.target)) this.#hover(event);
      else this.tip.hidden = true;
    });
    addEventListener("pointerup", (event) => {
      const began = drag;
      drag = null;
      this.choice.hidden = true;
      if (!began) return;
      if (Math.abs(event.clientX - began.x) > 4) {
        const [a, b] = [began.from, time(event)].sort((one, other) => one - other);
        this.#show(a, Math.max(b, a + 0.001));
      }
    });
    this.box.addEventListener("click", (event) => {
      const hit = this.#hit(event);
      if (hit && hit.item >= 0 && Math.abs(event.clientX - (this.pressed ?? event.clientX)) < 5) this.open(hit.item);
    });
    this.box.addEventListener("pointerdown", (event) => { this.pressed = event.clientX; }, true);
    this.box.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.box.addEventListener("dblclick", (event) => this.zoom(0.25, time(event)));
    this.box.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, time(event));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.pan(event.deltaX / this.lanes.clientWidth);
      }
    }, { passive: false });
  }

  #hit(event) {
    const part = [...this.parts.values()].find((one) => one.canvas === event.target);
    if (!part?.lane) return null;
    const box = part.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const decision = y <= STRIP && part.lane.decisions.findLast((one) => Math.abs(this.#x(one.at) - x) < 5);
    if (decision) return { decision, lane: part.lane };
    const index = Math.floor((y - STRIP - 6) / part.high);
    const row = part.lane.rows[index];
    if (!row) return null;
    const slack = 2 / this.scale;
    const time = this.view.begin + x / this.scale;
    for (let at = row.length - PARTS; at >= 0; at -= PARTS) {
      const until = this.seen.states[row[at + 3]] === "running" ? this.now : row[at + 2];
      if (row[at] - slack <= time && time <= until + slack) return this.#bar(row, at, until);
    }
    return null;
  }

  #bar(row, at, until) {
    return { since: row[at], start: row[at + 1], end: until, state: this.seen.states[row[at + 3]], count: row[at + 4], item: row[at + 5] };
  }

  #hover(event) {
    const hit = this.#hit(event);
    this.box.classList.toggle("over", Boolean(hit));
    this.tip.hidden = !hit;
    if (!hit) return;
    fill(this.tip, hit.decision ? decided(hit.decision) : told(hit));
    const box = this.box.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${event.clientY - box.top + 16}px`;
  }

  #key(event) {
    if (event.target !== this.box || event.altKey || event.ctrlKey || event.metaKey) return;
    const work = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.whole(),
      ArrowLeft: () => this.pan(-0.25), ArrowRight: () => this.pan(0.25), f: () => this.#follow(true),
      ArrowDown: () => this.#pick(1, 0), ArrowUp: () => this.#pick(-1, 0), ".": () => this.#pick(0, 1), ",": () => this.#pick(0, -1),
      Enter: () => this.#openPicked(),
    }[event.key];
    if (!work) return;
    event.preventDefault();
    work();
  }

  /** Choose another row, or another bar of the row; what is chosen is said aloud. */
  #pick(down, on) {
    if (!this.seen) return;
    const rows = this.seen.lanes.flatMap((lane) => lane.rows.map((row, index) => ({ lane: lane.name, row: index, bars: row })));
    if (!rows.length) return;
    let place = rows.findIndex((one) => one.lane === this.picked?.lane && one.row === this.picked?.row);
    place = place < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, place + down));
    const { lane, row, bars } = rows[place];
    const most = bars.length / PARTS - 1;
    const middle = (this.view.begin + this.view.end) / 2;
    let bar = this.picked?.bar ?? 0;
    if (down || this.picked === null) {
      bar = 0;
      while (bar < most && bars[bar * PARTS + 2] < middle) bar += 1;
    } else bar = Math.min(most, Math.max(0, bar + on));
    this.picked = { lane, row, bar, bars };
    const at = bar * PARTS;
    if (bars.length && (bars[at + 2] < this.view.begin || bars[at + 1] > this.view.end)) this.#show(bars[at] - 0.1, bars[at] + (this.view.end - this.view.begin) - 0.1);
    if (bars.length) this.voice.textContent = `${lane}, row ${row + 1}: ${told(this.#bar(bars, at, bars[at + 2])).map((node) => node.textContent).join(", ")}`;
    this.draw();
  }

  #openPicked() {
    const item = this.picked?.bars[this.picked.bar * PARTS + 5];
    if (item !== undefined && item >= 0) this.open(item);
  }
}

function told(bar) {
  const waited = bar.start - bar.since;
  return [
    el("b", { dataset: { state: bar.state } }, bar.count > 1 ? `${many(bar.count, "item")}, at worst ${bar.state}` : bar.state),
    el("span", {}, `took ${span(bar.end - bar.start)}`),
    waited > 0.0005 ? el("span", {}, `waited ${span(waited)}`) : null,
    el("span", { class: "muted" }, `at ${span(bar.start)}${bar.count > 1 ? "; zoom in to tell them apart" : alone ? "" : "; click for more"}`),
  ].filter(Boolean);
}

function decided(decision) {
  const { at, cause, dimension, old, new: now, held, limit } = decision;
  const what = dimension ? `${dimension}: ${old ?? "?"} → ${now ?? "?"}` : `${limit ?? "the lane"} is held${held ? ` for ${span(held)}` : ""}`;
  return [el("b", {}, what), cause ? el("span", {}, `because of ${cause}`) : null, el("span", { class: "muted" }, `at ${span(at)}`)].filter(Boolean);
}

// --- pens ----------------------------------------------------------------------------------------------------------

function sized(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    Object.assign(canvas, { width: wide, height: high });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

function font(size = 11) {
  return `${size}px ${getComputedStyle(document.body).fontFamily}`;
}

function line(pen, points) {
  pen.beginPath();
  points.forEach(([x, y], index) => (index ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
}

function hill(pen, values, at, y, ink, faint) {
  pen.fillStyle = ink;
  pen.globalAlpha = faint;
  pen.beginPath();
  pen.moveTo(at(0), y(0));
  values.forEach((value, index) => {
    pen.lineTo(at(index), y(value));
    pen.lineTo(at(index + 1), y(value));
  });
  pen.lineTo(at(values.length), y(0));
  pen.fill();
  pen.globalAlpha = 1;
}

function triangle(pen, x, y, high) {
  pen.beginPath();
  pen.moveTo(x - 4, y);
  pen.lineTo(x + 4, y);
  pen.lineTo(x, y + high);
  pen.fill();
}

function round(pen, x, y, wide, high) {
  pen.beginPath();
  pen.roundRect(x, y, wide, high, Math.min(3, high / 3));
  pen.fill();
}

/** Round times within a window, about `wanted` of them. */
function ticks(begin, end, wanted) {
  const rough = (end - begin) / Math.max(2, wanted);
  const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  const step = steps.find((one) => one >= rough) ?? 86400 * Math.ceil(rough / 86400);
  const times = [];
  for (let at = Math.ceil(begin / step) * step; at <= end && times.length < 50; at += step) times.push(at);
  return times;
}

function said(time, size) {
  if (time === 0) return "0 s";
  if (size < 0.05) return `${(time * 1000).toFixed(0)} ms`;
  if (size < 10 && time < 60) return `${time.toFixed(size < 1 ? 2 : 1)} s`;
  if (time < 60) return `${Math.round(time)} s`;
  const minutes = Math.floor(time / 60);
  const rest = String(Math.floor(time % 60)).padStart(2, "0");
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}
