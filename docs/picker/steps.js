/* The tab that runs a row step by step. */
const MOST_ELEMENTS = 24;
const STORY = {
  naive: "Exponentials as they come. It works until one of them overflows.",
  safe: "The maximum first, then the sum, then the quotient: three reads, and nothing overflows.",
  online: "One read finds both: whenever the maximum m rises, the sum d is rescaled by e to the " +
    "power of what it rose by. The second read writes.",
  split: "Each part has a pair (m, d) of its own, found without waiting for the others. Pairs merge, " +
    "in any order; then each part is read again and written.",
};

/* A row like "1 2 3" or "1, 2, -inf": {row} or {error}. */
function readRow(text) {
  const words = text.split(/[\s,;]+/).filter(Boolean);
  const row = words.map(readNumber), wrong = words.find((_, i) => row[i] === null);
  if (wrong !== undefined)
    return { error: `\u201c${wrong.slice(0, 24)}\u201d is not a number. The row stays as it was.` };
  if (!row.length) return { error: "A row has at least one number. It stays as it was." };
  if (row.length > MOST_ELEMENTS)
    return { error: `${row.length} numbers: at most ${MOST_ELEMENTS} fit here. The row stays as it was.` };
  return { row };
}

function stepsView() {
  const state = { row: [1, 2, 3, 6, 2, 1], tile: 3, method: "online", type: "float16" };
  let steps = [], now = 0, timer = 0;
  const raised = (parts) => parts.map((part) =>
    typeof part === "string" ? part : h("span", { class: "power" }, "e", h("sup", {}, part.e)));

  function draw() {
    const step = steps[now], [from, to] = step.read, last = now === steps.length - 1;
    byId("row-cells").replaceChildren(...state.row.map((x, i) => h("div", {
      class: `cell${i >= from && i < to ? " on" : ""}${i % state.tile === 0 && i ? " edge" : ""}`,
    }, valueText(x))));
    const highest = Math.max(...step.y.filter(Number.isFinite), 1e-300);
    byId("out-cells").replaceChildren(...state.row.map((_, i) => {
      const known = i < step.y.length, value = step.y[i];
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
    byId("ledger").replaceChildren(...steps.map((one, i) => h("tr",
      { class: i === now ? "now" : i > now ? "ahead" : null, "aria-current": i === now ? "step" : null },
      h("td", {}, h("button", { type: "button", click: () => go(i) }, `${one.pass}. ${one.title}`)),
      ...["m", "d", "factor"].map((name) =>
        h("td", {}, i > now ? "" : one[name] === null ? "\u2013" : valueText(one[name]))),
      h("td", {}, i > now ? "" : one.y.slice(...(one.writes ? one.read : [0, 0])).map(valueText).join(" ")))));
    byId("verdict").textContent = last ? verdict(step.y) : "";
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
  function restart() {
    stop();
    steps = traceOf(state.row, state.tile, state.method, state.type);
    now = 0;
    byId("story").textContent = STORY[state.method];
    byId("type-choice").hidden = state.method !== "naive";
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

  const tileField = field("tile", { changed: (tile) => { state.tile = tile; restart(); },
    read: (text) => {
      const tile = readCount(text);
      return tile >= 1 && tile <= MOST_ELEMENTS ? tile : null;
    },
    write: String, expected: `a tile: a whole number from 1 to ${MOST_ELEMENTS}` });
  const input = byId("row");
  function takeRow() {
    const { row, error } = readRow(input.value);
    complain(input, error || "");
    if (row) { state.row = row; restart(); }
  }
  input.addEventListener("input", takeRow);
  input.addEventListener("blur", () => {
    input.value = state.row.map((x) => (x === -Infinity ? "-inf" : x)).join(" ");
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
  segments("method-choice", "step-method", ["naive", "safe", "online", "split"].map((name) =>
    ({ value: name, label: name })), state.method, (method) => { state.method = method; restart(); });
  segments("type-segments", "step-type", Object.keys(ROUNDED).reverse().map((name) =>
    ({ value: name, label: name })), state.type, (type) => { state.type = type; restart(); });
  restart();
}
