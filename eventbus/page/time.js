// @ts-check
// Durations as kubectl writes them, and times as people read them: local, with UTC on hover.

const MINUTE = 60,
  HOUR = 3600,
  DAY = 86400;

/** As human_duration.py: 119s, 3m27s, 11m, 2d3h. */
export function duration(seconds) {
  const whole = Math.max(0, Math.trunc(seconds));
  const two = (large, sign, small, smallSign) => {
    const rest = Math.trunc((whole % large) / small);
    return `${Math.trunc(whole / large)}${sign}${rest ? rest + smallSign : ""}`;
  };
  if (whole < 2 * MINUTE) return `${whole}s`;
  if (whole < 10 * MINUTE) return two(MINUTE, "m", 1, "s");
  if (whole < 3 * HOUR) return `${Math.trunc(whole / MINUTE)}m`;
  if (whole < 8 * HOUR) return two(HOUR, "h", MINUTE, "m");
  if (whole < 2 * DAY) return `${Math.trunc(whole / HOUR)}h`;
  if (whole < 8 * DAY) return two(DAY, "d", HOUR, "h");
  return `${Math.trunc(whole / DAY)}d`;
}

const UNITS = { s: 1, m: MINUTE, h: HOUR, d: DAY };

/** Seconds of 90s, 15m, 6h, 14d; null: it is none of these. */
export function seconds(text) {
  const match = /^(\d{1,6})([smhd])$/.exec(text ?? "");
  return match ? Number(match[1]) * UNITS[match[2]] : null;
}

// Made when they are first used: that takes longer than all else here, and the list is asked for meanwhile.
const format =
  (options, made = null) =>
  (time) =>
    (made ??= new Intl.DateTimeFormat(undefined, options)).format(time);
const CLOCK = format({ hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DATE = format({ month: "short", day: "numeric" });

/** Local wall time; with its day where that is not today. */
export function clock(ms, now = Date.now()) {
  const time = new Date(ms);
  const today = time.toDateString() === new Date(now).toDateString();
  return today ? CLOCK(time) : `${DATE(time)} ${CLOCK(time)}`;
}

/** For a tooltip. */
export function utc(ms) {
  return new Date(ms)
    .toISOString()
    .replace("T", " ")
    .replace(/(\.\d+)?Z$/, " UTC");
}

export const iso = (ms) => new Date(ms).toISOString();
export const parse = (text) => (text ? Date.parse(text) : NaN);
