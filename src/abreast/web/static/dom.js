// The few words that all parts of the page share. Text goes in as text, never as HTML: nothing that a run says can run.

/** An element: `el("a", {href: "/", class: "x", onclick: f, dataset: {k: 1}}, "text", child, [children], null)`. */
export function el(tag, attrs = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs ?? {})) set(node, name, value);
  node.append(...flat(children));
  return node;
}

/** The same for SVG. */
export function svg(tag, attrs = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attrs ?? {})) set(node, name, value);
  node.append(...flat(children));
  return node;
}

/** Replace all that is in `container`. */
export function fill(container, ...children) {
  container.replaceChildren(...flat(children));
  return container;
}

/**
 * Fill `container` with what `make` makes of each of `values`. What has not changed stays as it is: a click or a focus on
 * it outlives the news.
 */
export function renew(container, values, make) {
  const before = container.made ?? new Map();
  const made = new Map();
  const nodes = values.map((value) => {
    const text = JSON.stringify(value);
    const node = before.get(text) ?? make(value);
    made.set(text, node);
    return node;
  });
  container.made = made;
  if (nodes.length !== container.childNodes.length || nodes.some((node, at) => node !== container.childNodes[at])) container.replaceChildren(...nodes);
  return container;
}

let held = null; // while a button of the mouse, or a finger, is down: what waits for its release

addEventListener("pointerdown", (event) => { if (event.button === 0) held ??= []; }, true);
for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => setTimeout(release), true); // after the click
addEventListener("pointermove", (event) => { if (held && !event.buttons) release(); }, true); // it went up elsewhere

function release() {
  const waiting = held ?? [];
  held = null;
  for (const go of waiting) go();
}

/** Wait while something is pressed. News that move a row away between press and release would lose the click on it. */
export function released() {
  return held ? new Promise((go) => held.push(go)) : null;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

function set(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on") && typeof value === "function") node.addEventListener(name.slice(2), value);
  else if (name === "dataset") Object.assign(node.dataset, value);
  else if (name === "style" && typeof value === "object") {
    for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
  } else if (name === "href" && !/^(\/|#|\?|\.\/)/.test(value)) {
    throw new Error("links stay within the page"); // javascript: and other hosts have no place here
  } else node.setAttribute(name, value === true ? "" : value);
}
