// All runs, newest first.
import { badge, bar, connected, note } from "./chrome.js";
import { el, fill, released, renew } from "./dom.js";
import { brief, count, many, moment, money, span } from "./format.js";
import { base, get, listen, of, paced } from "./net.js";

const COLUMNS = ["Run", "State", "Progress", "Cost", "Tokens", "Started", "Took"];

/** Draw the page into `main`. */
export function runs(main) {
  document.title = "Runs · abreast";
  bar([el("span", { "aria-current": "page" }, "Runs")]);
  const fields = new URLSearchParams(location.search);
  const search = el("input", { type: "search", placeholder: "Search runs", "aria-label": "Search runs", value: fields.get("q") ?? "" });
  const state = el("select", { "aria-label": "State" });
  const kind = el("select", { "aria-label": "Job" });
  const found = el("span", { class: "muted", role: "status" });
  const body = el("tbody");
  const pager = el("div", { class: "pager" });
  let at = 0;
  const head = COLUMNS.map((name, index) => el("th", { scope: "col", class: index > 1 ? "number" : "" }, name));
  fill(
    main,
    el("div", { class: "heading" }, el("h1", {}, "Runs"), found),
    el("div", { class: "filters" }, search, state, kind),
    el("div", { class: "table" }, el("table", { class: "runs" }, el("thead", {}, el("tr", {}, head)), body)),
    pager,
  );

  const show = paced(async () => {
    let said;
    try {
      said = await get(`${base}runs.json`, { q: search.value, state: state.value || fields.get("state"), kind: kind.value || fields.get("kind"), at });
    } catch (error) {
      note(error.message, "error");
      return;
    }
    await released();
    choices(state, "All states", said.states, fields.get("state"));
    choices(kind, "All jobs", said.kinds, fields.get("kind"));
    found.textContent = many(said.count, "run");
    const empty = search.value || state.value || kind.value ? "No such runs." : "No runs yet: start one, and it appears here.";
    renew(body, said.runs.length ? said.runs : [empty], (run) => (run === empty ? el("tr", {}, el("td", { colspan: COLUMNS.length, class: "empty" }, empty)) : line(run)));
    fill(pager, pages(said, (to) => { at = to; show.now(); }));
    if (said.runs.some((run) => !run.counted)) setTimeout(show, 300);
  }, 250);
  const again = () => { at = 0; fields.delete("state"); fields.delete("kind"); show.now(); };
  search.oninput = again;
  state.onchange = again;
  kind.onchange = again;
  show();
  listen(`${base}live`, show, connected);
}

function line(run) {
  const settled = run.done + run.failed + run.cancelled;
  return el(
    "tr", { dataset: { run: run.id } },
    el("th", { scope: "row" }, el("a", { href: of(run.id) }, run.id),
      el("small", {}, run.kind === run.name ? "" : run.kind, run.tags.map((tag) => el("span", { class: "tag" }, tag)))),
    el("td", {}, badge(run.state), run.reason ? el("small", { title: run.reason }, run.reason) : null),
    el("td", { class: "number" }, el("span", {}, count(settled), run.total ? ` of ${count(run.total)}` : "", run.counted ? "" : " …"),
      meter(run, settled)),
    el("td", { class: "number" }, run.tokens || run.usd ? money(run.usd, run.unpriced) : "–"),
    el("td", { class: "number" }, run.tokens ? brief(run.tokens) : "–"),
    el("td", { class: "number" }, moment(run.created)),
    el("td", { class: "number" }, span(run.took) || "–"),
  );
}

/** How much is done, failed and cancelled, as one bar. */
export function meter(counts, settled) {
  const whole = Math.max(counts.total ?? 0, settled) || 1;
  const part = (name) => counts[name] > 0 && el("i", { dataset: { state: name }, style: { "flex-grow": String((counts[name] ?? 0) / whole) } });
  const rest = settled < whole && el("i", { style: { "flex-grow": String(Math.max(0, 1 - settled / whole)) } });
  return el("span", { class: "meter", role: "img", "aria-label": `${counts.done} done, ${counts.failed} failed, ${counts.cancelled} cancelled` },
    part("done"), part("failed"), part("cancelled"), rest);
}

function choices(select, all, names, wanted) {
  const now = select.value || wanted || "";
  const given = ["", ...names];
  if (select.options.length === given.length && given.every((name, index) => select.options[index].value === name)) return;
  fill(select, given.map((name) => el("option", { value: name }, name || all)));
  select.value = given.includes(now) ? now : "";
}

/** Buttons to the pages before and after. */
export function pages({ at, count: all, page }, go) {
  if (all <= page) return null;
  return [
    el("button", { type: "button", disabled: at === 0, onclick: () => go(Math.max(0, at - page)) }, "Previous"),
    el("span", { class: "muted" }, `${count(at + 1)}–${count(Math.min(all, at + page))} of ${count(all)}`),
    el("button", { type: "button", disabled: at + page >= all, onclick: () => go(at + page) }, "Next"),
  ];
}
