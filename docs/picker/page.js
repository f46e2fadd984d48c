/* The tabs, and the start of the page. */
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
  all.forEach((tab, i) => {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = all[(i + by + all.length) % all.length];
      select(next);
      next.focus();
    });
  });
  if (location.hash === "#steps") select(all[1]);
}

tabs();
stepsView();
/* For the page's test: the planner and the places where its choice changes. */
const picker = loadPlanner(byId("planner").textContent.trim());
picker.then(pickerView, () => {
  byId("pick").replaceChildren(h("p", { class: "card" },
    "This browser runs no WebAssembly, which the planner is compiled to. The steps work without it."));
});
