// Two runs side by side: their facts, what they were started with, and their items by key.
import { badge, bar, note } from "./chrome.js";
import { el, fill, renew } from "./dom.js";
import { brief, clock, count, date, many, money, span } from "./format.js";
import { base, get, of, paced } from "./net.js";
import { pages } from "./runs.js";

const KINDS = [["", "All"], ["different", "Different"], ["same", "Same"]];

/** Draw the page into `main`. */
export function compare(main) {
  const asked = new URLSearchParams(location.search);
  const [first, second] = [asked.get("first") ?? "", asked.get("second") ?? ""];
  document.title = `${first} and ${second} · abreast`;
  bar([el("a", { href: base }, "Runs"), el("span", { "aria-current": "page" }, "Compare")]);
  const top = el("div", { class: "table" });
  const settings = el("div");
  const tabs = el("div", { class: "tabs", role: "group", "aria-label": "Which items" });
  const search = el("input", { type: "search", placeholder: "Search by key", "aria-label": "Search items" });
  const found = el("span", { class: "muted", role: "status" });
  const body = el("tbody");
  const pager = el("div", { class: "pager" });
  const below = el("section", { "aria-label": "Items", hidden: true }, el("h2", {}, "Items"), el("div", { class: "filters" }, tabs, search, found),
    el("div", { class: "table" }, el("table", { class: "compared" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Item"), el("th", { scope: "col" }, first), el("th", { scope: "col" }, second))), body)), pager);
  fill(main, el("div", { class: "heading" }, el("h1", {}, "Compare")), el("section", { class: "head", "aria-label": "Runs" }, top, settings), below);
  let [only, at] = [asked.get("only") ?? "", 0];
  const show = paced(async () => {
    let said;
    try {
      said = await get(`${base}compare.json`, { first, second, only, q: search.value, at });
    } catch (error) {
      note(error.message, "error");
      return;
    }
    fill(top, facts(said));
    fill(settings, started(said));
    const { counts } = said;
    const figures = { "": counts.same + counts.different + counts.first + counts.second, different: counts.different + counts.first + counts.second, same: counts.same };
    renew(tabs, KINDS.map(([name, label]) => [name, label, figures[name], name === only]), ([name, label, number, now]) => el("button", {
      type: "button", "aria-pressed": String(now), onclick: () => { only = name; at = 0; show.now(); },
    }, label, el("span", { class: "figure" }, count(number))));
    found.textContent = said.read < 1 ? `reading, ${Math.round(said.read * 100)}%` : [many(said.count, "item"),
      counts.first ? `${count(counts.first)} only in ${first}` : "", counts.second ? `${count(counts.second)} only in ${second}` : "", said.cut ? "the first 200,000 of each" : ""].filter(Boolean).join(" · ");
    renew(body, said.items.length ? said.items : [null], (item) => (item ? line(item, first, second) : el("tr", {}, el("td", { colspan: 3, class: "empty" }, "No such items."))));
    fill(pager, pages(said, (to) => { at = to; show.now(); }));
    below.hidden = false;
    if (said.read < 1) setTimeout(show, 100);
  }, 200);
  search.oninput = () => { at = 0; show.now(); };
  show();
}

/** A row for each fact, a column for each run. */
function facts({ first, second }) {
  const rows = [
    ["State", (run) => badge(run.state)], ["Started", (run) => `${date(run.created)}, ${clock(run.created)}`], ["Took", (run) => span(run.took) || "–"],
    ["Done", (run) => `${count(run.done)}${run.total ? ` of ${count(run.total)}` : ""}`], ["Failed", (run) => count(run.failed) || "–"], ["Cancelled", (run) => count(run.cancelled) || "–"],
    ["Cost", (run) => (run.tokens || run.usd ? money(run.usd, run.unpriced) : "–")], ["Tokens", (run) => (run.tokens ? brief(run.tokens) : "–")],
  ];
  const worth = rows.filter(([name]) => !["Cancelled", "Cost", "Tokens"].includes(name) || [first, second].some((run) => ({ Cancelled: run.cancelled, Cost: run.tokens || run.usd, Tokens: run.tokens })[name]));
  return el("table", { class: "sides" }, el("thead", {}, el("tr", {}, el("td", {}), [first, second].map((run) => el("th", { scope: "col" }, el("a", { href: of(run.id) }, run.id), " ", el("small", {}, run.kind))))),
    el("tbody", {}, worth.map(([name, text]) => el("tr", {}, el("th", { scope: "row" }, name), [first, second].map((run) => el("td", {}, text(run)))))));
}

function started(said) {
  if (!said.settings.length) return el("p", { class: "muted" }, "Both were started with the same settings.");
  return el("details", {}, el("summary", {}, `${many(said.settings.length, "setting")} ${said.settings.length === 1 ? "differs" : "differ"}: ${said.settings.slice(0, 6).map((one) => one.name).join(", ")}`),
    el("div", { class: "table", tabindex: 0 }, el("table", { class: "sides" }, el("tbody", {}, said.settings.map((one) =>
      el("tr", {}, el("th", { scope: "row" }, one.name), el("td", {}, el("code", {}, one.first || "–")), el("td", {}, el("code", {}, one.second || "–"))))))));
}

function line(item, first, second) {
  const cell = (side, run) => (side === null ? el("td", { class: "muted" }, "–")
    : el("td", {}, el("a", { class: "said", href: `${of(run)}?${new URLSearchParams({ item: side.path })}` }, side.value || "(empty)"),
      el("small", {}, side.state === "done" ? "" : badge(side.state), " ", span(side.took), side.usd ? ` · ${money(side.usd)}` : "")));
  return el("tr", { dataset: { kind: item.kind } }, el("th", { scope: "row" }, item.key.replaceAll("%2F", "/"), item.kind === "same" ? null : el("small", {}, item.kind === "different" ? "differs" : "only in one")),
    cell(item.first, first), cell(item.second, second));
}
