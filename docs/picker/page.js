/* The tabs, and the start. */

/* A view's part of the page's address, by the view's name: a link to it opens the view as it is. */
const addresses = {};

function tabs() {
  const all = [...document.querySelectorAll("[role=tab]")];
  const select = (tab) => {
    for (const one of all) {
      const chosen = one === tab;
      one.setAttribute("aria-selected", String(chosen));
      one.tabIndex = chosen ? 0 : -1;
      byId(one.getAttribute("aria-controls")).hidden = !chosen;
    }
  };
  const show = (tab) => {
    select(tab);
    const address = addresses[tab.getAttribute("aria-controls")];
    if (address) history.replaceState(null, "", address());
  };
  all.forEach((tab, i) => {
    tab.addEventListener("click", () => show(tab));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = all[(i + by + all.length) % all.length];
      show(next);
      next.focus();
    });
  });
  if (new URLSearchParams(location.hash.slice(1)).has("steps")) select(all[1]);
}

tabs();
stepsView();
/* What the page's own test asks: the planner and the places where its choice changes. */
const picker = loadPlanner(byId("planner").textContent.trim());
picker.then(pickerView, () => {
  byId("pick").replaceChildren(h("p", { class: "card" },
    "This browser runs no WebAssembly, which the planner is compiled to. The steps work without it."));
});
