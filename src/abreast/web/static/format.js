// Numbers, times and money as people read them; figures line up, so none changes its number of digits needlessly.

const whole = new Intl.NumberFormat("en");

/** 12,345 */
export function count(value) {
  return value === null || value === undefined ? "" : whole.format(value);
}

/** 3 ms, 1.24 s, 2 min 05 s, 3 h 04 min */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds === 0) return "0 s";
  if (seconds < 0.0995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.round(seconds) % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** $0.0123; an unknown price is never zero. */
export function money(usd, unpriced = 0) {
  if (!usd && unpriced) return "unknown";
  if (!usd) return "–";
  const digits = usd >= 100 ? 0 : usd >= 1 ? 2 : usd >= 0.01 ? 4 : 6;
  return `${unpriced ? "≥ " : ""}$${usd.toFixed(digits)}`;
}

/** 940, 12.3 k, 4.56 M */
export function brief(value) {
  if (!value) return value === 0 ? "0" : "";
  if (value < 10_000) return count(Math.round(value));
  return value < 1e6 ? `${(value / 1e3).toFixed(1)} k` : `${(value / 1e6).toFixed(2)} M`;
}

/** Today by its time, any other day with its date. */
export function moment(seconds) {
  if (!seconds) return "";
  const when = new Date(seconds * 1000);
  const time = when.toLocaleTimeString("en-GB");
  const day = `${when.getFullYear()}-${String(when.getMonth() + 1).padStart(2, "0")}-${String(when.getDate()).padStart(2, "0")}`;
  return when.toDateString() === new Date().toDateString() ? time : `${day} ${time}`;
}

/** The time of day. */
export function clock(seconds) {
  return seconds ? new Date(seconds * 1000).toLocaleTimeString("en-GB") : "";
}

/** The day: Today, Yesterday, or Saturday 14 November 2026. */
export function date(seconds) {
  const when = new Date(seconds * 1000);
  const days = Math.round((midnight(new Date()) - midnight(when)) / 86_400_000);
  const full = when.toLocaleDateString("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });
  return days === 0 ? "Today" : days === 1 ? "Yesterday" : full;
}

function midnight(when) {
  return new Date(when.getFullYear(), when.getMonth(), when.getDate()).getTime();
}

/** The word of a unit with its number: 1 item, 2 items. */
export function many(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
