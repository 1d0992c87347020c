// The items of a run as a table: sorted, filtered and paged by the server, however many there are.
import { badge } from "./chrome.js";
import { el, fill, released, renew } from "./dom.js";
import { count, many, money, span } from "./format.js";
import { get, of, paced } from "./net.js";
import { pages } from "./runs.js";

const PAGE = 50;
const STATES = ["running", "done", "failed", "cancelled", "speculative", "crashed"];
const COLUMNS = [
  ["key", "Item", false], ["state", "State", false], ["lane", "Lane", false], ["began", "Began", true], ["waited", "Waited", true],
  ["took", "Took", true], ["attempts", "Attempts", true], ["tokens", "Tokens", true], ["usd", "Cost", true],
];

export class Items {
  /** `above` is a promise: what stands above the table and would move its rows is drawn. */
  constructor(container, run, open, above) {
    this.run = run;
    this.above = above;
    this.open = open;
    this.sort = "order";
    this.down = false;
    this.at = 0;
    this.error = "";
    this.show = paced(() => this.#show(), 1000);
    this.search = el("input", { type: "search", placeholder: "Search items", "aria-label": "Search items" });
    this.state = el("select", { "aria-label": "State of items" }, el("option", { value: "" }, "All states"), STATES.map((one) => el("option", { value: one }, one)));
    this.lane = el("select", { "aria-label": "Lane of items" }, el("option", { value: "" }, "All lanes"));
    this.which = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.only("") });
    this.found = el("span", { class: "muted", role: "status" });
    this.head = el("tr");
    this.body = el("tbody");
    this.pager = el("div", { class: "pager" });
    const again = () => { this.at = 0; this.show.now(); };
    this.search.oninput = again;
    this.state.onchange = again;
    this.lane.onchange = again;
    this.body.onclick = (event) => {
      const row = event.target.closest("tr[data-path]");
      if (row && !getSelection().toString()) this.open(row.dataset.path);
    };
    fill(container, el("div", { class: "filters" }, this.search, this.state, this.lane, this.which, this.found),
      el("div", { class: "table" }, el("table", { class: "items" }, el("thead", {}, this.head), this.body)), this.pager);
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
      const sorted = this.sort === name;
      const turn = () => {
        this.down = sorted ? !this.down : number;
        this.sort = name;
        this.at = 0;
        this.#heads();
        this.head.querySelector(`[data-sort=${name}]`).focus();
        this.show.now();
      };
      return el("th", { scope: "col", class: number ? "number" : "", "aria-sort": sorted ? (this.down ? "descending" : "ascending") : "none" },
        el("button", { type: "button", class: "sort", dataset: { sort: name }, onclick: turn }, label, el("span", { "aria-hidden": "true" }, sorted ? (this.down ? " ↓" : " ↑") : "")));
    }));
  }

  async #show() {
    const said = await get(of(this.run, "/items.json"), {
      sort: this.sort, down: this.down ? 1 : "", state: this.state.value, lane: this.lane.value, q: this.search.value,
      error: this.error, at: this.at, most: PAGE,
    });
    await this.above;
    await released();
    this.found.textContent = many(said.count, "item");
    const lanes = ["", ...said.lanes];
    if (lanes.length !== this.lane.options.length) {
      const now = this.lane.value;
      fill(this.lane, lanes.map((name) => el("option", { value: name }, name || "All lanes")));
      this.lane.value = now;
    }
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.path : null;
    renew(this.body, said.items.length ? said.items : [null], (item) => (item ? this.#line(item) : el("tr", {}, el("td", { colspan: COLUMNS.length, class: "empty" }, "No such items."))));
    if (focused && !this.body.contains(document.activeElement)) [...this.body.children].find((row) => row.dataset.path === focused)?.querySelector("button")?.focus();
    fill(this.pager, pages({ ...said, page: PAGE }, (to) => { this.at = to; this.show.now(); }));
  }

  #line(item) {
    const number = (text) => el("td", { class: "number" }, text);
    return el("tr", { dataset: { path: item.path } },
      el("th", { scope: "row" }, el("button", { type: "button", class: "open", title: item.path }, item.key)),
      el("td", {}, badge(item.state)), el("td", { class: "of-lane" }, item.lane), number(span(item.began)), number(item.waited > 0.0005 ? span(item.waited) : "–"),
      number(item.state === "running" ? "…" : span(item.took)), number(count(item.attempts)), number(item.tokens ? count(item.tokens) : "–"),
      number(item.usd ? money(item.usd) : "–"));
  }
}
