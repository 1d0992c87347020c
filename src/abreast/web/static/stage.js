// Where a job's view is drawn, again and again: what was chosen, focused, opened and scrolled stays as it was.
import { el, fill } from "./dom.js";

/**
 * Draw `data` into `container` by `picture(data, chosen, again, page)`, which gives nodes; nothing is done if the data is
 * what it was. If it says that there is something to `merge`, the page's review of that follows. `chosen` is an object of the view's own, which lives as long as the container; `again()` draws it anew.
 * Elements are known again by `data-key`, scrolling ones by `data-scroll`.
 */
export function stage(container, data, page, picture) {
  const text = JSON.stringify(data);
  const held = (container.held ??= { chosen: {} });
  if (held.text === text) return;
  held.text = text;
  const again = () => {
    const before = look(container);
    fill(container, [picture(data, held.chosen, again, page), data.merge && page.review?.(data.merge, held.chosen, again)]);
    restore(container, before);
  };
  again();
}

function look(container) {
  const active = container.contains(document.activeElement) ? document.activeElement.closest("[data-key]") : null;
  const folded = [...container.querySelectorAll("details[data-key]")].map((one) => [one.dataset.key, one.open]);
  const scrolled = [...container.querySelectorAll("[data-scroll]")].map((one) => [one.dataset.scroll, one.scrollLeft, one.scrollTop]);
  return { key: active?.dataset.key, folded: new Map(folded), scrolled };
}

function restore(container, before) {
  if (!before.scrolled.length) {
    for (const one of container.querySelectorAll("[data-centre]")) one.scrollLeft = (one.scrollWidth - one.clientWidth) / 2;
  }
  for (const one of container.querySelectorAll("details[data-key]")) {
    if (before.folded.has(one.dataset.key)) one.open = before.folded.get(one.dataset.key);
  }
  for (const [name, left, top] of before.scrolled) {
    const one = find(container, "scroll", name);
    if (one) Object.assign(one, { scrollLeft: left, scrollTop: top });
  }
  if (before.key) find(container, "key", before.key)?.focus({ preventScroll: true });
}

function find(container, name, value) {
  return [...container.querySelectorAll(`[data-${name}]`)].find((one) => one.dataset[name] === value);
}

/** What makes a part of a drawing a button: reached and pressed by keyboard too, with arrows to its neighbours. */
export function press(key, label, chosen, work) {
  return {
    class: "press", tabindex: 0, role: "button", "aria-label": label, "aria-pressed": String(chosen), dataset: { key },
    onclick: work,
    onkeydown: (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        work();
      } else if (event.key.startsWith("Arrow")) {
        move(event);
      }
    },
  };
}

function move(event) {
  const here = event.currentTarget.getBoundingClientRect();
  const [across, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  const middle = (box) => [box.left + box.width / 2, box.top + box.height / 2];
  const [x, y] = middle(here);
  let best = null;
  for (const one of event.currentTarget.closest("svg").querySelectorAll(".press")) {
    const [left, top] = middle(one.getBoundingClientRect());
    const along = (left - x) * across + (top - y) * down;
    const aside = Math.abs((left - x) * down) + Math.abs((top - y) * across);
    if (along > 1 && (!best || along + 3 * aside < best.far)) best = { one, far: along + 3 * aside };
  }
  if (!best) return;
  event.preventDefault();
  best.one.focus();
}

/** Facts in a row, those that there are: `facts([["Branches", 4], ...])`. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "jobfacts" }, known.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** What was left out, if anything was. */
export function cut(said) {
  return said ? el("p", { class: "muted cut" }, said) : null;
}

/** Choices of which one holds. */
export function choices(name, options, chosen, work) {
  return el("div", { class: "choices", role: "group", "aria-label": name }, el("span", { class: "muted" }, name),
    options.map(([value, label]) => el("button", {
      type: "button", "aria-pressed": String(value === chosen), dataset: { key: `${name}:${value}` }, onclick: () => work(value),
    }, label)));
}

/** As many characters as fit, at about so many pixels each. */
export function fit(text, width, each = 7.2) {
  const most = Math.max(3, Math.floor(width / each));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** A diff, or a text with markers, each line by its kind. */
export function patch(text, key) {
  const kinds = [[/^(\+\+\+|---|diff |index |@@)/, "head"], [/^(<{7}|\|{7}|={7}|>{7})/, "head"], [/^\+/, "added"], [/^-/, "removed"]];
  return el("pre", { class: "patch", tabindex: 0, dataset: { scroll: key } }, text.split("\n").map((line) => el("span", { dataset: { line: kinds.find(([form]) => form.test(line))?.[1] ?? "" } }, `${line}\n`)));
}
