// The answers of a page that was written to a file: what the server would say, from what the file carries.

const NUMBERS = new Set(["began", "waited", "took", "attempts", "tokens", "usd"]);

/** A function of an address and its fields, from what was kept. */
export function answers(kept) {
  return async (address, fields) => {
    const name = address.split("/").at(-1);
    if (name === "items.json") return items(kept.items, fields);
    if (name === "item.json") return item(kept, fields);
    if (name === "job.json") return kept.job;
    if (name === "lanes.json") return kept.lanes;
    if (name === "spending.json") return kept.spending;
    if (name === "errors.json") return kept.errors;
    return kept.head;
  };
}

function items(said, { sort, down, state, lane, q, error, top, at = 0, most = 50 }) {
  const words = (q ?? "").toLowerCase();
  const rows = said.items.filter((row) => (!state || row.state === state) && (!lane || row.lane === lane) &&
    (!words || row.path.toLowerCase().includes(words) || row.value.toLowerCase().includes(words)) && (!top || !row.nested) && (error === "" || error === undefined || row.error === Number(error)));
  if (sort && sort !== "order") {
    const turn = down ? -1 : 1;
    rows.sort((one, other) => turn * (NUMBERS.has(sort) ? one[sort] - other[sort] : String(one[sort]).localeCompare(String(other[sort]))));
  } else if (down) rows.reverse();
  return { ...said, searched: 1, nested: said.items.filter((row) => row.nested).length, count: rows.length, at, items: rows.slice(at, at + most) };
}

function item(kept, { path, place }) {
  const wanted = path ?? kept.items.items.find((row) => row.place === place)?.path;
  const found = kept.details[wanted];
  if (!found) throw new Error("This file does not carry the texts of that item; abreast show prints them.");
  return found;
}
