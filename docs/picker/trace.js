/* The algorithms on a short row, every step of them (Milakov and Gimelshein, arXiv 1805.02867,
 * algorithms 1 to 4), in float64; naive in the type that is asked for. */

/* The nearest float16, as a float64. */
function toFloat16(x) {
  if (!Number.isFinite(x) || x === 0) return x;
  const exponent = Math.max(Math.floor(Math.log2(Math.abs(x))), -14);
  const step = 2 ** (exponent - 10);
  let units = Math.floor(x / step);
  const beyond = x / step - units;
  if (beyond > 0.5 || (beyond === 0.5 && units % 2 !== 0)) units++;
  return Math.abs(units * step) > 65504 ? Math.sign(x) * Infinity : units * step;
}
const ROUNDED = { float64: (x) => x, float32: Math.fround, float16: toFloat16 };

/* e^(x - m), where -inf beside m = -inf is nothing rather than NaN. */
const power = (x, m) => (x === -Infinity ? 0 : Math.exp(x - m));

const EMPTY = { m: -Infinity, d: 0 };
function merge(a, b) {
  const m = Math.max(a.m, b.m);
  return { m, d: a.d * power(a.m, m) + b.d * power(b.m, m) };
}
const pairOf = (elements) => {
  const m = Math.max(...elements);
  return { m, d: elements.reduce((d, x) => d + power(x, m), 0) };
};

/* The places of the k largest elements among these places, the lower of two equal ones first. */
const largestOf = (row, places, k) => [...places].sort((i, j) => row[j] - row[i] || i - j).slice(0, k);

/* The steps of one method: [{pass, title, read: [from, to], lines, m, d, factor, kept, y, reads,
 * writes}]. A line is a list of texts; {e: text} among them is e to that power. m, d and factor
 * are null where the method has none yet; y holds what is written so far, at its places; kept has
 * the places of the k largest so far. */
function traceOf(row, tile, method, type = "float64", k = 1) {
  const N = row.length, steps = [], y = [];
  const tiles = [];
  for (let from = 0; from < N; from += tile) tiles.push([from, Math.min(from + tile, N)]);
  const done = { reads: 0, writes: 0 };
  const add = (pass, title, [from, to], more, wrote = 0) => {
    done.reads += more.quiet ? 0 : to - from;
    done.writes += wrote;
    steps.push({ pass, title, read: [from, to], m: null, d: null, factor: null, kept: [], lines: [],
      ...more, y: y.slice(), ...done });
  };
  const v = valueText;
  const named = ([from, to], kind = "Tile") => `${kind} ${Math.floor(from / tile) + 1}: ` +
    row.slice(from, to).map(v).join(", ");
  const sum = (elements, m) => {
    const terms = elements.map((x) => [{ e: m === null ? v(x) : `${v(x)} ${MINUS} ${bracket(m)}` }]);
    const shown = terms.length > 6 ? [...terms.slice(0, 3), ["\u2026"], ...terms.slice(-1)] : terms;
    return shown.flatMap((term, i) => (i ? [" + ", ...term] : term));
  };
  const quotients = (from, to, top) => {
    const shown = row.slice(from, to).map((x, i) =>
      ["y = ", { e: top(x) }, ` / ${v(steps.at(-1).d)} = ${v(y[from + i])}`]);
    return shown.length > 4 ? [...shown.slice(0, 2), ["\u2026"], ...shown.slice(-1)] : shown;
  };
  const bracket = (x) => (x < 0 ? `(${v(x)})` : v(x));

  if (method === "naive") {
    const round = ROUNDED[type], x = row.map(round);
    let d = 0;
    for (const [from, to] of tiles) {
      const before = d, part = x.slice(from, to).map((value) => round(Math.exp(value)));
      for (const term of part) d = round(d + term);
      add(1, named([from, to]), [from, to], { d, lines: [
        ["d = ", from ? `${v(before)} + ` : "", ...sum(row.slice(from, to), null), ` = ${v(d)}`],
        ...(part.includes(Infinity) && type !== "float64"
          ? [[{ e: v(Math.max(...row.slice(from, to))) }, ` is too large for ${type}: it becomes \u221e`]]
          : []),
      ] });
    }
    for (const [from, to] of tiles) {
      y.push(...x.slice(from, to).map((value) => round(round(Math.exp(value)) / d)));
      add(2, named([from, to]), [from, to],
        { d, lines: quotients(from, to, v) }, to - from);
    }
    return steps;
  }

  let pair = EMPTY, pass = 1, kept = [];
  const quiet = method === "fused", kind = { split: "Part", fused: "Held tile" }[method] || "Tile";
  const quotient = (x) => (pair.m === -Infinity ? NaN : power(x, pair.m) / pair.d);
  if (method === "safe" || method === "fused") {
    let m = -Infinity;
    for (const [from, to] of tiles) {
      const before = m;
      m = Math.max(m, ...row.slice(from, to));
      add(1, named([from, to]), [from, to], { m,
        lines: [[`m = max(${v(before)}, ${row.slice(from, to).map(v).join(", ")}) = ${v(m)}`]] });
    }
    let d = 0;
    for (const [from, to] of tiles) {
      const before = d;
      d += row.slice(from, to).reduce((total, x) => total + power(x, m), 0);
      add(quiet ? 1 : 2, named([from, to], kind), [from, to], { m, d, quiet, lines: [
        ["d = ", from ? `${v(before)} + ` : "", ...sum(row.slice(from, to), m), ` = ${v(d)}`]] });
    }
    pair = { m, d };
    pass = quiet ? 1 : 3;
  } else if (method === "online" || method === "topk") {
    for (const [from, to] of tiles) {
      const elements = row.slice(from, to), before = pair;
      pair = merge(pair, pairOf(elements));
      const factor = from ? power(before.m, pair.m) : null, more = [];
      if (method === "topk") {
        const bound = kept.length === k ? row[kept.at(-1)] : null;
        if (bound !== null)
          more.push([`${elements.filter((x) => x > bound).length} of ${elements.length} above ${v(bound)}`]);
        kept = largestOf(row, [...kept, ...span(from, to)], k);
        more.push([`largest: ${kept.map((i) => v(row[i])).join(", ")}`]);
      }
      add(1, named([from, to]), [from, to], { ...pair, factor, kept, lines: [
        [`m = max(${v(before.m)}, ${elements.map(v).join(", ")}) = ${v(pair.m)}`],
        ["d = ", ...(from ? [`${v(before.d)} \u00b7 `, { e: `${v(before.m)} ${MINUS} ${bracket(pair.m)}` },
          " + "] : []), ...sum(elements, pair.m), ` = ${v(pair.d)}`], ...more] });
    }
    if (method === "topk") {
      for (const i of kept) y[i] = quotient(row[i]);
      add(1, `The ${kept.length} largest`, [0, N], { ...pair, kept, quiet: true, lines: kept.map((i) =>
        ["y = ", { e: `${v(row[i])} ${MINUS} ${bracket(pair.m)}` }, ` / ${v(pair.d)} = ${v(y[i])}, at ${i}`]) },
      kept.length);
      return steps;
    }
    pass = 2;
  } else {
    const pairs = tiles.map(([from, to]) => {
      const own = pairOf(row.slice(from, to));
      add(1, named([from, to], "Part"), [from, to], { ...own, lines: [
        [`m = max(${row.slice(from, to).map(v).join(", ")}) = ${v(own.m)}`],
        ["d = ", ...sum(row.slice(from, to), own.m), ` = ${v(own.d)}`]] });
      return own;
    });
    pair = pairs[0];
    pairs.slice(1).forEach((other, i) => {
      const before = pair;
      pair = merge(before, other);
      add(1, i === 0 ? "Parts 1 and 2 merge" : `Part ${i + 2} merges too`,
        [0, tiles[i + 1][1]], { ...pair, quiet: true, factor: power(before.m, pair.m), lines: [
          [`m = max(${v(before.m)}, ${v(other.m)}) = ${v(pair.m)}`],
          ["d = ", `${v(before.d)} \u00b7 `, { e: `${v(before.m)} ${MINUS} ${bracket(pair.m)}` },
            ` + ${v(other.d)} \u00b7 `, { e: `${v(other.m)} ${MINUS} ${bracket(pair.m)}` },
            ` = ${v(pair.d)}`]] });
    });
    pass = 2;
  }
  for (const [from, to] of tiles) {
    y.push(...row.slice(from, to).map(quotient));
    add(pass, named([from, to], kind), [from, to],
      { ...pair, quiet, lines: quotients(from, to, (x) => `${v(x)} ${MINUS} ${bracket(pair.m)}`) }, to - from);
  }
  return steps;
}
