// The page of one run or of all, by the address.
import { el, fill } from "./dom.js";

const main = document.getElementById("main");
const run = decodeURIComponent(location.pathname.replace(/^\/run\//, ""));

async function get(address) {
  const response = await fetch(address);
  const said = await response.json();
  if (!response.ok) throw new Error(said.error ?? response.statusText);
  return said;
}

async function showJob() {
  const { kind, view } = await get(`/run/${encodeURIComponent(run)}/job.json`);
  if (view === null) return;
  const { draw } = await import(`./job-${kind}.js`);
  const page = {
    el,
    open: (key) => console.info("open", key),
    act: async (action, fields) => console.info("act", action, fields),
  };
  const container = fill(main, el("section", { id: "job" })).firstChild;
  draw(container, view, page);
}

if (location.pathname.startsWith("/run/")) showJob();
