(() => {
  const run = JSON.parse(document.getElementById("run").textContent);
  const { reach, labels, classes, batches, story } = run;
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const trajectories = run.trajectories.map((each) => ({
    positions: new Uint16Array(bytes(each.positions)), // [T, N, 2]
    surfaces: new Float32Array(bytes(each.surfaces)), // [T, C, 4]
  }));
  const panels = run.views.map((view, number) => ({
    ...trajectories[view.trajectory],
    lag: view.lag, // steps that its classifier is behind
    accuracy: view.accuracy,
    canvas: document.getElementById(`plane-${number}`),
    score: document.getElementById(`score-${number}`),
    ground: document.createElement("canvas"),
    drawn: null,
  }));
  const byId = (id) => document.getElementById(id);
  const play = byId("play"), slider = byId("time");
  const marks = [...document.querySelectorAll(".now")];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const GROUND = 160; // pixels a side of the decision regions, before they are scaled
  const TRAIL = [0.45, 0.2, 0.1]; // opacity of the way a point came, newest step first
  let time = 0, playing = false, last = 0, colours = [], ink = "", card = "";

  const position = (panel, t, n, axis) =>
    (panel.positions[(t * labels.length + n) * 2 + axis] / 65535) * 2 * reach - reach;
  const come = (panel, t, c) => t >= 0 && !Number.isNaN(panel.surfaces[(t * classes.length + c) * 4]);
  // From t to t + 1 the points move first; then they rest, and the classifier is the new one.
  const moved = (part) => { const s = Math.min(1, 2 * part); return s * s * (3 - 2 * s); };
  const settled = () => Math.min(time % 1 >= 0.5 ? Math.floor(time) + 1 : Math.floor(time), batches - 1);
  const classifier = (panel) => {
    const before = time % 1 > 0 ? Math.floor(time) : Math.floor(time) - 1;
    return panel.lag ? before : settled();
  };

  // The score of each class at a place is k + l . z - a |z|^2; the highest one wins.
  function winner(panel, t, x, y) {
    let best = -1, high = -Infinity;
    for (let c = 0; c < classes.length; c += 1) {
      const i = (t * classes.length + c) * 4, s = panel.surfaces;
      const score = s[i] + s[i + 1] * x + s[i + 2] * y - s[i + 3] * (x * x + y * y);
      if (score > high) { high = score; best = c; }
    }
    return best;
  }

  function paintGround(panel, t) {
    panel.ground.width = panel.ground.height = GROUND;
    const context = panel.ground.getContext("2d");
    const image = context.createImageData(GROUND, GROUND);
    const rgb = colours.map((colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));
    for (let row = 0; row < GROUND; row += 1) {
      for (let column = 0; column < GROUND; column += 1) {
        const x = ((column + 0.5) / GROUND) * 2 * reach - reach;
        const y = reach - ((row + 0.5) / GROUND) * 2 * reach;
        const c = winner(panel, t, x, y);
        if (c >= 0) image.data.set([...rgb[c], 70], (row * GROUND + column) * 4);
      }
    }
    context.putImageData(image, 0, 0);
    panel.drawn = t;
  }

  function draw(panel) {
    const t = Math.floor(time), part = moved(time - t), next = Math.min(t + 1, batches - 1);
    const shown = classifier(panel);
    const place = (n, axis) =>
      (1 - part) * position(panel, t, n, axis) + part * position(panel, next, n, axis);
    const { canvas } = panel, size = canvas.clientWidth, ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(size * ratio)) {
      canvas.width = canvas.height = Math.round(size * ratio);
    }
    if (panel.drawn !== shown) paintGround(panel, shown);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = card;
    context.fillRect(0, 0, size, size);
    context.drawImage(panel.ground, 0, 0, size, size);
    const unit = size / (2 * reach);
    const across = (x) => (x + reach) * unit, down = (y) => (reach - y) * unit;

    for (const [age, opacity] of TRAIL.slice(0, panel.lag || TRAIL.length).entries()) {
      const to = (part > 0 ? t : t - 1) - age; // a step begins where the one before it ended
      if (to < 0) break;
      context.globalAlpha = opacity;
      context.lineWidth = Math.max(0.8, size / 330);
      for (let c = 0; c < classes.length; c += 1) {
        if (!come(panel, shown, c)) continue;
        context.strokeStyle = colours[c];
        context.beginPath();
        for (let n = 0; n < labels.length; n += 1) {
          if (labels[n] !== c) continue;
          const [x, y] = [0, 1].map((axis) => age ? position(panel, to + 1, n, axis) : place(n, axis));
          context.moveTo(across(position(panel, to, n, 0)), down(position(panel, to, n, 1)));
          context.lineTo(across(x), down(y));
        }
        context.stroke();
      }
    }
    context.globalAlpha = 1;

    const sums = classes.map(() => [0, 0, 0]);
    const radius = Math.max(2, size / 130);
    for (let n = 0; n < labels.length; n += 1) {
      const c = labels[n];
      if (!come(panel, shown, c)) continue;
      const [x, y] = [place(n, 0), place(n, 1)];
      sums[c][0] += x; sums[c][1] += y; sums[c][2] += 1;
      context.beginPath();
      context.arc(across(x), down(y), radius, 0, 2 * Math.PI);
      context.lineWidth = 1.3;
      if (winner(panel, shown, x, y) === c) {
        context.fillStyle = colours[c];
        context.fill();
        context.strokeStyle = card;
        context.lineWidth = 0.6;
      } else {
        context.fillStyle = card;
        context.fill();
        context.strokeStyle = colours[c];
      }
      context.stroke();
    }
    for (let c = 0; c < classes.length; c += 1) {
      if (!come(panel, shown, c)) continue;
      const i = (shown * classes.length + c) * 4, s = panel.surfaces, bend = s[i + 3];
      let [x, y] = [sums[c][0] / sums[c][2], sums[c][1] / sums[c][2]];
      if (bend > 1e-3) { // a Gaussian: its mean and its width follow from the surface
        x = s[i + 1] / (2 * bend); y = s[i + 2] / (2 * bend);
        context.strokeStyle = colours[c];
        for (const [sigmas, width] of [[1, 2], [2, 1]]) {
          context.beginPath();
          context.arc(across(x), down(y), (sigmas / Math.sqrt(2 * bend)) * unit, 0, 2 * Math.PI);
          context.lineWidth = width;
          context.stroke();
        }
      }
      context.font = `700 ${Math.max(13, size / 22)}px system-ui, sans-serif`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.lineWidth = 4;
      context.strokeStyle = card;
      context.strokeText(classes[c], across(x), down(y));
      context.fillStyle = ink;
      context.fillText(classes[c], across(x), down(y));
    }
    const accuracy = panel.accuracy[settled()];
    panel.score.value = accuracy === null ? "" : `${Math.round(100 * accuracy)} %`;
  }

  function show() {
    const t = settled();
    for (const panel of panels) draw(panel);
    slider.value = String(t + 1);
    slider.setAttribute("aria-valuetext", `batch ${t + 1} of ${batches}`);
    byId("batch").value = String(t + 1);
    byId("story").textContent = story.findLast((each) => each.from <= t).text;
    for (const mark of marks) {
      const first = Number(mark.dataset.first), width = Number(mark.dataset.last) - first;
      const place = first + (time / (batches - 1)) * width;
      mark.setAttribute("x1", place);
      mark.setAttribute("x2", place);
    }
  }

  function tick(moment) {
    if (!playing) return;
    // A hidden page does not jump ahead, and a frame may have begun before the button was pressed.
    const seconds = Math.min(Math.max(moment - last, 0), 500) / 1000;
    time = Math.min(time + seconds * Number(byId("speed").value), batches - 1);
    last = moment;
    if (time >= batches - 1) setPlaying(false);
    const exact = time;
    if (still.matches) time = Math.floor(time);
    show();
    time = exact;
    if (playing) requestAnimationFrame(tick);
  }

  function setPlaying(wanted) {
    if (wanted && time >= batches - 1) time = 0;
    playing = wanted;
    play.textContent = wanted ? "Pause" : "Play";
    play.setAttribute("aria-label", wanted ? "Pause" : "Play");
    if (!wanted) {
      time = settled();
      history.replaceState(null, "", `#batch=${time + 1}`);
      show();
      return;
    }
    last = performance.now();
    requestAnimationFrame(tick);
  }

  function go(t) {
    time = Math.min(Math.max(t, 0), batches - 1);
    setPlaying(false);
  }

  function recolour() {
    const style = getComputedStyle(document.documentElement);
    colours = classes.map((_, c) => style.getPropertyValue(`--c${c}`).trim());
    ink = style.getPropertyValue("--ink").trim();
    card = style.getPropertyValue("--card").trim();
    for (const panel of panels) panel.drawn = null;
    show();
  }

  play.addEventListener("click", () => setPlaying(!playing));
  byId("back").addEventListener("click", () => go(settled() - 1));
  byId("on").addEventListener("click", () => go(settled() + 1));
  slider.addEventListener("input", () => go(Number(slider.value) - 1));
  addEventListener("keydown", (event) => {
    const control = event.target.closest("input, select, button, a");
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === " " && !control) setPlaying(!playing);
    else if (control && control.matches("input, select")) return;
    else if (event.key === "ArrowLeft") go(settled() - 1);
    else if (event.key === "ArrowRight") go(settled() + 1);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(batches - 1);
    else return;
    event.preventDefault();
  });
  addEventListener("resize", show);
  document.addEventListener("themechange", recolour);
  const asked = /^#batch=(\d+)$/.exec(location.hash)?.[1];
  time = Math.min(Math.max(asked ? Number(asked) - 1 : run.start, 0), batches - 1);
  recolour();
  if (!asked && !still.matches) setPlaying(true);
})();
