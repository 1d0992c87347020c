// One item in full, in a panel at the side.
import { badge } from "./chrome.js";
import { el, fill, released } from "./dom.js";
import { count, money, span } from "./format.js";
import { get, of, paced } from "./net.js";
import { patch } from "./stage.js";

/**
 * A panel that shows items of a run; `changed(path)` is told which, "" when it closes. `items` is the table, whose order
 * Previous and Next follow.
 */
export class Panel {
  constructor(run, changed, items) {
    this.run = run;
    this.items = items;
    this.shown = null; // what was said of the item
    this.renew = paced(() => this.#renew(), 1000);
    this.body = el("div", { class: "body" });
    this.dialog = el("dialog", { class: "panel", id: "item", "aria-label": "Item" }, this.body);
    this.dialog.addEventListener("close", () => changed(""));
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("keydown", (event) => {
      if (event.target.closest("input, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
      const by = { j: 1, k: -1 }[event.key];
      if (by) this.#step(by);
    });
    this.changed = changed;
    document.body.append(this.dialog);
  }

  /** Show the item of a path, or of a place in the picture. */
  async open(which) {
    const asked = typeof which === "number" ? { place: which } : { path: which };
    if (!this.dialog.open) {
      fill(this.body, el("p", { class: "muted" }, "Reading…"));
      this.dialog.showModal();
    }
    try {
      const item = await get(of(this.run, "/item.json"), asked);
      this.changed(item.path);
      this.shown = item;
      fill(this.body, this.#page(item));
    } catch (error) {
      fill(this.body, this.#close(), el("p", { class: "empty", role: "alert" }, error.message));
    }
    this.dialog.scrollTop = 0;
    this.dialog.querySelector(".close")?.focus();
  }

  /** There is news of the run: what an item does that is running is seen as it goes. */
  update() {
    if (this.dialog.open && this.shown?.state === "running") this.renew();
  }

  async #renew() {
    const path = this.shown?.path;
    const item = await get(of(this.run, "/item.json"), { path });
    await released();
    if (!this.dialog.open || this.shown?.path !== path || JSON.stringify(item) === JSON.stringify(this.shown)) return;
    this.shown = item;
    const before = { top: this.dialog.scrollTop, focus: document.activeElement?.dataset?.key };
    const steps = this.body.querySelector(".steps");
    const follows = !steps || steps.scrollTop + steps.clientHeight >= steps.scrollHeight - 4;
    const place = steps?.scrollTop ?? 0;
    fill(this.body, this.#page(item));
    this.dialog.scrollTop = before.top;
    const now = this.body.querySelector(".steps");
    if (now) now.scrollTop = follows ? now.scrollHeight : place;
    if (before.focus) this.body.querySelector(`[data-key="${CSS.escape(before.focus)}"]`)?.focus({ preventScroll: true });
  }

  async #step(by) {
    const path = this.shown && (await this.items.step(this.shown.path, by));
    if (!path) return;
    await this.open(path);
    this.body.querySelector(`[data-key="${by > 0 ? "next" : "previous"}"]:enabled`)?.focus();
  }

  #steps(item) {
    const button = (key, label, sign, by) => el("button", { type: "button", class: "quiet", dataset: { key }, "aria-label": label, title: `${label} (${by > 0 ? "j" : "k"})`, disabled: !this.items.has(item.path, by), onclick: () => this.#step(by) }, sign);
    return el("span", { class: "turn" }, button("previous", "Previous item", "↑", -1), button("next", "Next item", "↓", 1));
  }

  #close() {
    return el("button", { type: "button", class: "quiet close", dataset: { key: "close" }, "aria-label": "Close", autofocus: true, onclick: () => this.dialog.close() }, "✕");
  }

  #page(item) {
    return [
      el("header", {}, el("h2", {}, item.key), badge(item.state), this.#steps(item), this.#close()),
      el("p", { class: "path" }, item.path),
      item.reason ? el("p", {}, `It was cancelled: ${item.reason}`) : null,
      item.timing ? timing(item) : null,
      failure(item.error),
      agent(item), diffs(item.tree),
      item.calls.some((call) => call.asked) ? null : text("Prompt", item.prompt), text("Input", item.input),
      item.calls.map((call, index) => this.#call(call, index, item.calls.length)),
      text(item.calls.length ? "Result" : "Reply", item.value),
      text("Standard output", item.stdout), text("Standard error", item.stderr),
      item.exit_code ? el("p", {}, `Exit code ${item.exit_code}`) : null,
      item.attempts.length ? el("section", {}, el("h3", {}, "Attempts that failed"), item.attempts.map((one) =>
        el("details", {}, el("summary", {}, `Attempt ${one.attempt}: ${one.error.message?.text || one.error.type}`,
          one.backoff ? el("span", { class: "muted" }, ` then a pause of ${span(one.backoff)}`) : null), failure(one.error)))) : null,
      item.waits.length ? facts("Waits", item.waits.map((one) => [one.limit || "limit", span(one.seconds)])) : null,
      item.beneath.length ? el("section", {}, el("h3", {}, "Verdicts and steps beneath"), el("ul", { class: "beneath" }, item.beneath.map((one) =>
        el("li", {}, el("button", { type: "button", class: "open", title: one.path, onclick: () => this.open(one.path) }, one.path.slice(item.path.length + 1)),
          badge(one.state), el("span", { class: "value" }, one.value))))) : null,
    ];
  }

  #call(call, index, all) {
    const used = [["Model", call.model], ["Took", span(sum(call.service))], ["Waited", call.waited > 0.0005 ? span(call.waited) : ""],
      ["First token", call.first_token ? span(call.first_token) : ""], ["Tries", call.service.length > 1 ? call.service.length : ""],
      ["Tokens", call.input_tokens !== undefined && call.input_tokens !== null ? `${count(call.input_tokens)} + ${count(call.output_tokens)}` : ""],
      ["Cost", call.usd ? money(call.usd) : call.usd === null ? "unknown" : ""]];
    return el("section", { class: "call" }, el("h3", {}, all > 1 ? `Call ${index + 1}` : "Call of the model", " ", call.state === "done" ? null : badge(call.state)),
      rows(used), (call.asked ?? []).map((turn, at, turns) => text(turns.length > 1 ? `Prompt, ${turn.role}` : "Prompt", turn)),
      text("Reply", call.reply), failure(call.error));
  }
}

/** What an agent did, step by step; a step is followed by what the agent had cost by then, where it says so. */
function agent(item) {
  const about = item.agent ?? {};
  const known = [["Agent", about.name], ["Session", about.session], ["Turns", about.turns], ["Cost", about.cost ? money(about.cost) : ""]];
  if (!item.steps?.length && !about.name) return null;
  return el("section", { class: "agent" }, el("h3", {}, item.state === "running" ? "Agent, as it works" : "Agent"), rows(known),
    item.steps?.length ? el("ol", { class: "steps", tabindex: "0", "aria-label": "Steps" }, item.steps.map((step) =>
      el("li", { value: step.number }, step.text, step.usd ? el("small", {}, ` ${money(step.usd)}`) : null))) : null);
}

/** What was made of the item's tree: a diff for each file. */
function diffs(tree) {
  if (!tree) return null;
  const shown = new Set(tree.files.map((one) => one.file));
  const others = tree.changed.filter((name) => !shown.has(name));
  const all = tree.changed.length + tree.more;
  return el("section", { class: "diffs" }, el("h3", {}, all ? `Changed: ${count(all)} ${all === 1 ? "file" : "files"}` : "No file was changed"),
    tree.files.map((one) => el("details", { open: tree.files.length < 4 },
      el("summary", {}, el("code", {}, one.file), " ", el("small", {}, `+${count(one.added)} −${count(one.removed)}${one.cut ? ", its beginning" : ""}`)),
      patch(one.diff, `diff-${one.file}`))),
    others.length ? el("ul", { class: "files" }, others.map((name) => el("li", {}, name))) : null,
    tree.more ? el("p", { class: "muted" }, `and ${count(tree.more)} more`) : null);
}

function sum(values) {
  return values.reduce((one, other) => one + other, 0);
}

/** Where its time went: the parts as one bar, and in figures. */
function timing(item) {
  const { queued, waited, backoff, service } = item.timing;
  const parts = [["queued", queued], ["waited", waited], ["backoff", backoff], ...service.map((one, index) => [service.length > 1 ? `attempt ${index + 1}` : "service", one])].filter(([, value]) => value > 0);
  const whole = sum(parts.map(([, value]) => value)) || 1;
  const kind = (name) => (["queued", "waited", "backoff"].includes(name) ? name : "service");
  const used = item.usage ?? {};
  return el("section", { class: "timing" },
    el("div", { class: "split", role: "img", "aria-label": parts.map(([name, value]) => `${name} ${span(value)}`).join(", ") },
      parts.map(([name, value]) => el("i", { class: kind(name), title: `${name} ${span(value)}`, style: { "flex-grow": String(Math.max(value / whole, 0.004)) } }))),
    rows([...parts.map(([name, value]) => [name, span(value)]), ["lane", item.lane ?? ""], ["attempts", item.attempt > 1 ? item.attempt : ""],
      ["requests", used.requests ? count(used.requests) : ""], ["tokens", used.requests ? `${count(used.input_tokens)} + ${count(used.output_tokens)}` : ""],
      ["cost", used.usd ? money(used.usd) : ""]]));
}

function rows(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function facts(title, pairs) {
  return el("section", {}, el("h3", {}, title), rows(pairs));
}

function text(title, said) {
  if (!said || said.text === undefined) return null;
  const cut = said.characters > said.text.length;
  return el("section", {}, el("h3", {}, title, cut ? el("small", {}, ` the first ${count(said.text.length)} of ${count(said.characters)} characters`) : null),
    el("pre", { tabindex: "0", "aria-label": title }, said.text || "(empty)"));
}

function failure(error) {
  if (!error) return null;
  return el("section", { class: "failure" },
    el("h3", {}, "Error"), el("p", {}, el("b", {}, error.type), error.status ? ` (status ${error.status})` : "", error.message?.text ? `: ${error.message.text}` : ""),
    text("What came instead of a reply", error.raw), text("Standard output", error.stdout), text("Standard error", error.stderr),
    error.traceback?.text ? el("details", {}, el("summary", {}, "Traceback"), el("pre", { tabindex: "0" }, error.traceback.text)) : null);
}
