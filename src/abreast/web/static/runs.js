// All runs, newest first, by day.
import { badge, bar, connected, note } from "./chrome.js";
import { el, fill, released, renew } from "./dom.js";
import { brief, clock, count, date, money, span } from "./format.js";
import { base, get, listen, of, paced } from "./net.js";

const COLUMNS = [["Compare", "pick"], ["Run", ""], ["State", ""], ["Done", "number"], ["Failed", "number"], ["Cancelled", "number more"], ["Cost", "number more"],
  ["Tokens", "number more"], ["Started", "number more"], ["Took", "number"]];
const ORDER = ["running", "paused", "crashed", "failed", "interrupted", "halted", "spent", "cancelled", "done"];

/** Draw the page into `main`. */
export function runs(main) {
  document.title = "Runs · abreast";
  bar([el("span", { "aria-current": "page" }, "Runs")]);
  const fields = new URLSearchParams(location.search);
  const search = el("input", { type: "search", placeholder: "Search by name, tag or reason", "aria-label": "Search runs", value: fields.get("q") ?? "" });
  const states = el("div", { class: "tabs", role: "group", "aria-label": "State" });
  const kind = el("select", { "aria-label": "Job" }, el("option", { value: "" }, "All jobs"));
  const chosen = new Set();
  const beside = el("div", { class: "beside", role: "status" });
  const body = el("tbody");
  const pager = el("div", { class: "pager" });
  let at = 0;
  let state = fields.get("state") ?? "";
  const head = COLUMNS.map(([name, kind]) => el("th", { scope: "col", class: kind }, kind === "pick" ? el("span", { class: "unseen" }, name) : name));
  const table = el("div", { class: "table", hidden: true }, el("table", { class: "runs" }, el("thead", {}, el("tr", {}, head)), body));
  fill(
    main,
    el("div", { class: "heading" }, el("h1", {}, "Runs"), beside),
    el("div", { class: "filters" }, states, search, kind),
    table,
    pager,
  );

  const compare = () => {
    const [first, second] = [...chosen].reverse(); // the older one is on the left
    fill(beside, chosen.size === 0 ? null
      : chosen.size === 1 ? el("span", { class: "muted" }, `${first}: choose another run to compare it with`)
        : el("a", { class: "button primary", href: `${base}compare?${new URLSearchParams({ first, second })}` }, `Compare ${first} with ${second}`));
  };
  const pick = (id, box) => {
    if (box.checked) chosen.add(id);
    else chosen.delete(id);
    if (chosen.size > 2) { // the one that was chosen first goes
      const [old] = chosen;
      chosen.delete(old);
      const other = [...body.querySelectorAll("tr[data-run]")].find((row) => row.dataset.run === old);
      if (other) other.querySelector("input").checked = false;
    }
    compare();
  };

  const show = paced(async () => {
    let said;
    try {
      said = await get(`${base}runs.json`, { q: search.value, state, kind: kind.value || fields.get("kind"), at });
    } catch (error) {
      note(error.message, "error");
      return;
    }
    await released();
    tabs(states, said.by_state, state, (to) => { state = to; at = 0; show.now(); });
    choices(kind, "All jobs", said.kinds, fields.get("kind"));
    const empty = search.value || state || kind.value ? "No such runs." : "No runs yet: start one, and it appears here.";
    renew(body, said.runs.length ? byDay(said.runs) : [empty], (run) => (run === empty ? wide(el("td", { colspan: COLUMNS.length, class: "empty" }, empty))
      : run.day ? wide(el("th", { colspan: COLUMNS.length, scope: "rowgroup" }, run.day), "day") : line(run, chosen, pick)));
    table.hidden = false;
    fill(pager, pages(said, (to) => { at = to; show.now(); }));
    if (said.runs.some((run) => !run.counted)) setTimeout(show, 300);
  }, 250);
  const again = () => { at = 0; fields.delete("kind"); show.now(); };
  search.oninput = again;
  kind.onchange = again;
  show();
  listen(`${base}live`, show, connected);
}

function wide(cell, kind = "") {
  return el("tr", { class: kind }, cell);
}

/** The runs with a heading before those of each day. */
function byDay(found) {
  let day = "";
  return found.flatMap((run) => {
    const now = date(run.created);
    const heads = now === day ? [] : [{ day: now }];
    day = now;
    return [...heads, run];
  });
}

/** A button for each state that there is, with its number. */
function tabs(container, counts, state, choose) {
  const names = Object.keys(counts).sort((one, other) => ORDER.indexOf(one) - ORDER.indexOf(other));
  const all = Object.values(counts).reduce((sum, one) => sum + one, 0);
  renew(container, ["", ...new Set([...names, ...(state ? [state] : [])])].map((name) => [name, name ? counts[name] ?? 0 : all, name === state]), ([name, number, now]) =>
    el("button", { type: "button", "aria-pressed": String(now), dataset: { state: name }, onclick: () => choose(name) }, name || "All", el("span", { class: "figure" }, count(number))));
}

function line(run, chosen, pick) {
  const settled = run.done + run.failed + run.cancelled;
  const number = (value, kind = "", state = "") => el("td", { class: `number ${kind}`, dataset: state && value ? { state } : {} }, value ? count(value) : "–");
  const box = el("input", { type: "checkbox", "aria-label": `Compare ${run.id}`, checked: chosen.has(run.id) });
  box.onchange = () => pick(run.id, box);
  return el(
    "tr", { dataset: { run: run.id } },
    el("td", { class: "pick" }, box),
    el("th", { scope: "row" }, el("a", { href: of(run.id) }, run.id),
      el("small", {}, run.kind === run.name ? null : el("span", {}, run.kind), run.tags.map((tag) => el("span", { class: "tag" }, tag)))),
    el("td", {}, badge(run.state), run.reason ? el("small", { title: run.reason }, run.reason) : null),
    el("td", { class: "number" }, el("span", {}, count(run.done), run.total ? el("span", { class: "muted" }, ` of ${count(run.total)}`) : ""),
      run.counted ? meter(run, settled) : el("small", { class: "counting" }, "counting")),
    number(run.failed, "", "failed"), number(run.cancelled, "more"),
    el("td", { class: "number more" }, run.tokens || run.usd ? money(run.usd, run.unpriced) : "–"),
    el("td", { class: "number more" }, run.tokens ? brief(run.tokens) : "–"),
    el("td", { class: "number more", title: date(run.created) }, clock(run.created)),
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
