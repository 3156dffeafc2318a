// @ts-check
// Makes texts of events safe to read. What they hold is never markup: components put it into text nodes alone.

// As `printable` in eventbus/util/text.py: C0 but newline, DEL, C1, line separators, bidirectional controls, lone surrogates.
const DECEIVING =
  /[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]|[\ud800-\udfff]/gu;

/** One line that cannot reorder or hide what stands beside it; newlines become spaces. */
export function line(text) {
  return block(text).replaceAll("\n", " ").trim();
}

/** One line without the beginning that `eventbus exec` writes before the cause: "sh: exit code 3 after 2s: no space left". */
export function essence(message) {
  return line(message).replace(/^\S{1,64}: (?:exit code \d+|ended by \w+) after <?[\dhms.]+: (?=\S)/, "");
}

/** The same with its line breaks, for where a whole text is shown. */
export function block(text) {
  return String(text ?? "").replace(DECEIVING, (found) => {
    const code = found.codePointAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** A text in pieces: strings, and {href} where it names an http(s) address. */
export function pieces(text) {
  const found = [];
  let last = 0;
  for (const match of text.matchAll(/\bhttps?:\/\/[^\s<>"'`\\]+[^\s<>"'`\\.,;:!?)\]}]/g)) {
    if (match.index > last) found.push(text.slice(last, match.index));
    found.push({ href: match[0] });
    last = match.index + match[0].length;
  }
  if (last < text.length) found.push(text.slice(last));
  return found;
}

/** Quote for a POSIX shell. */
export function shellWord(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
