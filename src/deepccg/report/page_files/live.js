// A live page asks for a newer version of itself and replaces the parts that differ. Folds, filters,
// the search, sorting, focus and the place on the screen stay as they are.
(() => {
  const SECONDS = 1; // between two questions
  const line = document.getElementById("live"), main = document.querySelector("main");
  const parts = (page) => new Map([...page.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
  const sources = (named) => new Map([...named].map(([name, part]) => [name, part.outerHTML]));
  let known = sources(parts(document)), version = "";

  // Says where an element stands, in words that hold in the next version, too.
  const place = (element) => [
    element.tagName,
    element.closest("[data-part]")?.dataset.part,
    element.closest("section, fieldset")?.querySelector("h2, h3, legend")?.textContent,
    element.closest("[data-label]")?.dataset.label,
  ].join("|");

  function keepFolds() {
    const open = new Map([...document.querySelectorAll("details")].map((fold) => [place(fold), fold.open]));
    return () => {
      for (const fold of document.querySelectorAll("details")) fold.open = open.get(place(fold)) ?? fold.open;
    };
  }

  function keepSideways() {
    const left = new Map([...document.querySelectorAll(".scroll")].map((each) => [each.ariaLabel, each.scrollLeft]));
    return () => {
      for (const each of document.querySelectorAll(".scroll")) each.scrollLeft = left.get(each.ariaLabel) ?? 0;
    };
  }

  function keepFocus() {
    const focused = document.activeElement, part = focused.closest("[data-part]")?.dataset.part;
    const named = (element) => [
      place(element),
      element.closest(".scroll")?.ariaLabel,
      element.matches("a, button") ? element.ariaLabel ?? element.textContent : "",
    ].join("|");
    const name = named(focused);
    return () => {
      if (!part || focused.isConnected) return;
      const all = [...document.querySelectorAll(`[data-part="${part}"] :is(a, button, summary, pre, .scroll)`)];
      all.find((element) => named(element) === name)?.focus({ preventScroll: true });
    };
  }

  // What the reader looks at stays where it is: the fold with the focus, or else what begins first
  // in the window, or else what began last above it.
  function keepScroll() {
    const all = () => [...document.querySelectorAll("main [data-part], main section, main details")]
      .filter((element) => element.checkVisibility());
    const top = (element) => element.getBoundingClientRect().top;
    if (!scrollY) return () => {};
    const seen = all().filter((element) => top(element) >= 0 && top(element) < innerHeight);
    const fold = document.activeElement.closest("details");
    const before = seen.find((element) => element === fold) ?? seen[0] ?? all().findLast((element) => top(element) < 0);
    if (!before) return () => {};
    const name = place(before), was = top(before);
    return () => {
      const after = all().find((element) => place(element) === name);
      if (after) scrollBy({ top: top(after) - was, behavior: "instant" });
    };
  }

  function update(page) {
    const fresh = parts(page), source = sources(fresh), shown = parts(document);
    const order = [...page.querySelectorAll("main > [data-part]")].map((part) => part.dataset.part);
    const changed = [...fresh.keys()].filter((name) => source.get(name) !== known.get(name));
    const gone = [...shown.keys()].filter((name) => !fresh.has(name));
    known = source;
    if (!changed.length && !gone.length) return;
    const restore = [keepFolds(), keepSideways(), keepFocus(), keepScroll()];
    for (const name of gone) shown.get(name).remove();
    for (const name of changed) {
      shown.get(name)?.replaceWith(fresh.get(name));
      shown.set(name, fresh.get(name));
    }
    order.forEach((name, k) => {
      if (main.children[k] !== shown.get(name)) main.insertBefore(shown.get(name), main.children[k] ?? null);
    });
    document.dispatchEvent(new Event("contentchange"));
    for (const each of restore) each();
  }

  async function ask() {
    try {
      const headers = version ? { "If-None-Match": version } : {};
      const answer = await fetch(location.pathname, { headers, cache: "no-store" });
      if (answer.status === 200) {
        update(new DOMParser().parseFromString(await answer.text(), "text/html"));
        version = answer.headers.get("ETag");
        const when = new Date(answer.headers.get("Last-Modified"));
        document.getElementById("changed").textContent = `last changed at ${when.toLocaleTimeString()}`;
      }
      say("");
    } catch { // the server has ended, or is being started again
      say("not connected: deepccg report --live has ended");
    }
    setTimeout(ask, 1000 * SECONDS);
  }

  function say(lost) {
    const told = document.getElementById("lost");
    if (told.textContent !== lost) told.textContent = lost;
    line.classList.toggle("lost", lost !== "");
  }
  ask();
})();
