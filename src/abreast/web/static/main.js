// Which page this is, by its address.
import { el, fill } from "./dom.js";
import { alone, base } from "./net.js";

const address = new URL(location.href);
if (address.searchParams.has("token")) { // it is a cookie by now, and has no place in the history
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}
const main = document.getElementById("main");
const run = alone ? document.documentElement.dataset.run : decodeURIComponent(address.pathname.slice(`${base}run/`.length));

try {
  if (alone || address.pathname.startsWith(`${base}run/`)) {
    const page = await import("./run.js");
    await page.run(main, run);
  } else if (address.pathname === `${base}compare`) {
    const page = await import("./compare.js");
    page.compare(main);
  } else {
    const page = await import("./runs.js");
    page.runs(main);
  }
} catch (error) {
  fill(main, el("p", { class: "empty", role: "alert" }, error.message));
}
