// Where the page gets what it shows: the server, or what a file that was written for later carries with it.

const kept = document.getElementById("kept");
let offline = null;

/** Whether this is a file of one run, with nobody behind it. */
export const alone = kept !== null;

/** The path that the page is beneath; it ends with a slash. */
export const base = document.documentElement.dataset.base ?? "/";

/** What an address says, as JSON; an error is one sentence. */
export async function get(address, fields = {}) {
  if (alone) {
    offline ??= (await import("./offline.js")).answers(JSON.parse(kept.textContent));
    return offline(address, fields);
  }
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const response = await fetch(query.size ? `${address}?${query}` : address);
  return answered(response);
}

/** Ask for something to be done; what was done, in a sentence. */
export async function post(address, body) {
  const headers = { "content-type": "application/json" };
  return answered(await fetch(address, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function answered(response) {
  const said = await response.json().catch(() => ({ error: response.statusText }));
  if (!response.ok) throw new Error(said.error ?? response.statusText);
  return said;
}

/** The address of a run, or of something of it. */
export function of(run, rest = "") {
  return `${base}run/${encodeURIComponent(run)}${rest}`;
}

/**
 * Hear of news; `heard(data)` for each, `state(connected)` when the connection comes and goes. A page that nobody sees
 * lets go of it: a browser has six connections to one server, for all its tabs.
 */
export function listen(address, heard, state = () => {}) {
  if (alone) return;
  let source = null;
  const close = () => {
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    source = new EventSource(address);
    source.addEventListener("news", (event) => heard(JSON.parse(event.data)));
    source.addEventListener("gone", (event) => {
      close();
      state(false, JSON.parse(event.data).error);
    });
    source.onopen = () => state(true);
    source.onerror = () => state(false);
  };
  if (!document.hidden) open();
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
}

/**
 * Call `work` now, and again for whatever is asked for meanwhile; never twice at once, nor without a rest between, so that
 * news cost a thirtieth of the server's time at most. What a person asked for does not wait for the rest: `.now()`.
 */
export function paced(work, least = 400) {
  let busy = false;
  let resting = null;
  let again = false;
  async function now() {
    clearTimeout(resting);
    resting = null;
    if (busy) {
      again = "now";
      return;
    }
    busy = true;
    again = false;
    const began = performance.now();
    try {
      await work();
    } catch (error) {
      // Without a server there is nothing to say: the bar at the top says that already, and it is tried again.
      if (!(error instanceof TypeError && error.message === "Failed to fetch")) document.dispatchEvent(new CustomEvent("trouble", { detail: error.message }));
    }
    busy = false;
    if (again === "now") return void now();
    resting = setTimeout(() => {
      resting = null;
      if (again) now();
    }, Math.max(least, 29 * (performance.now() - began)));
  }
  function call() {
    if (busy || resting !== null) again ||= true;
    else now();
  }
  return Object.assign(call, { now });
}
