(() => {
  const FACETS = ["method", "dataset", "stream", "scenario"];
  const chosen = Object.fromEntries(FACETS.map((facet) => [facet, new Set()]));
  const filters = document.querySelector(".filters");
  const search = document.getElementById("search");
  const named = FACETS.map((f) => `[data-${f}]`).join();
  const unfold = () => document.getElementById("unfold");
  const folds = () => [...document.querySelectorAll("details.setting")];
  let filtered, ofSettings, tables, articles, groups, menus, charts;

  // Finds what filters act on: at first, and whenever a part of the page was replaced.
  function collect() {
    filtered = [...document.querySelectorAll(`${named},[data-label]`)].filter((e) => !e.matches(".chip"));
    ofSettings = [...document.querySelectorAll("li[data-setting]")];
    tables = [...document.querySelectorAll("main table")];
    articles = [...document.querySelectorAll("article")];
    groups = [...document.querySelectorAll("[data-group]")];
    menus = [...filters.querySelectorAll("details.choices")].map((menu) => {
      const said = menu.querySelector("summary");
      said.dataset.all ??= said.textContent;
      return { said, all: said.dataset.all, chips: [...menu.querySelectorAll(".chip")] };
    });
    charts = [...document.querySelectorAll("svg[data-step]")];
    for (const chart of charts) chart.dataset.box ??= chart.getAttribute("viewBox");
    for (const button of document.querySelectorAll(".copy")) button.hidden = false;
    sayUnfold();
    apply();
  }

  function sayUnfold() {
    if (!unfold()) return;
    unfold().hidden = false;
    unfold().textContent = folds().every((fold) => fold.open) ? "Fold all" : "Unfold all";
  }

  // An element that names a facet's value is shown if nothing is chosen there, or that value is.
  // One that has a label is shown if that has the word that is searched for.
  const fits = (element) => FACETS.every((facet) => {
    const value = element.dataset[facet];
    return value === undefined || !chosen[facet].size || chosen[facet].has(value);
  }) && (element.dataset.label ?? word()).toLowerCase().includes(word());
  const word = () => search.value.trim().toLowerCase();

  // A line or column in which nothing but dashes is left says nothing.
  function dropDashes(table) {
    const heads = [...table.tHead.rows[0].cells], rows = [...table.tBodies[0].rows];
    const known = (row, k) => row.cells[k].textContent !== "-";
    const shown = heads.map((head, k) => {
      const setting = head.dataset.setting && document.getElementById(head.dataset.setting);
      const gone = setting && setting.classList.contains("off");
      return k === 0 || (!gone && rows.some((row) => fits(row) && known(row, k)));
    });
    heads.forEach((head, k) => head.classList.toggle("off", !shown[k]));
    for (const row of rows) {
      const some = heads.length === 1 || heads.some((_, k) => k && shown[k] && known(row, k));
      row.classList.toggle("off", !(fits(row) && some));
      [...row.cells].forEach((cell, k) => cell.classList.toggle("off", !shown[k]));
    }
    const none = !rows.some((row) => !row.classList.contains("off"));
    table.closest(".overview")?.classList.toggle("off", none);
  }

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
    tables.forEach(dropDashes);
    for (const entry of ofSettings) {
      const setting = document.getElementById(entry.dataset.setting);
      const rows = setting.querySelectorAll("table.lead tbody tr:not(.off)").length;
      entry.classList.toggle("off", setting.classList.contains("off"));
      entry.querySelector("small").textContent = `${rows} ${rows === 1 ? "row" : "rows"}`;
    }
    // A heading without a setting below it goes, too.
    for (const heading of groups) {
      const list = document.getElementById(`contents-${heading.dataset.group}`);
      heading.classList.toggle("off", !list.querySelector("li:not(.off)"));
    }
    document.getElementById("empty").hidden = shown > 0 || !articles.length;
    for (const chip of filters.querySelectorAll(".chip")) {
      const pressed = chosen[chip.dataset.facet].has(chip.dataset.value);
      chip.setAttribute("aria-pressed", String(pressed));
    }
    for (const { said, all, chips } of menus) {
      const taken = chips.filter((chip) => chip.ariaPressed === "true").map((chip) => chip.textContent.trim());
      said.textContent = taken.length > 2 ? `${taken.length} of ${chips.length} chosen` : taken.join(", ") || all;
    }
    const any = FACETS.some((facet) => chosen[facet].size) || word() !== "";
    document.getElementById("clear").hidden = !any;
    document.getElementById("state").textContent =
      any ? `${shown} of ${articles.length} ${articles.length === 1 ? "setting" : "settings"} shown` : "";
  }

  // The address keeps the filters (#/method=er&method=sgd&at=place), so a view can be sent to somebody.
  function read() {
    if (!location.hash.startsWith("#/")) return go(location.hash.slice(1));
    const given = new URLSearchParams(location.hash.slice(2));
    for (const facet of FACETS) {
      chosen[facet].clear();
      for (const value of given.getAll(facet)) chosen[facet].add(value);
    }
    search.value = given.get("word") || "";
    apply();
    go(given.get("at") || "");
  }

  // A setting that is asked for is unfolded.
  function go(at) {
    const place = at && document.getElementById(at);
    if (!place) return;
    const fold = place.querySelector(":scope > details");
    if (fold) fold.open = true;
    place.scrollIntoView();
  }

  function write(at) {
    const said = new URLSearchParams();
    for (const facet of FACETS) for (const value of chosen[facet]) said.append(facet, value);
    if (word()) said.set("word", word());
    if (at) said.set("at", at);
    const text = said.toString();
    history.replaceState(null, "", text ? `#/${text}` : location.pathname + location.search);
  }

  filters.hidden = false;
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    if (chip) {
      const { facet, value } = chip.dataset;
      if (!chosen[facet].delete(value)) chosen[facet].add(value);
    } else if (event.target.id === "fold") {
      event.target.ariaExpanded = String(filters.classList.toggle("open"));
    } else if (event.target.id === "clear") {
      for (const facet of FACETS) chosen[facet].clear();
      search.value = "";
      search.focus();
    } else return;
    apply();
    write();
  });
  search.addEventListener("input", () => { apply(); write(); });
  addEventListener("click", (event) => {
    for (const open of filters.querySelectorAll("details[open]")) {
      if (!open.contains(event.target)) open.open = false;
    }
  });
  addEventListener("hashchange", read);
  document.addEventListener("click", (event) => {
    const link = event.target.closest(".overview a, .contents a");
    if (!link) return;
    event.preventDefault();
    const at = link.hash.slice(1);
    write(at);
    const heading = document.getElementById(`${at}-title`);
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
    go(at);
  });
  document.addEventListener("click", (event) => {
    if (event.target.id !== "unfold") return;
    const open = !folds().every((fold) => fold.open);
    for (const fold of folds()) fold.open = open;
  });
  document.addEventListener("toggle", sayUnfold, true);

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
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const code = button.previousElementSibling;
    button.textContent = (await copy(code.textContent, code)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });

  // On paper nothing can be unfolded.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const each of closed) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of closed) each.open = false; });

  document.addEventListener("contentchange", collect);
  collect();
  read();
})();
