/* Numbers as people write and read them, and small helpers for the page's elements. */
const MINUS = "\u2212";

/* A whole number as 4096, 4,096, 64K, 16M or 2^20; null where it is none. */
function readCount(text) {
  const plain = text.trim().replace(/[\s,_]/g, "");
  const power = /^2\^(\d{1,2})$/.exec(plain);
  if (power) return 2 ** Number(power[1]);
  const parts = /^(\d{1,15})([km]?)$/i.exec(plain);
  if (!parts) return null;
  return Number(parts[1]) * { "": 1, k: 2 ** 10, m: 2 ** 20 }[parts[2].toLowerCase()];
}

/* A count from 1 to `most` in the page's address, else `otherwise`. */
function countIn(given, name, most, otherwise) {
  const n = readCount(given.get(name) ?? "");
  return n !== null && n >= 1 && n <= most ? n : otherwise;
}

/* A number as 1.5, -2e3 or -inf; null where it is none. */
function readNumber(text) {
  const plain = text.trim().replace(MINUS, "-");
  if (/^-inf(inity)?$/i.test(plain)) return -Infinity;
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) && Number.isFinite(Number(plain))
    ? Number(plain) : null;
}

const withCommas = (n) => n.toLocaleString("en-US", { maximumFractionDigits: 0 });

/* 4096 as 4K, 262145 in full: the short form only where it is exact. */
function shortCount(n) {
  if (n >= 2 ** 20 && n % 2 ** 20 === 0) return `${n / 2 ** 20}M`;
  if (n >= 2 ** 10 && n % 2 ** 10 === 0) return `${n / 2 ** 10}K`;
  return withCommas(n);
}

const counted = (n, one, many = `${one}s`) => `${withCommas(n)} ${n === 1 ? one : many}`;

function threeDigits(value, units, step) {
  let unit = 0;
  while (value >= step && unit < units.length - 1) { value /= step; unit++; }
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
/* A share with two digits that count: 0.0019, 0.97. */
const digits = (x) => x >= 0.995 ? x.toFixed(2) : String(Number(x.toPrecision(2)));
const bytesText = (bytes) => threeDigits(bytes, ["bytes", "KB", "MB", "GB", "TB"], 1000);
const memoryText = (bytes) => threeDigits(bytes, ["bytes", "KiB", "MiB", "GiB"], 1024);
const timeText = (seconds) => threeDigits(seconds * 1e9, ["ns", "\u00b5s", "ms", "s"], 1000);

/* A value of the worked row: four decimals, fewer where they would be zeros. */
function valueText(x) {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x > 0 ? "\u221e" : `${MINUS}\u221e`;
  const size = Math.abs(x);
  let text = size !== 0 && (size < 5e-4 || size >= 1e6) ? x.toExponential(1) : x.toFixed(4);
  if (Number.isInteger(x) && size < 1e6) text = String(x);
  return text.replace(/-/g, MINUS);
}

const byId = (id) => document.getElementById(id);

/* An element with attributes and children; a function among the attributes is a listener. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat());
  return element;
}

/* Says under a field what is wrong with it; "": nothing. */
function complain(input, text) {
  const note = byId(`${input.id}-note`);
  note.textContent = text;
  note.style.translate = "";
  const beyond = note.getBoundingClientRect().right - (document.documentElement.clientWidth - 10);
  if (beyond > 0) note.style.translate = `${-beyond}px`;
  if (text) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
}

/* A text field that keeps its last good value: what cannot be read is said under the field, marked
 * as invalid, and replaced by the last good value when the field is left. */
function field(id, { read, write, expected, changed }) {
  const input = byId(id);
  let value = read(input.value);
  const set = (next) => {
    value = next;
    if (document.activeElement !== input || read(input.value) !== next) input.value = write(next);
    complain(input, "");
  };
  input.addEventListener("input", () => {
    const next = read(input.value);
    if (next === null) {
      complain(input, `\u201c${input.value.slice(0, 24)}\u201d is not ${expected}`);
      return;
    }
    value = next;
    complain(input, "");
    changed(next);
  });
  input.addEventListener("blur", () => {
    input.value = write(value);
    complain(input, "");
  });
  return { set };
}

/* Radio buttons named `name`, drawn as one row of segments. */
function segments(id, name, options, chosen, changed) {
  byId(id).append(...options.map(({ value, label }) => h("label", {},
    h("input", { type: "radio", name, value, checked: value === chosen ? "" : null,
      change: () => changed(value) }),
    h("span", {}, label))));
}

const prefersStillness = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
