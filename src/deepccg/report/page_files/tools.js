// Tables are sorted, and tables and figures are enlarged and saved from the page.
(() => {
  const dialog = document.getElementById("large"), inside = dialog.querySelector("div");
  dialog.querySelector("button").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => inside.replaceChildren());

  const visible = (cells) => [...cells].filter((cell) => !cell.classList.contains("off"));
  const words = (cell) => {
    const copy = cell.cloneNode(true);
    for (const button of copy.querySelectorAll("button")) button.remove();
    return copy.textContent.trim().replace(/\s+/g, " ");
  };

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 100)
      + (type === "text/csv" ? ".csv" : ".svg");
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function csv(table) {
    const lines = visible(table.rows).map((row) => visible(row.cells).map((cell) => {
      const text = words(cell);
      return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    }).join(","));
    return lines.join("\r\n") + "\r\n";
  }

  // The picture alone has no style sheet: what was computed from it is written into the copy.
  const STYLE = ["fill", "stroke", "stroke-width", "stroke-linecap", "stroke-linejoin", "opacity",
    "font-size", "font-style", "font-family", "display", "image-rendering"];
  function svg(drawn) {
    const copy = drawn.cloneNode(true), originals = [drawn, ...drawn.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((element, k) => {
      const computed = getComputedStyle(originals[k]);
      element.setAttribute("style", STYLE.map((key) => `${key}:${computed.getPropertyValue(key)}`).join(";"));
    });
    const [, , width, height] = drawn.getAttribute("viewBox").split(" ");
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    return new XMLSerializer().serializeToString(copy);
  }

  function button(text, label, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "plain";
    made.textContent = text;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  }

  function tools(shown, name, kind, content) {
    const bar = document.createElement("div");
    bar.className = "tools";
    bar.append(
      button("Enlarge", `Enlarge ${name}`, () => {
        const copy = shown.cloneNode(true);
        for (const each of copy.querySelectorAll("button, .tools")) each.remove();
        inside.replaceChildren(copy);
        dialog.showModal();
      }),
      button(kind === "text/csv" ? "CSV" : "SVG", `Save ${name}`, () => save(name, kind, content())),
    );
    return bar;
  }

  // Numbers by size, words by alphabet; dashes last, whatever the direction.
  function sort(table, k, down) {
    const body = table.tBodies[0], value = (row) => words(row.cells[k]);
    const number = (text) => Number.parseFloat(text.replaceAll(",", ""));
    const compare = (a, b) => {
      const [x, y] = [number(a), number(b)];
      return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
    };
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "-" || y === "-") return (x === "-") - (y === "-");
      return down ? compare(y, x) : compare(x, y);
    });
    body.append(...rows);
  }

  const orders = new Map(); // the column and order that a table was sorted by, by the table's name
  function sortable(table, name) {
    const heads = [...table.tHead.rows[0].cells], arrows = new Map();
    heads.forEach((head, k) => {
      const title = words(head);
      const sortBy = (order) => {
        orders.set(name, [title, order]);
        for (const each of heads) {
          each.removeAttribute("aria-sort");
          each.querySelector(".sort").textContent = "\u2195";
        }
        head.setAttribute("aria-sort", order);
        arrow.textContent = order === "descending" ? "\u2193" : "\u2191";
        sort(table, k, order === "descending");
      };
      const arrow = button("\u2195", `Sort by ${title}`, () => {
        const first = head.classList.contains("number") ? "descending" : "ascending";
        const other = first === "descending" ? "ascending" : "descending";
        sortBy(head.ariaSort === first ? other : first);
      });
      arrow.className = "sort";
      head.append(arrow);
      arrows.set(title, sortBy);
    });
    const [title, order] = orders.get(name) || [];
    if (arrows.has(title)) arrows.get(title)(order);
  }

  function equipTable(scroll) {
    const table = scroll.querySelector("table"), name = scroll.getAttribute("aria-label");
    if (table.tBodies[0].rows.length > 1) sortable(table, name);
    const more = document.createElement("p");
    more.className = "more";
    more.textContent = "More columns: scroll sideways \u2192";
    const look = () => { more.hidden = scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft < 8; };
    scroll.addEventListener("scroll", look);
    new ResizeObserver(look).observe(scroll);
    scroll.before(tools(scroll, name, "text/csv", () => csv(table)));
    scroll.after(more);
    look();
  }

  function equipFigure(figure) {
    const drawn = figure.querySelector("svg");
    if (!drawn) return;
    const place = figure.closest("article")?.querySelector("h2").textContent || document.title;
    const name = `${figure.querySelector("h4").textContent}, ${place}`;
    figure.append(tools(figure, name, "image/svg+xml", () => svg(drawn)));
  }

  const equipped = new WeakSet(); // parts of the page may be replaced
  function equip() {
    for (const each of document.querySelectorAll("main .scroll, main figure")) {
      if (equipped.has(each)) continue;
      equipped.add(each);
      if (each.matches("figure")) equipFigure(each);
      else equipTable(each);
    }
  }
  document.addEventListener("contentchange", equip);
  equip();
})();
