/* The picker: the question, the planner's answer, and the map along the row length. */
const PLACES = {
  cuda: [
    { name: "One warp", methods: ["fused_warp"] },
    { name: "One block", methods: ["fused_block", "online_block"] },
    { name: "A cluster of blocks", methods: ["cluster"] },
    { name: "The whole GPU", methods: ["grid"] },
    { name: "Streamed by a block", methods: ["online"] },
    { name: "Streamed by blocks together", methods: ["split"] },
  ],
  cpu: [
    { name: "The caches", methods: ["fused"] },
    { name: "Streamed by a thread", methods: ["online"] },
    { name: "Streamed by threads together", methods: ["split"] },
  ],
};
const CPU_COPY_SPEED = 30; /* GB/s, from benchmarks/results; the planner has a GPU's */
const MOST_ROWS = 2 ** 24;
const MOST_THREADS = 1024;

/* The question in the page's address, so that users can share it. */
const addressOf = ({ device, dtype, rows, N, threads }) =>
  `#${new URLSearchParams(device === "cpu" ? { device, dtype, rows, N, threads } : { device, dtype, rows, N })}`;

function takeAddress(state, planner) {
  const given = new URLSearchParams(location.hash.slice(1));
  if (["cpu", "cuda"].includes(given.get("device"))) state.device = given.get("device");
  if (planner.dtypes.includes(given.get("dtype"))) state.dtype = given.get("dtype");
  for (const [name, most] of [["rows", MOST_ROWS], ["N", LONGEST], ["threads", MOST_THREADS]])
    state[name] = countIn(given, name, most, state[name]);
}

function pickerView(planner) {
  const state = { device: "cuda", dtype: "float32", rows: 4096, N: 4096, threads: 8,
    speed: { cpu: CPU_COPY_SPEED }, watched: null };
  state.speed.cuda = planner.plan(state).copy_speed / 1e9; /* the first state's device is a GPU */
  const measuredSpeed = state.speed.cuda;
  takeAddress(state, planner);
  let regions = [], reaches = {}, mapped = "", asked = false;
  const share = (N) => `${100 * Math.log2(N) / 24}%`;
  const infoOf = (name) => planner.methods.find((one) => one.name === name);
  /* The share of a row that does not fit the kept part. The method reads it a second time, from the
   * caches if they still have it. */
  const againOf = (plan) => state.device === "cuda" && plan.keeps === "row" && plan.tile < plan.N
    ? 1 - plan.tile / plan.N : 0;
  const passesOf = (plan) => plan.reads + plan.writes;
  const arrayBytes = (plan) => plan.bytes_moved / passesOf(plan);
  /* Whether the plan's time was measured. It was on the H100, not on a GPU of another speed. */
  const isMeasured = (plan) => plan.measured_seconds > 0 && state.speed.cuda === measuredSpeed;
  /* Its speed relative to a copy: as measured, or else as memory allows. Then it is one read and
   * one write over the bytes that must move. */
  const speedOf = (plan) => isMeasured(plan) ? plan.measured_copy_seconds / plan.measured_seconds
    : 2 / (plan.least_bytes / arrayBytes(plan) + againOf(plan));
  const secondsOf = (plan) => isMeasured(plan) ? plan.measured_seconds
    : Math.max(plan.least_bytes / (state.speed[state.device] * 1e9), plan.launch_seconds);
  /* On the CPU a copy is no bound, because it reads what it overwrites. */
  const isBound = (plan) => !isMeasured(plan) && state.device === "cuda";
  const secondsText = (plan) => `${isBound(plan) ? "\u2265 " : ""}${timeText(secondsOf(plan))}`;
  const speedText = (plan) => `${isMeasured(plan) ? "measured, " : isBound(plan) ? "at most " : "by its bytes, "}` +
    `${digits(speedOf(plan))} of a copy\u2019s speed`;

  /* A region of the map as high as its speed, up to the height of the map. */
  function shapeOf({ method, from, to }) {
    const points = span(0, 17).map((i) => {
      const N = Math.round(from * (to / from) ** (i / 16));
      return [100 * i / 16, 100 - 100 * Math.min(1, speedOf(planner.plan({ ...state, N, method })))];
    });
    return `--shape: polygon(0 100%, ${points.map(([x, y]) => `${x}% ${y.toFixed(2)}%`).join(", ")}, ` +
      `100% 100%); --top: ${points[0][1]}cqh`;
  }

  /* The methods of the device. On a GPU, fused only names two other methods. */
  const methodsHere = () => planner.methods.filter(({ name, devices }) =>
    devices.includes(state.device) && !(state.device === "cuda" && name === "fused"));

  /* The longest row that a method holds on chip. LONGEST if it streams. */
  function reach(name) {
    const longest = planner.plan({ ...state, N: LONGEST, method: name });
    if (infoOf(name).keeps !== "row") return LONGEST;
    if (longest.longest_row) return longest.longest_row;
    if (state.device === "cuda") return longest.tile;
    return regionsOf(planner, { ...state, rows: MOST_ROWS })
      .filter((one) => one.method === name).at(-1)?.to ?? 0;
  }

  function drawMap() {
    const { device, dtype, rows, threads, speed } = state;
    const drawn = JSON.stringify([device, dtype, rows, threads, speed.cuda]);
    if (drawn === mapped) return;
    mapped = drawn;
    regions = regionsOf(planner, state);
    reaches = Object.fromEntries(methodsHere().map(({ name }) => [name, reach(name)]));
    const placed = (name, one, ...children) => h("div", { class: name, "data-method": one.method,
      style: `left: ${share(one.from)}; right: calc(100% - ${share(Math.min(one.to + 1, LONGEST))}); ` +
        shapeOf(one) }, ...children);
    byId("regions").replaceChildren(
      ...regions.map((one) => placed("region", one, h("div", { class: "hill" }))));
    /* the names are above the line that marks the length */
    byId("names").replaceChildren(
      ...regions.map((one) => placed("name", one, h("span", {}, one.method))));
    byId("lanes").replaceChildren(...PLACES[device].map(({ name, methods }) => {
      const longest = reaches[methods[0]], used = regions.filter((one) => methods.includes(one.method));
      const limit = longest === LONGEST ? "any N" : `up to ${withCommas(longest)}`;
      return h("div", { class: "lane", "data-place": methods[0], "data-method": methods[0] },
        h("div", { class: "lane-name" }, h("span", {}, h("b", {}, name), `, ${limit}`,
          h("span", { class: "choice" }))),
        h("div", { class: "lane-bar" },
          h("i", { class: "holds", style: `width: ${share(longest)}` }),
          ...used.map(({ from, to }) => h("i", { class: "takes",
            style: `left: ${share(from)}; right: calc(100% - ${share(Math.min(to + 1, LONGEST))})` }))));
    }));
    byId("cliffs").replaceChildren(...regions.slice(1).map(({ method, from }, i) => {
      const before = regions[i].method;
      const falls = passesOf(infoOf(method)) > passesOf(infoOf(before));
      return h("button", { type: "button", "data-method": method, "data-n": from,
        click: () => setLength(from) }, "from ", h("b", {}, withCommas(from)),
      ` ${method}${falls ? ", one more read" : ""}`);
    }));
    byId("no-cliffs").hidden = regions.length > 1;
  }

  function drawMeasured(measured) {
    const [file, ...rows] = measured.split(": ");
    byId("measured").hidden = !measured;
    byId("measured").textContent =
      `Measured where the choice changes, relative to the speed of a copy: ${rows.join(": ")} (${file}).`;
  }

  const fact = (name, value, note) => h("div", { class: "fact", "data-fact": name },
    h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, note));
  function factsOf(plan) {
    const gpu = state.device === "cuda", again = againOf(plan) * arrayBytes(plan);
    const facts = [
      fact("Memory traffic", bytesText(plan.bytes_moved), again
        ? `and up to ${bytesText(again)} more: beyond ${withCommas(plan.tile)} a row is read twice`
        : `${counted(plan.reads, "read")} and ${counted(plan.writes, "write")} of the array`),
      fact("Time", secondsText(plan), speedText(plan)),
      fact("Tile", counted(plan.tile, "element"), counted(Math.ceil(plan.N / plan.tile), "tile") + " a row"),
      fact("On chip", memoryText(plan.on_chip_bytes), `of each row, in ${plan.compute}`),
    ];
    if (gpu) {
      const per = plan.blocks_a_row > 1 ? `${counted(plan.blocks_a_row, "block")} a row`
        : plan.blocks_a_row === 1 ? "one block a row" : `${counted(plan.width, "row")} a block`;
      facts.push(fact("Warps", `${plan.threads / 32} a block`, per),
        fact("Registers", counted(plan.elements_a_thread, "element"), "of the row in each thread"));
    } else {
      facts.push(fact("Threads", String(plan.threads), `of the ${state.threads} that it may use`),
        fact("Width", counted(plan.width, "row"), "worked on side by side"));
    }
    facts.push(fact("Scratch", plan.workspace_bytes ? memoryText(plan.workspace_bytes) : "none",
      "memory besides the input and the result"));
    facts.push(fact("Array", bytesText(arrayBytes(plan)),
      `${withCommas(plan.rows)} \u00d7 ${withCommas(plan.N)}, ${state.dtype}`));
    return facts;
  }

  function drawOthers(chosen) {
    const rows = methodsHere().map((info) => {
      const plan = planner.plan({ ...state, method: info.name });
      const fits = plan.status === 0;
      const time = fits ? secondsText(plan) : plan.longest_row
        ? `rows up to ${withCommas(plan.longest_row)}` : "not on this GPU";
      return h("tr", { "data-method": info.name, class: info.name === chosen ? "chosen" : null },
        h("th", { scope: "row" }, h("button", { type: "button", disabled: fits ? null : "",
          "aria-pressed": String(info.name === (state.watched || chosen)),
          click: () => { state.watched = info.name; draw(); } }, info.name)),
        h("td", { class: "what" }, info.summary),
        h("td", {}, `${fits ? plan.reads : info.reads}R + ${info.writes}W`),
        h("td", { class: fits ? null : "too-long" }, time));
    });
    /* updates in place, so that a pressed button keeps the focus */
    const focused = document.activeElement?.closest?.("#others tr")?.dataset.method;
    byId("others").replaceChildren(...rows);
    if (focused) byId("others").querySelector(`[data-method="${focused}"] button`).focus();
  }

  addresses.pick = () => addressOf(state);
  const watcher = passesView();
  function draw() {
    drawMap();
    const plan = planner.plan(state);
    const positioned = share(state.N);
    byId("map").style.setProperty("--here", positioned);
    byId("pick").dataset.method = plan.method;
    byId("method").textContent = plan.method;
    byId("reason").textContent = `${plan.reason[0].toUpperCase()}${plan.reason.slice(1)}.`;
    const region = regions.find(({ to }) => state.N <= to);
    byId("range").textContent = regions.length === 1 ? "Here at every length."
      : `Here from ${withCommas(region.from)} to ${withCommas(region.to)}.`;
    byId("length").value = positionOf(state.N);
    byId("length").setAttribute("aria-valuetext", `${withCommas(state.N)} elements: ${plan.method}`);
    byId("facts").replaceChildren(...factsOf(plan));
    drawMeasured(plan.measured);
    for (const lane of byId("lanes").children) {
      const taken = lane.dataset.place === plan.method ||
        PLACES[state.device].some((one) => one.methods[0] === lane.dataset.place &&
          one.methods.includes(plan.method));
      lane.classList.toggle("taken", taken);
      lane.querySelector(".choice").textContent = taken ? " \u00b7 auto" : "";
    }
    for (const region of byId("regions").children)
      region.classList.toggle("taken", region.dataset.method === plan.method);
    if (state.watched && planner.plan({ ...state, method: state.watched }).status !== 0)
      state.watched = null;
    byId("kinds-of-times").textContent = isMeasured(plan)
      ? "Measured on an H100, without the launch from the host. A time with \u2265 is the least: the time of a copy of as many bytes."
      : isBound(plan) ? "The least time: that of a copy of as many bytes, or of a launch alone."
      : "The time of a copy of as many bytes. A call that writes past the caches, or that finds the array in them, may take less.";
    drawOthers(plan.method);
    const watched = infoOf(state.watched || plan.method);
    const { reads } = planner.plan({ ...state, method: watched.name });
    watcher.show(reads === 1 ? { ...watched, keeps: "row" } : watched, state.device);
    byId("cpu-threads").hidden = state.device !== "cpu";
    const device = state.device === "cuda" ? "device=\"cuda\"" : `num_threads=${state.threads}`;
    if (asked) history.replaceState(null, "", addressOf(state));
    asked = true; /* from the first change on */
    byId("call").textContent = `ons.plan((${state.rows}, ${state.N}), dtype="${state.dtype}", ${device})`;
  }

  const whole = (least, most) => (text) => {
    const n = readCount(text);
    return n !== null && n >= least && n <= most ? n : null;
  };
  const set = (name) => (value) => { state[name] = value; draw(); };
  const lengthField = field("length-number", { read: whole(1, LONGEST), write: withCommas,
    expected: "a row length: a whole number from 1 to 16,777,216, as 4096, 64K or 2^20",
    changed: set("N") });
  const rowsField = field("rows-number", { read: whole(1, MOST_ROWS), write: withCommas,
    expected: "a number of rows: a whole number from 1 to 16,777,216, as 4096, 64K or 2^20",
    changed: (rows) => { byId("rows").value = Math.log2(rows); set("rows")(rows); } });
  const threadsField = field("threads", { read: whole(1, MOST_THREADS), write: String,
    expected: `a number of threads: a whole number from 1 to ${withCommas(MOST_THREADS)}`,
    changed: set("threads") });
  const speedField = field("speed", { write: String,
    read: (text) => {
      const speed = readNumber(text.replace(/,/g, ""));
      return speed !== null && speed > 0 && speed <= 1e6 ? speed : null;
    },
    expected: "a copy speed in GB/s: a number above 0, as 3000",
    changed: (speed) => { state.speed[state.device] = speed; draw(); } });

  function setLength(N) {
    state.N = Math.max(1, Math.min(LONGEST, Math.round(N)));
    lengthField.set(state.N);
    draw();
  }
  const slider = byId("length");
  slider.addEventListener("input", () => setLength(lengthAt(Number(slider.value))));
  slider.addEventListener("keydown", (event) => {
    const N = state.N, cliffs = regions.slice(1).map((one) => one.from);
    const by = event.shiftKey ? 0 : 1 / 16;
    const up = Math.max(N + 1, N * 2 ** by), down = Math.min(N - 1, N * 2 ** -by);
    const to = { ArrowRight: up, ArrowUp: up, ArrowLeft: down, ArrowDown: down, Home: 1, End: LONGEST,
      PageUp: cliffs.find((one) => one > N) ?? LONGEST,
      PageDown: cliffs.findLast((one) => one < N) ?? 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    setLength(to);
  });
  byId("rows").addEventListener("input", () => {
    state.rows = Math.round(2 ** Number(byId("rows").value));
    rowsField.set(state.rows);
    draw();
  });

  /* Dragging works anywhere on the map. */
  const map = byId("map");
  const drag = (event) => {
    const box = map.getBoundingClientRect();
    setLength(2 ** (24 * Math.max(0, Math.min(1, (event.clientX - box.left) / box.width))));
  };
  map.addEventListener("pointerdown", (event) => {
    if (event.target === slider || event.button !== 0) return;
    map.setPointerCapture(event.pointerId);
    drag(event);
  });
  map.addEventListener("pointermove", (event) => {
    if (map.hasPointerCapture(event.pointerId)) drag(event);
  });

  segments("devices", "device", [{ value: "cuda", label: "GPU" }, { value: "cpu", label: "CPU" }],
    state.device, (device) => {
      state.device = device;
      state.watched = null;
      speedField.set(state.speed[device]);
      draw();
    });
  segments("dtypes", "dtype", planner.dtypes.map((name) => ({ value: name, label: name })),
    state.dtype, set("dtype"));
  byId("levels").append(...[["1", 1], [".67", 2 / 3]].map(([text, level]) =>
    h("span", { style: `top: ${100 - 100 * level}%` }, h("b", {}, text))));
  byId("ticks").append(...[0, 4, 8, 12, 16, 20, 24].map((power) =>
    h("span", { style: `left: ${100 * power / 24}%` }, shortCount(2 ** power))));
  speedField.set(state.speed[state.device]);
  lengthField.set(state.N);
  rowsField.set(state.rows);
  byId("rows").value = Math.log2(state.rows);
  threadsField.set(state.threads);
  draw();
}
