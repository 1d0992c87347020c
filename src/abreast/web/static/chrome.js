// What stands around every page: the bar at the top, the theme, questions before something is done, short notes.
import { el, fill } from "./dom.js";
import { alone, base } from "./net.js";

const THEMES = ["auto", "light", "dark"];

/** The bar at the top, with links on the way here. */
export function bar(trail) {
  const link = el("span", { id: "link", class: "link", role: "status" });
  fill(
    document.getElementById("top"),
    el("a", { href: alone ? "#main" : base, class: "home" }, mark(), "abreast"),
    el("nav", { "aria-label": "Where you are" }, trail),
    link, themes(),
  );
}

function mark() {
  const node = el("span", { class: "mark", "aria-hidden": "true" });
  node.append(el("i"), el("i"), el("i"));
  return node;
}

function themes() {
  const button = el("button", { type: "button", class: "quiet", id: "theme" });
  const show = () => {
    const now = stored();
    if (now === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = now;
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[now];
    button.setAttribute("aria-label", `Theme: ${now}`);
    button.title = `Theme: ${now}`;
  };
  button.onclick = () => {
    const next = THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length];
    try {
      localStorage.setItem("theme", next);
    } catch { /* a file opened from disk may have no storage */ }
    document.documentElement.dataset.wanted = next;
    show();
    document.dispatchEvent(new Event("theme"));
  };
  show();
  return button;
}

function stored() {
  let kept = document.documentElement.dataset.wanted;
  try {
    kept = localStorage.getItem("theme") ?? kept;
  } catch { /* as above */ }
  return THEMES.includes(kept) ? kept : "auto";
}

/** Show whether news come in. */
export function connected(yes, why = "") {
  const link = document.getElementById("link");
  if (!link) return;
  link.dataset.state = yes ? "live" : "lost";
  link.textContent = yes ? "live" : why || "connection lost; trying again";
}

/** Ask before something is done: resolves with what was filled in, or null. */
export function ask(title, text, { yes = "Yes", no = "No", fields = [], danger = false } = {}) {
  return new Promise((resolve) => {
    const inputs = fields.map(({ name, label, value = "", kind = "text" }) =>
      el("label", {}, label, el("input", kind === "checkbox" ? { name, type: kind } : { name, type: kind, value })));
    const form = el(
      "form", { method: "dialog" },
      el("h2", {}, title), el("p", {}, text), inputs,
      el("div", { class: "buttons" },
        el("button", { type: "submit", value: "no" }, no),
        el("button", { type: "submit", value: "yes", class: danger ? "danger" : "primary" }, yes)),
    );
    const dialog = el("dialog", { class: "ask", "aria-label": title }, form);
    dialog.onclose = () => {
      const values = {};
      for (const input of form.querySelectorAll("input")) values[input.name] = input.type === "checkbox" ? input.checked : input.value;
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? values : null);
    };
    document.body.append(dialog);
    dialog.showModal();
    form.querySelector("button[value=no]").focus();
  });
}

/** Say something in passing. */
export function note(text, kind = "") {
  const box = el("div", { class: `note ${kind}`, role: kind === "error" ? "alert" : "status" }, text);
  document.body.append(box);
  setTimeout(() => box.remove(), kind === "error" ? 12_000 : 5000);
}

document.addEventListener("trouble", (event) => note(event.detail, "error"));

/** A word for a state, in its colour. */
export function badge(state) {
  return el("span", { class: "badge", dataset: { state } }, state);
}
