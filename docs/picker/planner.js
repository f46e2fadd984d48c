/* The library's planner (planner.c, compiled to WebAssembly) as functions of JavaScript. */
const DEVICES = ["cpu", "cuda"]; /* in the order of ons_device */
const LONGEST = 2 ** 24;
const POSITIONS = 24 * 64; /* of the slider: 64 per octave */

const lengthAt = (position) => Math.round(2 ** (position / 64));
const positionOf = (N) => Math.log2(N) * 64;

/* {dtypes, methods, plan}. plan({device, dtype, rows, N, threads, method}) returns the numbers of
 * ons_plan by their names in C. It also returns status: 0 or the error of ons_make_plan. */
async function loadPlanner(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const c = (await WebAssembly.instantiate(bytes)).instance.exports;
  const text = (address) => {
    const memory = new Uint8Array(c.memory.buffer, address);
    return new TextDecoder().decode(memory.subarray(0, memory.indexOf(0)));
  };
  const methods = Array.from({ length: c.method_count() }, (_, i) => ({
    name: text(c.method_name(i)),
    summary: text(c.method_summary(i)),
    reads: c.method_reads(i),
    writes: c.method_writes(i),
    keeps: ["nothing", "tile", "row"][c.method_keeps(i)],
    devices: DEVICES.filter((_, device) => c.method_on(i, device)),
  }));
  const numbers = Array.from({ length: c.planned_count() }, (_, i) => text(c.planned_name(i)));
  const dtypes = [0, 1, 2, 3].map((dtype) => text(c.dtype_name(dtype)));

  function plan({ device, dtype, rows, N, threads, method = "auto" }) {
    const which = methods.findIndex((one) => one.name === method);
    const status = c.make_plan(
      DEVICES.indexOf(device), dtypes.indexOf(dtype), rows, N, which, threads);
    const facts = { status, ...methods[c.planned_method()] };
    delete facts.devices;
    numbers.forEach((name, place) => { facts[name] = c.planned_number(place); });
    return {
      ...facts,
      method: facts.name,
      reason: text(c.planned_reason()),
      measured: text(c.planned_measured()),
      compute: text(c.planned_compute()),
    };
  }
  return { dtypes, methods, plan };
}

/* Where auto's choice changes along N: [{method, from, to}]. It asks the planner at every position
 * of the slider and bisects between two different answers. */
function regionsOf(planner, question) {
  const at = (N) => planner.plan({ ...question, N }).method;
  const found = [{ method: at(1), from: 1, to: LONGEST }];
  let seen = 1;
  for (let position = 1; position <= POSITIONS; position++) {
    const N = lengthAt(position);
    while (at(N) !== found.at(-1).method) {
      let same = seen, other = N;
      while (other - same > 1) {
        const middle = Math.floor((same + other) / 2);
        if (at(middle) === found.at(-1).method) same = middle;
        else other = middle;
      }
      found.at(-1).to = same;
      found.push({ method: at(other), from: other, to: LONGEST });
      seen = other;
    }
    seen = N;
  }
  return found;
}
