// One run: its head, its lanes, what its job shows, what it spent, what went wrong, and its items. Live or of old.
import { colour, plot } from "./charts.js";
import { ask, badge, bar, connected, note } from "./chrome.js";
import { el, fill, released, renew } from "./dom.js";
import { brief, clock, count, date, many, money, span } from "./format.js";
import { Items } from "./items.js";
import { Panel } from "./item.js";
import { Lanes } from "./lanes.js";
import { alone, base, get, listen, of, paced, post } from "./net.js";
import { review } from "./review.js";
import { meter } from "./runs.js";

const TITLES = { matrix: "Study", workflow: "Workflow", sample: "Sample", candidates: "Candidates", plan: "Plan", serve: "Calls" };
const OWN_VIEW = new Set(["workflow", "matrix", "sample", "candidates", "plan", "serve"]);

/** Draw the page of a run into `main`. */
export async function run(main, id) {
  document.title = `${id} · abreast`;
  bar([alone ? null : el("a", { href: base }, "Runs"), el("span", { "aria-current": "page" }, id)]);
  const head = await get(of(id, ".json"));
  new Page(main, head).begin(head);
}

class Page {
  constructor(main, head) {
    this.id = head.id;
    this.actions = el("div", { class: "actions" });
    this.top = el("div", { class: "said" });
    const section = (name, title) => el("section", { id: name, "aria-label": title, hidden: true }, el("h2", {}, title), el("div"));
    const sections = {
      job: section("job", "Job"), items: section("items", "Items"), errors: section("errors", "Errors"), lanes: section("lanes-section", "Lanes"),
      spending: section("spending", "Cost and tokens"), about: section("about", "About this run"),
    };
    // What a person came for stands first: what the job shows, or, of a plain map, its items.
    this.order = OWN_VIEW.has(head.kind) || head.trees ? ["job", "items", "errors", "lanes", "spending", "about"] : ["items", "errors", "lanes", "job", "spending", "about"];
    this.sections = Object.fromEntries(this.order.map((name) => [name, sections[name]]));
    this.ready = {}; // by section: whether there is anything to show in it, once that is known
    fill(main, el("section", { class: "head", "aria-label": "Run" }, this.top, this.actions), Object.values(this.sections));
    this.items = new Items(this.#inside("items"), this.id, (which) => this.panel.open(which), () => this.#reveal("items", true));
    this.panel = new Panel(this.id, (path) => this.#address(path), this.items);
    this.lanes = new Lanes(this.#inside("lanes"), this.id, (which) => this.panel.open(which));
    this.rest = paced(() => this.#rest(), 2000);
    this.job = paced(() => this.#job(), 1000);
  }

  /**
   * A section is drawn: it is shown as soon as all above it are, so that nothing moves once it was seen. The lanes are
   * drawn when they are shown, for they need to know how wide they are.
   */
  #reveal(name, worth) {
    if (name !== null) this.ready[name] = worth;
    for (const one of this.order) {
      if (one === "lanes" && !this.ready.lanes && this.sections.lanes.hidden) {
        this.sections.lanes.hidden = false;
        this.lanes.begin(this.head);
        this.lanes.drawn.then(() => this.#reveal("lanes", true));
      }
      if (this.ready[one] === undefined) return;
      this.sections[one].hidden = !this.ready[one];
    }
  }

  #inside(name) {
    return this.sections[name].lastChild;
  }

  begin(head) {
    this.update(head);
    this.#about(head);
    this.#reveal("about", true);
    const path = new URLSearchParams(location.search).get("item");
    if (path) this.panel.open(path);
    addEventListener("popstate", () => {
      const now = new URLSearchParams(location.search).get("item");
      if (now) this.panel.open(now);
      else if (this.panel.dialog.open) this.panel.dialog.close();
    });
    listen(of(this.id, "/live"), (news) => this.update(news), connected);
  }

  /** There is news of the run. */
  update(head) {
    this.head = head;
    this.#drawHead(head);
    if (!this.sections.lanes.hidden) this.lanes.update(head);
    this.panel.update();
    if (head.read < 1 && this.shown) return; // the journal is still being read: the rest can wait for that
    this.shown = true;
    this.items.show();
    this.rest();
    this.job();
  }

  #address(path) {
    if (alone) return;
    const address = new URL(location.href);
    if ((address.searchParams.get("item") ?? "") === path) return;
    if (path) address.searchParams.set("item", path);
    else address.searchParams.delete("item");
    history.pushState(null, "", address);
  }

  #drawHead(head) {
    const { counts, usage } = head;
    const settled = counts.done + counts.failed + counts.cancelled;
    const fact = (name, value, state) => (value ? el("div", { class: "fact" }, el("dt", {}, name), el("dd", state ? { dataset: { state } } : {}, value)) : null);
    renew(this.actions, alone ? [] : this.#actions(head), (name) => this.#button(name));
    fill(
      this.top,
      el("div", { class: "title" }, el("h1", {}, head.id), badge(head.state), el("span", { class: "muted", role: "status" }, head.read < 1 ? `reading, ${Math.round(head.read * 100)}%` : "")),
      head.reason && head.reason !== head.state ? el("p", { class: "reason" }, head.reason) : null,
      el("dl", { class: "facts" },
        fact("Items", `${count(settled)}${head.total ? ` of ${count(head.total)}` : ""}`),
        fact("Running", counts.running ? count(counts.running) : "", "running"), fact("Waiting", counts.waiting ? count(counts.waiting) : ""),
        fact("Failed", counts.failed ? count(counts.failed) : "", "failed"), fact("Cancelled", counts.cancelled ? count(counts.cancelled) : ""),
        fact("Took", span(head.took ?? head.now)), fact("Cost", usage.requests ? money(usage.usd, usage.unpriced) : ""),
        fact("Tokens", usage.requests ? `${brief(usage.input)} + ${brief(usage.output)}` : ""), fact("Batches", head.batches?.text ?? ""), fact("Job", head.kind), fact("Started", `${date(head.created)}, ${clock(head.created)}`)),
      meter({ ...counts, total: head.total ?? settled + counts.running + counts.waiting }, settled),
    );
  }

  /** What can be done with the run as it is. */
  #actions({ can }) {
    return [can.resume && "Resume", can.retry && "Retry failed", can.cancel && "Cancel"].filter(Boolean);
  }

  #button(name) {
    const kind = { Resume: "primary", Cancel: "danger" }[name] ?? "";
    return el("button", { type: "button", class: kind, onclick: () => (name === "Cancel" ? this.#cancel() : this.#resume(this.head)) }, name);
  }

  async #cancel() {
    const given = await ask(`Cancel ${this.id}?`, "Its driver is asked to stop. What is recorded stays, and the run can be resumed.",
      { yes: "Cancel the run", no: "Let it run", danger: true, fields: [{ name: "reason", label: "Reason", value: "cancelled in the page" }] });
    if (given) await this.act("cancel", given);
  }

  async #resume(head) {
    const done = head.state === "done";
    const fields = !done && head.counts.failed ? [{ name: "retry_failed", label: `Run the ${many(head.counts.failed, "failed item")} again, too`, kind: "checkbox" }] : [];
    const given = await ask(`${done ? "Run what failed again" : "Go on"} with ${this.id}?`, "A new driver is started beside this page. What is recorded is not run again.", { yes: done ? "Run again" : "Go on", no: "Not now", fields });
    if (given) await this.act("resume", { retry_failed: done || given.retry_failed === true });
  }

  /** Have something done; says what was, or why not, which `refused` gets too. */
  async act(action, fields = {}, refused = () => {}) {
    try {
      const { said } = await post(of(this.id, "/act"), { action, fields });
      note(said);
      return true;
    } catch (error) {
      note(error.message, "error");
      refused(error.message);
      return false;
    }
  }

  async #rest() {
    if (this.head.read < 1) return; // they would grow while the journal is read
    const [spent, wrong] = await Promise.all([get(of(this.id, "/spending.json")), get(of(this.id, "/errors.json"))]);
    await released();
    this.#drawSpending(spent);
    this.#drawErrors(wrong.errors);
  }

  #drawSpending(spent) {
    const models = Object.entries(spent.models);
    this.#reveal("spending", models.length > 0);
    if (!models.length) return;
    const inside = this.#inside("spending");
    if (!this.charts) {
      this.charts = { money: el("div", { class: "chart" }), tokens: el("div", { class: "chart" }), table: el("div", { class: "table", tabindex: 0, role: "group", "aria-label": "By model" }) };
      fill(inside, el("div", { class: "charts" }, el("figure", {}, el("figcaption", {}, "Cost so far, in dollars"), this.charts.money),
        el("figure", {}, el("figcaption", {}, "Tokens so far"), this.charts.tokens)), this.charts.table);
    }
    const filled = (name, y, ink) => ({ x: spent.at, y, name, mode: "lines", fill: "tozeroy", fillcolor: `${colour(ink)}30`, line: { color: colour(ink), width: 1.5 } });
    const free = !spent.usd.at(-1);
    this.charts.money.parentNode.hidden = free;
    const axis = { xaxis: { ticksuffix: " s", rangemode: "tozero" }, yaxis: { rangemode: "tozero" } };
    if (!free) plot(this.charts.money, () => [filled("cost", spent.usd, "accent")], { ...axis, yaxis: { tickprefix: "$", rangemode: "tozero" }, showlegend: false });
    plot(this.charts.tokens, () => [filled("input", spent.input, "series-2"), filled("output", spent.output, "accent")], axis);
    fill(this.charts.table, el("table", {}, el("thead", {}, el("tr", {}, ["Model", "Requests", "Input tokens", "Output tokens", "Cost"].map((name, index) => el("th", { scope: "col", class: index ? "number" : "" }, name)))),
      el("tbody", {}, models.map(([name, used]) => el("tr", {}, el("th", { scope: "row" }, name), [count(used.requests), count(used.input), count(used.output), money(used.usd)].map((text) => el("td", { class: "number" }, text)))))));
  }

  #drawErrors(errors) {
    this.#reveal("errors", errors.length > 0);
    if (JSON.stringify(errors) === this.wrong) return;
    this.wrong = JSON.stringify(errors);
    fill(this.#inside("errors"), el("div", { class: "table" }, el("table", { class: "errors" },
      el("thead", {}, el("tr", {}, ["Error", "Message", "Items", "Retried"].map((name, index) => el("th", { scope: "col", class: index > 1 ? "number" : "" }, name)))),
      el("tbody", {}, errors.map((one) => {
        const short = one.type.split(".").at(-1);
        return el("tr", {}, el("th", { scope: "row" }, el("button", { type: "button", class: "open", title: one.type, onclick: () => this.#only(one, short) }, short)),
          el("td", { class: "message" }, one.message), el("td", { class: "number" }, count(one.items)), el("td", { class: "number" }, one.retried ? count(one.retried) : "–"));
      })))));
  }

  #only(one, short) {
    this.items.only(String(one.error), short);
    this.sections.items.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }

  async #job() {
    if (this.head.read < 1 && this.head.state !== "running") return;
    const { kind, view, read } = await get(of(this.id, "/job.json"));
    this.drawing ??= import(`./job-${kind}.js`);
    const { draw } = await this.drawing;
    await released();
    const name = kind === "map" ? (view.merge ? "Agents and their changes" : "Outcomes") : TITLES[kind] ?? kind;
    fill(this.sections.job.firstChild, name, read < 1 ? el("small", { role: "status" }, ` reading, ${Math.round(read * 100)}%`) : null);
    const page = { el, open: (key) => this.panel.open(key), act: (...words) => this.act(...words), ask, alone, replies: (input) => get(of(this.id, "/replies.json"), { input }) };
    if (!alone) page.review = (merge, chosen, again) => review(merge, chosen, again, page);
    draw(this.#inside("job"), view, page);
    this.opened ||= read > 0.95; // a run that goes on may write faster than it is read: it is followed at a distance
    const enough = read === 1 || (this.opened && this.head.state === "running");
    if (enough) this.#reveal("job", kind !== "map" || Boolean(view.merge) || view.worth);
    else await this.#job(); // a long journal is read at once
  }

  #about(head) {
    const rows = [["Seed", head.seed], ["Tags", head.tags.join(" ")], ["Drivers so far", head.drivers > 1 ? head.drivers : ""],
      ["Outcomes depend on timing", head.timing_dependent.join(", ")],
      ...Object.entries(head.manifest).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value, null, 1)])];
    fill(this.#inside("about"), el("details", {}, el("summary", {}, "Manifest: how it was started, and with what"),
      el("dl", { class: "manifest" }, rows.filter(([, value]) => value && value !== "null").map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("code", {}, value)))))));
  }
}
