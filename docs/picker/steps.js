/* The tab that runs a row step by step. */
const MOST_ELEMENTS = 24;
const STORY = {
  naive: "The exponentials are added as they are. This works until one of them overflows.",
  safe: "The maximum first, then the sum, then the quotient: three reads, and nothing overflows.",
  fused: "As safe, but the row is read once: it stays on the chip, where the sum and the quotients find it.",
  online: "One read finds m and d. Whenever the maximum m rises, d is multiplied by e to the " +
    "power of old m minus new m. The second read writes the results.",
  split: "Each part finds its own pair (m, d) without waiting for the other parts. The pairs merge, in " +
    "any order. Then each part is read again, and its results are written.",
  topk: "The running pair, and beside it the k largest so far. An element that is not above the smallest " +
    "of them costs one comparison. The row is read once, and only k numbers are written.",
};
const rowText = (row) => row.map((x) => (x === -Infinity ? "-inf" : x)).join(" ");

/* A row like "1 2 3" or "1, 2, -inf": {row} or {error}. */
function readRow(text) {
  const words = text.split(/[\s,;]+/).filter(Boolean);
  const row = words.map(readNumber), wrong = words.find((_, i) => row[i] === null);
  if (wrong !== undefined)
    return { error: `\u201c${wrong.slice(0, 24)}\u201d is not a number. The row stays as it was.` };
  if (!row.length) return { error: "A row has at least one number. The row stays as it was." };
  if (row.length > MOST_ELEMENTS)
    return { error: `${row.length} numbers: at most ${MOST_ELEMENTS} fit here. The row stays as it was.` };
  return { row };
}

/* The view in the page's address. It says no more than the method needs. */
function stepsAddress({ method, tile, row, type, k }, now) {
  const more = { naive: { type }, topk: { k } }[method];
  return `#steps&${new URLSearchParams({ method, tile, row: rowText(row), ...more, step: now + 1 })}`;
}

/* Takes the view from the address. Returns the number of the step. */
function takeStepsAddress(state) {
  const given = new URLSearchParams(location.hash.slice(1));
  state.row = readRow(given.get("row") ?? "").row ?? state.row;
  for (const [name, known] of [["method", STORY], ["type", ROUNDED]])
    if (Object.hasOwn(known, given.get(name))) state[name] = given.get(name);
  for (const name of ["tile", "k"]) state[name] = countIn(given, name, MOST_ELEMENTS, state[name]);
  return countIn(given, "step", Infinity, 1) - 1;
}

function stepsView() {
  const state = { row: [1, 2, 3, 6, 2, 1], tile: 3, method: "online", type: "float16", k: 2 };
  const first = takeStepsAddress(state);
  let steps = [], now = 0, timer = 0, asked = false;
  addresses.steps = () => stepsAddress(state, now);
  const raised = (parts) => parts.map((part) =>
    typeof part === "string" ? part : h("span", { class: "power" }, "e", h("sup", {}, part.e)));

  function draw() {
    const step = steps[now], [from, to] = step.read, last = now === steps.length - 1;
    byId("row-cells").replaceChildren(...state.row.map((x, i) => h("div", {
      class: `cell${i >= from && i < to ? " on" : ""}${i % state.tile === 0 && i ? " edge" : ""}` +
        `${step.kept.includes(i) ? " kept" : ""}`,
    }, valueText(x))));
    const highest = Math.max(...step.y.filter(Number.isFinite), 1e-300);
    byId("out-cells").replaceChildren(...state.row.map((_, i) => {
      const known = i in step.y, value = step.y[i];
      const height = known && Number.isFinite(value) ? 100 * value / highest : 0;
      return h("div", {
        class: `cell out${known && i >= from && i < to ? " on" : ""}${i % state.tile === 0 && i ? " edge" : ""}`,
        style: `--height: ${height.toFixed(1)}%`,
      }, h("span", {}, known ? valueText(value) : "\u00b7"));
    }));
    for (const name of ["m", "d", "factor"])
      byId(`now-${name}`).textContent = step[name] === null ? "\u2013" : valueText(step[name]);
    byId("step-title").textContent = `Pass ${step.pass} of ${steps.at(-1).pass}. ${step.title}`;
    byId("step-lines").replaceChildren(...step.lines.map((line) => h("p", {}, ...raised(line))));
    byId("step-place").textContent = `Step ${now + 1} of ${steps.length}`;
    byId("step-count").textContent =
      `${counted(step.reads, "element")} read, ${step.writes} written`;
    /* not disabled, because this would take the focus away */
    byId("step-back").setAttribute("aria-disabled", now === 0);
    byId("step-next").setAttribute("aria-disabled", last);
    const written = (one) => Object.values(one.y.slice(...(one.writes ? one.read : [0, 0])));
    byId("ledger").replaceChildren(...steps.map((one, i) => h("tr",
      { class: i === now ? "now" : i > now ? "ahead" : null, "aria-current": i === now ? "step" : null },
      h("td", {}, h("button", { type: "button", click: () => go(i) }, `${one.pass}. ${one.title}`)),
      ...["m", "d", "factor"].map((name) =>
        h("td", {}, i > now ? "" : one[name] === null ? "\u2013" : valueText(one[name]))),
      h("td", {}, i > now ? "" : written(one).map(valueText).join(" ")))));
    byId("verdict").textContent = last ? verdict(step.y) : "";
    /* from the first change on, and not while it plays behind the other tab */
    if (asked && !byId("steps").hidden) history.replaceState(null, "", addresses.steps());
  }

  /* Compares the result with the formula. */
  function verdict(y) {
    const formula = traceOf(state.row, state.row.length, "safe").at(-1).y;
    const same = y.every((value, i) => Object.is(value, formula[i]) ||
      Math.abs(value - formula[i]) <= 1e-12);
    if (same) return "The same as the formula in float64, to rounding.";
    return `The formula in float64 gives ${formula.map(valueText).join(", ")}.`;
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    byId("step-play").textContent = "Play";
  }
  function go(to) {
    now = Math.max(0, Math.min(steps.length - 1, to));
    if (now === steps.length - 1) stop();
    draw();
  }
  function restart(at = 0) {
    stop();
    steps = traceOf(state.row, state.tile, state.method, state.type, state.k);
    now = Math.min(at, steps.length - 1);
    byId("story").textContent = STORY[state.method];
    byId("type-choice").hidden = state.method !== "naive";
    byId("k-choice").hidden = state.method !== "topk";
    byId("steps-stage").dataset.method = state.method;
    draw();
  }

  byId("step-back").addEventListener("click", () => { stop(); go(now - 1); });
  byId("step-next").addEventListener("click", () => { stop(); go(now + 1); });
  byId("step-first").addEventListener("click", () => { stop(); go(0); });
  byId("step-play").addEventListener("click", () => {
    if (timer) { stop(); return; }
    if (now === steps.length - 1) go(0);
    byId("step-play").textContent = "Pause";
    timer = setInterval(() => go(now + 1), 1400);
  });
  byId("steps-stage").addEventListener("keydown", (event) => {
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: steps.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    stop();
    go(to);
  });

  const countField = (name, what) => field(name, { changed: (n) => { state[name] = n; restart(); },
    read: (text) => {
      const n = readCount(text);
      return n >= 1 && n <= MOST_ELEMENTS ? n : null;
    },
    write: String, expected: `${what}: a whole number from 1 to ${MOST_ELEMENTS}` });
  const tileField = countField("tile", "a tile"), kField = countField("k", "a k");
  tileField.set(state.tile);
  kField.set(state.k);
  const input = byId("row");
  input.value = rowText(state.row);
  function takeRow() {
    const { row, error } = readRow(input.value);
    complain(input, error || "");
    if (row) { state.row = row; restart(); }
  }
  input.addEventListener("input", takeRow);
  input.addEventListener("blur", () => {
    input.value = rowText(state.row);
    complain(input, "");
  });
  const choose = (name, value) => {
    state[name] = value;
    document.querySelector(`input[name="step-${name}"][value="${value}"]`).checked = true;
  };
  for (const example of document.querySelectorAll("[data-row]"))
    example.addEventListener("click", () => {
      input.value = example.dataset.row;
      state.tile = Number(example.dataset.tile);
      tileField.set(state.tile);
      choose("method", example.dataset.method);
      choose("type", "float16");
      takeRow();
    });
  segments("method-choice", "step-method", Object.keys(STORY).map((name) =>
    ({ value: name, label: name === "topk" ? "top-k" : name })), state.method, (method) => { state.method = method; restart(); });
  segments("type-segments", "step-type", Object.keys(ROUNDED).reverse().map((name) =>
    ({ value: name, label: name })), state.type, (type) => { state.type = type; restart(); });
  restart(first);
  asked = true;
}
