// The review of work that was done in trees: what a merge would be, and the buttons that apply it and take it back.
import { el } from "./dom.js";
import { many } from "./format.js";
import { get, of } from "./net.js";
import { patch } from "./stage.js";

/** What the server says of a run's results; an error is a sentence of it. */
export async function fetched(run, fields = {}) {
  try {
    return await get(of(run, "/review.json"), fields);
  } catch (error) {
    return { error: error.message };
  }
}

/**
 * What a merge would be, and the buttons that apply it and take it back after a question. `data` has the `run`, the
 * `directory` and what a part is called, `parts`.
 */
export function review(data, chosen, again, page) {
  const found = chosen.review;
  const parts = data.parts ?? "subplan";
  const look = async () => {
    chosen.review = await fetched(data.run);
    again();
  };
  const decide = async (action, title, what, yes) => {
    if (!(await page.ask(title, what, { yes, no: "Not now", danger: action === "undo" }))) return;
    [chosen.busy, chosen.refused] = [action === "apply" ? "Applying it: the checks may take a while." : "Taking it back.", null];
    again();
    await page.act(action, {}, (why) => { chosen.refused = why; });
    chosen.busy = null;
    await look();
  };
  const free = found && !found.error && !found.blocked.length;
  const idle = !chosen.busy;
  return el("article", { class: "gate", "aria-label": "Review" },
    el("h3", {}, "Review ", found?.applied ? el("span", { class: "badge", dataset: { state: "done" } }, "applied") : null),
    el("div", { class: "choices" },
      el("button", { type: "button", dataset: { key: "review" }, disabled: !idle, onclick: look }, found ? "Look again" : "Look what a merge would be"),
      idle && free && !found.applied ? el("button", { type: "button", class: "primary", dataset: { key: "apply" }, onclick: () => decide("apply", `Apply ${data.run}?`, `What its ${parts}s did is merged into ${data.directory}, after the checks: all of it, or nothing.`, "Apply it") }, "Apply") : null,
      idle && found?.applied ? el("button", { type: "button", class: "danger", dataset: { key: "undo" }, onclick: () => decide("undo", `Take ${data.run} back?`, `The files of ${data.directory} become what they were before it was applied. If one was changed since, nothing is.`, "Take it back") }, "Undo") : null),
    found?.error ? el("p", { class: "wrong" }, found.error) : null,
    chosen.busy ? el("p", { role: "status" }, chosen.busy) : null,
    chosen.refused ? el("p", { class: "wrong" }, chosen.refused) : null,
    free ? el("p", { class: "muted" }, `${many(found.merged, parts)} can be merged.`) : null,
    found?.blocked?.length ? [el("p", {}, "In the way of a merge:"), el("ul", { class: "files" }, found.blocked.map((line) => el("li", {}, line)))] : null,
    found?.conflicts?.map((one) => el("details", { dataset: { key: `conflict-${one.file}` } },
      el("summary", {}, el("code", {}, one.file), " ", el("small", {}, `${one.kind}, ${one.parts.join(" and ")}`)),
      one.marked ? patch(one.marked, `marked-${one.file}`) : el("p", { class: "muted" }, one.detail),
      el("p", {}, "Choose with: ", el("code", {}, `abreast plan resolve ${data.run} ${one.file} --take ${[...one.parts.filter((part) => part !== "source"), "source", "edit"].join("|")}`)))),
    found?.answered?.length ? [el("p", { class: "muted" }, "Asked of their owners, and left out:"), el("ul", { class: "files" }, found.answered.map((line) => el("li", {}, line)))] : null);
}
