// Charts by Plotly, which comes with the installed package. It is large, so it is fetched when a chart is first seen.
import { el } from "./dom.js";
import { base } from "./net.js";

let loading = null;

/** Plotly, once; rejects if the page was installed without it. */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    if (globalThis.Plotly) return resolve(globalThis.Plotly);
    const script = el("script", { src: `${base}plotly.js` });
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => reject(new Error("charts need Plotly: `abreast doctor` says how to install it"));
    document.head.append(script);
  });
  return loading;
}

/** A colour of the theme, by the name of its variable: `ink`, `muted`, `line`, `accent`, `done`, `failed`, ... */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Several colours that go together, for series without a meaning of their own. */
export function series() {
  return [1, 2, 3, 4, 5, 6].map((number) => colour(`series-${number}`));
}

/** Draw traces into `container`, in the colours of the theme, again whenever that changes; drawn when it is seen. */
export function plot(container, traces, layout = {}) {
  const held = (container.plotted ??= { drawn: false });
  Object.assign(held, { traces, layout });
  if (held.drawn) return draw(container);
  if (held.waits) return undefined;
  held.waits = true;
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    held.drawn = true;
    draw(container);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(container));
    document.addEventListener("theme", () => draw(container));
  }, { rootMargin: "200px" }).observe(container);
  return undefined;
}

async function draw(container) {
  let library;
  try {
    library = await plotly();
  } catch (error) {
    container.textContent = error.message;
    return;
  }
  const { traces, layout } = container.plotted;
  const made = typeof traces === "function" ? traces() : traces;
  const axis = { gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line"), automargin: true };
  const given = typeof layout === "function" ? layout() : layout;
  await library.react(container, made, {
    margin: { l: 48, r: 12, t: 8, b: 32 }, height: 220, paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("muted") },
    colorway: series(), hovermode: "x unified", legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    hoverlabel: { bgcolor: colour("paper"), bordercolor: colour("line"), font: { color: colour("ink") } },
    ...given, xaxis: { ...axis, ...given.xaxis }, yaxis: { ...axis, ...given.yaxis },
  }, { displayModeBar: false, responsive: true });
  container.dataset.drawn = "true";
}
