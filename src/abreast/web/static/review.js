// The review of work that was done in trees: what a merge would be, and the buttons that apply, undo and reject it.
import { el } from "./dom.js";
import { many, moment } from "./format.js";
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
 * What a merge would be, and the buttons that apply it, take it back and reject it after a question. `data` has the
 * `run`, the `directory`, what a part is called, `parts`, and when and why it was `rejected`.
 */
export function review(data, chosen, again, page) {
  const found = chosen.review;
  const parts = data.parts ?? "subplan";
  const look = async () => {
    chosen.review = await fetched(data.run);
    again();
  };
  const decide = async (action, title, what, yes, fields = {}) => {
    const asked = action === "reject" ? [{ name: "reason", label: "Reason", value: "rejected in the page" }] : [];
    const given = await page.ask(title, what, { yes, no: "Not now", danger: action !== "apply", fields: asked });
    if (!given) return;
    [chosen.busy, chosen.refused] = [{ apply: "Applying it: the checks may take a while.", undo: "Taking it back.", reject: "Rejecting it." }[action], null];
    again();
    await page.act(action, { ...fields, ...given }, (why) => { chosen.refused = why; });
    chosen.busy = null;
    await look();
  };
  const free = found && !found.error && !found.blocked.length;
  const idle = !chosen.busy;
  const rejected = (found && !found.error ? found : data).rejected;
  return el("article", { class: "gate", "aria-label": "Review" },
    el("h3", {}, "Review ", found?.applied ? el("span", { class: "badge", dataset: { state: "done" } }, "applied") : rejected ? el("span", { class: "badge", dataset: { state: "failed" } }, "rejected") : null),
    el("div", { class: "choices" },
      el("button", { type: "button", dataset: { key: "review" }, disabled: !idle, onclick: look }, found ? "Look again" : "Look what a merge would be"),
      idle && free && !found.applied ? el("button", { type: "button", class: "primary", dataset: { key: "apply" }, onclick: () => decide("apply", `Apply ${data.run}?`, `${rejected ? "It was rejected. " : ""}What its ${parts}s did is merged into ${data.directory}, after the checks: all of it, or nothing.`, "Apply it", rejected ? { anyway: true } : {}) }, rejected ? "Apply anyway" : "Apply") : null,
      idle && found && !found.error && !found.applied && !rejected ? el("button", { type: "button", class: "danger", dataset: { key: "reject" }, onclick: () => decide("reject", `Reject ${data.run}?`, `Nothing of it is written to ${data.directory}, and what its ${parts}s did is kept: it can still be applied.`, "Reject it") }, "Reject") : null,
      idle && found?.applied ? el("button", { type: "button", class: "danger", dataset: { key: "undo" }, onclick: () => decide("undo", `Take ${data.run} back?`, `The files of ${data.directory} become what they were before it was applied. If one was changed since, nothing is.`, "Take it back") }, "Undo") : null),
    rejected && !found?.applied ? el("p", {}, `Rejected ${moment(rejected.at)}${rejected.reason ? `: ${rejected.reason}` : ""}. Applied anyway by: `, el("code", {}, `abreast plan apply ${data.run} --anyway`)) : null,
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
