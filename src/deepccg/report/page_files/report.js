(() => {
  const FACETS = ["method", "dataset", "stream", "scenario"];
  const chosen = Object.fromEntries(FACETS.map((facet) => [facet, new Set()]));
  const filters = document.querySelector(".filters");
  const filtered = [...document.querySelectorAll(FACETS.map((f) => `[data-${f}]`).join())];
  const articles = [...document.querySelectorAll("article")];

  // An element that names a facet's value is shown if nothing is chosen there, or that value is.
  const fits = (element) => FACETS.every((facet) => {
    const value = element.dataset[facet];
    return value === undefined || !chosen[facet].size || chosen[facet].has(value);
  });

  // In charts with one method below the other, those that are left close the gaps.
  function closeGaps(chart) {
    const step = Number(chart.dataset.step);
    let hidden = 0;
    for (const method of chart.querySelectorAll(":scope > [data-method]")) {
      if (method.classList.contains("off")) hidden += 1;
      else method.setAttribute("transform", `translate(0 ${-hidden * step})`);
    }
    const up = hidden * step, [, , width, height] = chart.dataset.box.split(" ").map(Number);
    chart.setAttribute("viewBox", `0 0 ${width} ${height - up}`);
    chart.querySelector(".foot").setAttribute("transform", `translate(0 ${-up})`);
    for (const line of chart.querySelectorAll(".grid")) {
      line.dataset.end ??= line.getAttribute("y2");
      line.setAttribute("y2", Number(line.dataset.end) - up);
    }
  }
  const charts = [...document.querySelectorAll("svg[data-step]")];
  for (const chart of charts) chart.dataset.box = chart.getAttribute("viewBox");

  function apply() {
    for (const element of filtered) element.classList.toggle("off", !fits(element));
    charts.forEach(closeGaps);
    let shown = 0;
    for (const article of articles) {
      const rows = [...article.querySelectorAll("table.lead tbody tr")];
      const empty = !fits(article) || !rows.some((row) => !row.classList.contains("off"));
      article.classList.toggle("off", empty);
      shown += empty ? 0 : 1;
    }
    document.getElementById("empty").hidden = shown > 0;
    if (!filters) return;
    for (const chip of filters.querySelectorAll(".chip")) {
      const pressed = chosen[chip.dataset.facet].has(chip.dataset.value);
      chip.setAttribute("aria-pressed", String(pressed));
    }
    const any = FACETS.some((facet) => chosen[facet].size);
    document.getElementById("clear").hidden = !any;
    document.getElementById("state").textContent =
      any ? `${shown} of ${articles.length} ${articles.length === 1 ? "setting" : "settings"} shown` : "";
  }

  // The address keeps the filters (#/method=er&method=sgd&at=place), so a view can be sent to somebody.
  function read() {
    if (!location.hash.startsWith("#/")) return;
    const given = new URLSearchParams(location.hash.slice(2));
    for (const facet of FACETS) {
      chosen[facet].clear();
      for (const value of given.getAll(facet)) chosen[facet].add(value);
    }
    apply();
    const place = document.getElementById(given.get("at") || "");
    if (place) place.scrollIntoView();
  }

  function write(at) {
    const said = new URLSearchParams();
    for (const facet of FACETS) for (const value of chosen[facet]) said.append(facet, value);
    if (at) said.set("at", at);
    const text = said.toString();
    history.replaceState(null, "", text ? `#/${text}` : location.pathname + location.search);
  }

  if (filters) {
    filters.hidden = false;
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("click", (event) => {
      const chip = event.target.closest(".chip");
      if (chip) {
        const { facet, value } = chip.dataset;
        if (!chosen[facet].delete(value)) chosen[facet].add(value);
      } else if (event.target.id === "clear") {
        for (const facet of FACETS) chosen[facet].clear();
        filters.querySelector(".chip").focus();
      } else return;
      apply();
      write();
    });
  }
  addEventListener("hashchange", read);
  document.querySelector(".overview")?.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    event.preventDefault();
    const at = link.hash.slice(1);
    write(at);
    const heading = document.getElementById(`${at}-title`);
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
    document.getElementById(at).scrollIntoView();
  });

  async function copy(text, code) {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // a page from a file may not be allowed to: select it, and copy as by hand
      getSelection().selectAllChildren(code);
      if (!document.execCommand("copy")) return false;
      getSelection().removeAllRanges();
    }
    return true;
  }
  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = false;
    const code = button.previousElementSibling;
    button.addEventListener("click", async () => {
      button.textContent = (await copy(code.textContent, code)) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }

  // On paper nothing can be unfolded.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const each of closed) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of closed) each.open = false; });

  apply();
  read();
})();
