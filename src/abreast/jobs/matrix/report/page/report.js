"use strict";
// Everything that came from a run is shown by textContent: nothing in it is ever read as HTML.
(() => {
  const PAGE = 50;
  const TEXTS = ["prompt", "output", "value", "truth", "error"];
  const at = (id) => document.getElementById(id);

  function make(tag, text, attributes) {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    return made;
  }

  async function unpack(id) {
    const packed = atob(at(id).textContent);
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i += 1) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function trouble(error) {
    const told = at("trouble");
    told.hidden = false;
    told.textContent = `Parts of this page can't be shown by this browser: ${error.message}`;
    if (window.console) console.error(error);
  }

  // --- light, dark, or as the system has it

  const THEMES = ["system", "light", "dark"];

  function themes() {
    const button = at("theme");
    let now = "system";
    try { now = localStorage.getItem("abreast-theme") || now; } catch { /* a file may have no storage */ }
    const wear = (name) => {
      now = THEMES.includes(name) ? name : "system";
      if (now === "system") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = now;
      button.textContent = `Theme: ${now}`;
      try { localStorage.setItem("abreast-theme", now); } catch { /* as above */ }
    };
    wear(now);
    button.hidden = false;
    button.addEventListener("click", () => wear(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]));
  }

  // --- plots, each drawn when it comes near

  async function plots() {
    const figures = JSON.parse(at("figures-data").textContent);
    if (!Object.keys(figures).length) return;
    const script = make("script", await unpack("plotly-data"));
    document.head.append(script);
    const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
    const draw = (place) => {
      if (place.dataset.drawn) return;
      place.dataset.drawn = "yes";
      const figure = figures[place.id];
      Plotly.newPlot(place, figure.data, figure.layout, config);
    };
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
    }, { rootMargin: "400px" });
    const places = document.querySelectorAll(".plot");
    for (const place of places) seen.observe(place);
    window.addEventListener("beforeprint", () => {
      for (const hidden of document.querySelectorAll("details")) hidden.open = true;
      for (const place of places) { draw(place); Plotly.Plots.resize(place); }
    });
    document.documentElement.dataset.plots = "ready";
  }

  // --- cells

  const number = (value, digits) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: Number.isInteger(value) ? 0 : Math.min(digits || 0, 3) }));
  const time = (value) => (value >= 1 ? `${number(value, 2)} s` : `${number(Math.round(value * 1000))} ms`);
  const money = (value) => (value === null ? "–" : `$${value.toPrecision(3)}`);

  async function cells() {
    const kept = JSON.parse(await unpack("cells-data"));
    const lower = kept.texts.map((text) => text.toLowerCase());
    const all = kept.cells.map((facts) => {
      const cell = {};
      kept.fields.forEach((name, place) => { cell[name] = facts[place]; });
      [cell.texts, cell.steps] = facts.slice(kept.fields.length);
      return cell;
    });
    const scores = [...new Set(all.flatMap((cell) => [...Object.keys(cell.scores), ...Object.keys(cell.score_errors)]))].sort();
    const columns = ["Input", "Model", "Strategy", "Repeat", "State", ...scores, "Service", "Cost"];
    let shown = all;
    let browsed = all; // those that were shown when the first cell was opened: typing may not yet have had its effect
    let page = 0;
    let opened = -1;

    const options = (id, values) => { for (const value of values) at(id).append(make("option", value, { value })); };
    options("by-model", [...new Set(all.filter((cell) => !cell.control).map((cell) => cell.model))].sort());
    options("by-strategy", [...new Set(all.map((cell) => cell.strategy))].sort());
    const orders = new Map([["service time, longest first", (cell) => -cell.service_s], ["cost, dearest first", (cell) => -(cell.usd ?? -1)]]);
    for (const score of scores) orders.set(`${score}, lowest first`, (cell) => cell.scores[score] ?? -1);
    options("order", orders.keys());

    const head = make("tr");
    columns.forEach((name, place) => head.append(make("th", name, { scope: "col", ...(place > 4 || place === 3 ? { class: "n" } : {}) })));
    at("list").tHead.append(head);

    function matching() {
      const [model, strategy, state] = ["by-model", "by-strategy", "by-state"].map((id) => at(id).value);
      const text = at("by-text").value.trim().toLowerCase();
      const hits = text ? new Set(lower.flatMap((one, place) => (one.includes(text) ? [place] : []))) : null;
      const found = all.filter((cell) => (!model || (cell.model === model && !cell.control)) && (!strategy || cell.strategy === strategy)
        && (!state || (state === "control" ? cell.control : cell.state === state && !cell.control))
        && (!hits || cell.texts.some((place) => hits.has(place)) || cell.steps.some((step) => hits.has(step[1]) || hits.has(step[2]))
          || cell.input.toLowerCase().includes(text) || cell.cell.toLowerCase().includes(text) || (cell.error_type || "").toLowerCase().includes(text)));
      const order = orders.get(at("order").value);
      return order ? found.sort((a, b) => order(a) - order(b)) : found;
    }

    function line(cell, place) {
      const made = make("tr");
      const first = make("th", null, { scope: "row" });
      const button = make("button", cell.input, { type: "button", class: "open" });
      button.setAttribute("aria-label", `Open ${cell.model}, ${cell.strategy}, ${cell.input}, repeat ${cell.repeat}`);
      button.addEventListener("click", () => open(place));
      first.append(button);
      made.append(first, make("td", cell.model), make("td", cell.strategy), make("td", cell.repeat, { class: "n" }),
        make("td", cell.control ? "control" : cell.state, { class: `state-${cell.state}` }));
      for (const score of scores) made.append(make("td", cell.score_errors[score] ? "error" : number(cell.scores[score], 3), { class: "n" }));
      made.append(make("td", time(cell.service_s), { class: "n" }), make("td", money(cell.usd), { class: "n" }));
      return made;
    }

    function list() {
      const last = Math.max(0, Math.ceil(shown.length / PAGE) - 1);
      page = Math.min(Math.max(page, 0), last);
      at("list").tBodies[0].replaceChildren(...shown.slice(page * PAGE, (page + 1) * PAGE).map((cell, place) => line(cell, page * PAGE + place)));
      at("count").textContent = shown.length === all.length ? `${number(all.length)} cells` : `${number(shown.length)} of ${number(all.length)} cells`;
      at("page").textContent = `Page ${page + 1} of ${last + 1}`;
      at("before").disabled = page === 0;
      at("after").disabled = page === last;
      at("pages").hidden = last === 0;
    }

    let waiting = 0;

    function filter() {
      clearTimeout(waiting);
      shown = matching();
      page = 0;
      list();
    }

    // --- one cell

    function section(body, title, text, wrong) {
      if (text === null || text === undefined) return;
      body.append(make("h3", title), make("pre", text === "" ? "(empty)" : text, wrong ? { class: "wrong" } : {}));
    }

    function facts(body, title, pairs) {
      const held = make("dl", null, { class: "facts" });
      for (const [name, value] of pairs) {
        const pair = make("div");
        pair.append(make("dt", name), make("dd", value));
        held.append(pair);
      }
      if (pairs.length) body.append(make("h3", title), held);
    }

    function open(place) {
      if (!at("cell").open) browsed = shown;
      opened = place;
      const cell = browsed[place];
      const texts = Object.fromEntries(TEXTS.map((name, number_) => [name, cell.texts[number_] === null ? null : kept.texts[cell.texts[number_]]]));
      const body = make("div");
      facts(body, "Scores", scores.filter((score) => score in cell.scores || score in cell.score_errors)
        .map((score) => [score, cell.score_errors[score] ? `error: ${cell.score_errors[score]}` : number(cell.scores[score], 6)]));
      section(body, cell.error_type || "Error", texts.error, true);
      section(body, "Prompt", texts.prompt);
      section(body, "Reply", texts.output);
      section(body, "Value", texts.value);
      section(body, "Truth", texts.truth);
      cell.steps.forEach(([name, prompt, output, taken, given, usd, service], step) => {
        body.append(make("h3", `Step ${step + 1}: ${name}`), make("p", `${time(service)} · ${number(taken)} tokens in, ${number(given)} out · ${money(usd)}`, { class: "note" }));
        body.append(make("pre", kept.texts[prompt]), make("p", "gave", { class: "note" }), make("pre", kept.texts[output]));
      });
      facts(body, "Times and usage", [
        ["service", time(cell.service_s)], ["queue", time(cell.queue_s)], ["hold (429)", time(cell.hold_s)], ["backoff", time(cell.backoff_s)],
        ["wall", time(cell.wall_s)], ["attempts", cell.attempts], ["in flight when sent", cell.in_flight], ["lane", cell.lane],
        ["tokens in", number(cell.input_tokens)], ["tokens out", number(cell.output_tokens)], ["cost", money(cell.usd) + (cell.estimated ? " (estimated)" : "")], ["cell", cell.cell],
      ]);
      at("cell-title").textContent = `${cell.model} · ${cell.strategy} · ${cell.input} · repeat ${cell.repeat} · ${cell.state}`;
      at("cell-body").replaceChildren(body);
      at("earlier").disabled = place === 0;
      at("later").disabled = place === browsed.length - 1;
      if (!at("cell").open) at("cell").showModal();
      at("cell").scrollTop = 0;
    }

    // A choice shows at once, so that a click right after it meets the row it was meant for; typing may go on.
    at("filters").addEventListener("input", (event) => {
      clearTimeout(waiting);
      if (event.target instanceof HTMLSelectElement) filter();
      else waiting = setTimeout(filter, 120);
    });
    at("filters").addEventListener("reset", () => setTimeout(filter));
    at("filters").addEventListener("submit", (event) => { event.preventDefault(); filter(); });
    at("before").addEventListener("click", () => { page -= 1; list(); });
    at("after").addEventListener("click", () => { page += 1; list(); });
    at("close").addEventListener("click", () => at("cell").close());
    at("earlier").addEventListener("click", () => open(opened - 1));
    at("later").addEventListener("click", () => open(opened + 1));
    at("cell").addEventListener("click", (event) => { if (event.target === at("cell")) at("cell").close(); });
    at("cell").addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft" && opened > 0) open(opened - 1);
      if (event.key === "ArrowRight" && opened < browsed.length - 1) open(opened + 1);
    });
    at("filters").hidden = false;
    at("list").hidden = false;
    list();
    document.documentElement.dataset.cells = "ready";
  }

  themes();
  plots().catch(trouble);
  cells().catch((error) => { at("count").textContent = "The cells can't be unpacked."; trouble(error); });
})();
