/* Watch the passes: a row on its way from memory through registers and back, frame by frame. */
const CELLS = 24;
const LOGITS = [1, 2, 3, 6, 2, 1, 4, 3, 5, 2, 1, 3, 7, 4, 2, 5, 1, 3, 2, 6, 4, 1, 3, 2];
const WORKERS = {
  fused_warp: [1, "one warp"], fused_block: [1, "one block"], online_block: [1, "one block"],
  cluster: [4, "block"], grid: [6, "block"], split: [4, "block"],
};
const STREAMS = {
  naive: [["The sum of e\u02e3. No maximum keeps it small", "d"], ["Read again, divide, write", "d"]],
  safe: [["The maximum m", "m"], ["Read again: the sum of e\u02e3\u207b\u1d50", "m d"],
    ["Read a third time, divide, write", "m d"]],
  exact: [["The maximum m", "m"], ["Read again: the sum of e\u02e3\u207b\u1d50, in double", "m d"],
    ["Read a third time, divide in double, round once, write", "m d"]],
  online: [["The running pair: m may rise, d is rescaled", "m d"], ["Read again, divide, write", "m d"]],
  split: [["Each part is read, with a pair of its own", "m d"], ["Read again, divide, write", "m d"]],
};

const span = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

/* The frames of one method: {title, pass, passes, reading, holding, writing, pairs, read, written}.
 * Cells are numbers. read and written are in rows. */
function framesOf(info, workers) {
  const frames = [], share = CELLS / workers, done = { read: 0, written: 0 };
  const parts = span(0, workers).map((worker) => worker * share);
  const cellsOf = (from, to) => parts.flatMap((begin) => span(begin + from, begin + to));
  const add = (frame) => {
    done.read += (frame.reading || []).length / CELLS;
    done.written += (frame.writing || []).length / CELLS;
    frames.push({ reading: [], holding: [], writing: [], pairs: "", ...frame, ...done });
  };
  const merge = (frame) => {
    if (workers > 1) add({ ...frame, title: "The pairs (m, d) merge", pairs: "merged" });
  };

  if (info.keeps === "row") {
    const tile = share / 2;
    for (let from = 0; from < share; from += tile)
      add({ pass: 1, title: "The row is read once, and kept", reading: cellsOf(from, from + tile),
        holding: cellsOf(0, from), pairs: info.name === "online_block" ? "m d" : "" });
    add({ pass: 1, title: "The pair (m, d) of the row that is held", holding: span(0, CELLS), pairs: "m d" });
    merge({ pass: 1, holding: span(0, CELLS) });
    for (let from = 0; from < share; from += tile)
      add({ pass: 1, title: "The row is divided where it lies, and written", holding: cellsOf(from, share),
        writing: cellsOf(from, from + tile), pairs: "m d" });
    return frames.map((frame) => ({ ...frame, passes: 1 }));
  }
  const tile = workers > 1 ? share / 2 : share / 4;
  const passes = STREAMS[info.name] || STREAMS.online;
  passes.forEach(([title, pairs], index) => {
    const last = index === passes.length - 1;
    for (let from = 0; from < share; from += tile) {
      const cells = cellsOf(from, from + tile);
      add({ pass: index + 1, title, reading: cells, writing: last ? cells : [], pairs });
    }
    if (index === 0) merge({ pass: 1 });
  });
  return frames.map((frame) => ({ ...frame, passes: passes.length }));
}

/* The part of the page that shows the passes. show(info, device) begins another method. */
function passesView() {
  const y = (() => {
    const powers = LOGITS.map((x) => Math.exp(x - Math.max(...LOGITS)));
    const d = powers.reduce((a, b) => a + b);
    return powers.map((power) => power / d);
  })();
  const cells = (id, heights) => heights.map((height) => {
    const cell = h("i", { style: `--height: ${(100 * height).toFixed(1)}%` });
    byId(id).append(cell);
    return cell;
  });
  const memory = cells("x-cells", LOGITS.map((x) => x / 7));
  const result = cells("y-cells", y.map((value) => Math.max(0.04, value / Math.max(...y))));
  let frames = [], slots = [], pairs = [], now = 0, timer = 0, shown = "";
  let playing = !prefersStillness(), visible = true;

  function draw() {
    const frame = frames[now];
    const reading = new Set(frame.reading), writing = new Set(frame.writing);
    const held = new Set([...frame.holding, ...frame.reading]);
    const written = new Set(frames.slice(0, now + 1).flatMap((one) => one.writing));
    memory.forEach((cell, i) => cell.classList.toggle("on", reading.has(i)));
    slots.forEach((slot, i) => {
      slot.classList.toggle("full", held.has(i));
      slot.classList.toggle("leaving", writing.has(i));
    });
    result.forEach((cell, i) => {
      cell.classList.toggle("on", writing.has(i));
      cell.classList.toggle("full", written.has(i));
    });
    pairs.forEach((pair) => {
      pair.textContent = frame.pairs === "merged" ? "(m, d) \u21c4"
        : { "m d": "(m, d)", m: "m", d: "d" }[frame.pairs] || "\u2013";
      pair.classList.toggle("merged", frame.pairs === "merged");
    });
    byId("pass-title").textContent = frame.passes === 1 ? `One pass. ${frame.title}.`
      : `Pass ${frame.pass} of ${frame.passes}. ${frame.title}.`;
    const rows = (share) => `${share.toFixed(2).replace(/\.?0+$/, "")} N`;
    byId("pass-count").textContent = `read ${rows(frame.read)}, written ${rows(frame.written)}`;
  }
  function go(by) {
    now = (now + by + frames.length) % frames.length;
    draw();
  }
  function keepTime() {
    clearInterval(timer);
    timer = playing && visible ? setInterval(() => go(1), 900) : 0;
    byId("pass-play").textContent = playing ? "Pause" : "Play";
  }
  byId("pass-play").addEventListener("click", () => { playing = !playing; keepTime(); });
  for (const [id, by] of [["pass-back", -1], ["pass-next", 1]])
    byId(id).addEventListener("click", () => { playing = false; keepTime(); go(by); });
  new IntersectionObserver(([entry]) => { visible = entry.isIntersecting; keepTime(); })
    .observe(byId("watch"));

  function show(info, device) {
    const asked = `${info.name} ${info.keeps} ${device}`;
    if (asked === shown) return;
    shown = asked;
    let [workers, name] = WORKERS[info.name] || [1, "one block"];
    if (device === "cpu") name = workers > 1 ? "thread" : "one thread";
    if (device === "cpu" && info.keeps === "row") name = "one thread and its caches";
    const share = CELLS / workers;
    pairs = span(0, workers).map(() => h("b", { class: "pair" }));
    const boxes = pairs.map((pair, worker) => {
      const held = span(0, share).map((i) =>
        h("i", { style: `--height: ${100 * LOGITS[worker * share + i] / 7}%` }));
      return h("div", { class: "worker" }, h("div", { class: "bars" }, held),
        h("div", { class: "who" }, workers > 1 ? `${name} ${worker + 1}` : name, " ", pair));
    });
    byId("workers").replaceChildren(...boxes);
    byId("workers").style.setProperty("--workers", workers);
    slots = [...byId("workers").querySelectorAll(".bars i")];
    byId("watch").dataset.method = info.name;
    byId("watched").textContent = info.name;
    byId("chip-name").textContent = device === "cpu" ? "Caches and registers" : "Registers";
    frames = framesOf(info, workers);
    now = 0;
    draw();
    keepTime();
  }
  return { show };
}
