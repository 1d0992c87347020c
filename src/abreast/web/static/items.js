// The items of a run as a table: sorted, filtered and paged by the server, however many there are.
import { badge } from "./chrome.js";
import { el, fill, released, renew } from "./dom.js";
import { count, many, money, span } from "./format.js";
import { get, of, paced } from "./net.js";
import { pages } from "./runs.js";

const PAGE = 50;
const STATES = ["running", "done", "failed", "cancelled", "speculative", "crashed"];
const COLUMNS = [
  ["key", "Item", ""], ["state", "State", ""], ["", "Value", "value"], ["lane", "Lane", "more of-lane"], ["began", "Began", "number more"], ["waited", "Waited", "number more"],
  ["took", "Took", "number"], ["attempts", "Tries", "number more"], ["tokens", "Tokens", "number more"], ["usd", "Cost", "number more"],
];

export class Items {
  /** `drawn()` is called once the first page of items is there. */
  constructor(container, run, open, drawn) {
    this.run = run;
    this.drawn = drawn;
    this.paths = []; // of the page that is shown
    this.open = open;
    this.sort = "order";
    this.down = false;
    this.at = 0;
    this.error = "";
    this.show = paced(() => this.#show(), 1000);
    this.search = el("input", { type: "search", placeholder: "Search in values and replies", "aria-label": "Search items" });
    this.state = el("select", { "aria-label": "State of items" }, el("option", { value: "" }, "All states"), STATES.map((one) => el("option", { value: one }, one)));
    this.lane = el("select", { "aria-label": "Lane of items" }, el("option", { value: "" }, "All lanes"));
    this.nested = el("input", { type: "checkbox" });
    this.beneath = el("label", { class: "check", hidden: true }, this.nested, "Steps within items");
    this.which = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.only("") });
    this.found = el("span", { class: "muted", role: "status" });
    this.head = el("tr");
    this.body = el("tbody");
    this.pager = el("div", { class: "pager" });
    this.table = el("table", { class: "items" }, el("thead", {}, this.head), this.body);
    this.used = new Set(); // columns that have something to say
    const again = () => { this.at = 0; this.show.now(); };
    this.search.oninput = again;
    this.state.onchange = again;
    this.lane.onchange = again;
    this.nested.onchange = again;
    this.body.onclick = (event) => {
      const row = event.target.closest("tr[data-path]");
      if (row && !getSelection().toString()) this.open(row.dataset.path);
    };
    fill(container, el("div", { class: "filters" }, this.search, this.state, this.lane, this.beneath, this.which, this.found),
      el("div", { class: "table" }, this.table), this.pager);
    this.#heads();
  }

  /** Only the items that ended with one kind of error; "" for all. */
  only(error, label = "") {
    this.error = error;
    this.at = 0;
    this.which.hidden = error === "";
    this.which.textContent = `${label} ×`;
    this.which.setAttribute("aria-label", `Only ${label}: remove`);
    this.show.now();
  }

  #heads() {
    fill(this.head, COLUMNS.map(([name, label, number]) => {
      if (!name) return el("th", { scope: "col", class: number }, label);
      const sorted = this.sort === name;
      const turn = () => {
        this.down = sorted ? !this.down : number.includes("number");
        this.sort = name;
        this.at = 0;
        this.#heads();
        this.head.querySelector(`[data-sort=${name}]`).focus();
        this.show.now();
      };
      return el("th", { scope: "col", class: number, "aria-sort": sorted ? (this.down ? "descending" : "ascending") : "none" },
        el("button", { type: "button", class: "sort", dataset: { sort: name }, onclick: turn }, label, el("span", { "aria-hidden": "true" }, sorted ? (this.down ? " ↓" : " ↑") : "")));
    }));
  }

  async #show() {
    const said = await get(of(this.run, "/items.json"), {
      sort: this.sort, down: this.down ? 1 : "", state: this.state.value, lane: this.lane.value, q: this.search.value,
      error: this.error, at: this.at, most: PAGE, top: this.nested.checked ? "" : 1,
    });
    await released();
    this.found.textContent = `${many(said.count, "item")}${said.searched < 1 ? `, searched ${Math.round(100 * said.searched)}%` : ""}`;
    this.paths = said.items.map((item) => item.path);
    this.all = said.count;
    this.beneath.hidden &&= said.nested === 0;
    const lanes = ["", ...said.lanes];
    if (lanes.length !== this.lane.options.length) {
      const now = this.lane.value;
      fill(this.lane, lanes.map((name) => el("option", { value: name }, name || "All lanes")));
      this.lane.value = now;
    }
    this.#columns(said);
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.path : null;
    renew(this.body, said.items.length ? said.items : [null], (item) => (item ? this.#line(item) : el("tr", {}, el("td", { colspan: COLUMNS.length, class: "empty" }, "No such items."))));
    if (focused && !this.body.contains(document.activeElement)) [...this.body.children].find((row) => row.dataset.path === focused)?.querySelector("button")?.focus();
    fill(this.pager, pages({ ...said, page: PAGE }, (to) => { this.at = to; this.show.now(); }));
    this.drawn();
    if (said.searched < 1) setTimeout(() => this.show.now());
  }

  /** Hide the columns that say nothing of any item that was seen. */
  #columns({ items, lanes }) {
    const says = { lane: lanes.length > 1, waited: items.some((item) => item.waited > 0.0005), tries: items.some((item) => item.attempts > 1), tokens: items.some((item) => item.tokens), usd: items.some((item) => item.usd) };
    for (const [name, yes] of Object.entries(says)) {
      if (yes) this.used.add(name);
      this.table.classList.toggle(`no-${name}`, !this.used.has(name));
    }
  }

  /** Whether there is an item so many places after that of a path, in the order of the table. */
  has(path, by) {
    const place = this.paths.indexOf(path);
    return place >= 0 && this.at + place + by >= 0 && this.at + place + by < this.all;
  }

  /** The path of the item so many places after that of a path; turns the page if it is on another. */
  async step(path, by) {
    if (!this.has(path, by)) return null;
    let place = this.paths.indexOf(path) + by;
    if (place < 0 || place >= this.paths.length) {
      this.at = Math.max(0, this.at + by * PAGE);
      await this.#show();
      place = by > 0 ? 0 : this.paths.length - 1;
    }
    return this.paths[place] ?? null;
  }

  #line(item) {
    const number = (text, more = " more") => el("td", { class: `number${more}` }, text);
    return el("tr", { dataset: { path: item.path } },
      el("th", { scope: "row" }, el("button", { type: "button", class: "open", title: item.path }, item.key)),
      el("td", {}, badge(item.state)), el("td", { class: "value", dataset: item.state === "failed" ? { state: "failed" } : {} }, item.value || ""),
      el("td", { class: "more of-lane", title: item.lane }, item.lane), number(span(item.began)), number(item.waited > 0.0005 ? span(item.waited) : "–"),
      number(item.state === "running" ? "…" : span(item.took), ""), number(count(item.attempts)), number(item.tokens ? count(item.tokens) : "–"),
      number(item.usd ? money(item.usd) : "–"));
  }
}
