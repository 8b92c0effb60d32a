/* A rollout the reader steers: a start, controls in segments, every variant of the model. */
"use strict";

(() => {
  const spec = page.steer;
  const root = document.getElementById("steer-panel");
  if (!spec || !root) return;

  const models = Object.fromEntries(spec.variants.map((v) => [v.id, offmapPredictor.build(spec.predictors[v.id])]));
  const element = (id) => document.getElementById(id);
  const starts = element("steer-start"), replay = element("steer-replay"), steps = element("steer-steps");
  const fields = spec.states.map((_, i) => element(`steer-x-${i}`));
  const sliders = [0, 1].map((s) => spec.controls.map((_, j) => element(`steer-u-${s}-${j}`)));
  const across = element("steer-across"), up = element("steer-up");
  const digits = (v) => Number(v.toPrecision(4)).toString();

  /** The controls of every step: recorded ones, or the first segment's and then the second's. */
  function controls() {
    if (replay.checked && !replay.disabled) return spec.starts[starts.selectedIndex].u;
    const count = Number(steps.value);
    const [first, second] = sliders.map((row) => row.map((slider) => Number(slider.value)));
    return Array.from({ length: count }, (_, k) => (k < count / 2 ? first : second));
  }

  /** Largest |Γ(x) [x'; 1]| along a path, with rows of unit G. */
  function violation(variant, states, u) {
    const constraint = spec.variants.map((v) => models[v.id].gamma).find(Boolean);
    if (!constraint) return null;
    let worst = 0;
    for (let k = 0; k + 1 < states.length; k++) {
      const velocity = models[variant].predict(states[k], u[k]);
      for (const row of constraint(states[k])) {
        const n = velocity.length, size = Math.hypot(...row.subarray(0, n));
        const value = velocity.reduce((sum, v, i) => sum + v * row[i], row[n]) / (size || 1);
        worst = Math.max(worst, Math.abs(value));
      }
    }
    return worst;
  }

  /** Inputs that the model uses and that leave the range of the data on the way. */
  function offTheMap(states, u) {
    const names = [...spec.states, ...spec.controls];
    return spec.watched.filter((i) => {
      const [low, high] = spec.ranges[i];
      const value = (k) => (i < spec.states.length ? states[k][i] : u[Math.min(k, u.length - 1)][i - spec.states.length]);
      return states.some((_, k) => {
        let v = value(k);
        if (spec.angles.includes(i)) v -= 2 * Math.PI * Math.round((v - (low + high) / 2) / (2 * Math.PI));
        const slack = 1e-6 * (high - low);
        return v < low - slack || v > high + slack;
      });
    }).map((i) => names[i]);
  }

  function coordinate(select, states, index) {
    const i = Number(select.value);
    return i < 0 ? states.map((_, k) => k * spec.dt) : states.map((x) => x[i]);
  }

  function update() {
    const x0 = fields.map((field) => Number(field.value));
    const valid = x0.every(Number.isFinite) && fields.every((field) => field.value !== "");
    element("steer-words").textContent = valid ? "" : "Give a number for every state.";
    if (!valid) return;
    const u = controls();
    const paths = spec.variants.map((v) => offmapPredictor.rollout(models[v.id].predict, x0, u, spec.dt, spec.integrator));
    const traces = paths.map((states, i) => {
      const variant = spec.variants[i], own = variant.id === spec.used;
      return {
        x: coordinate(across, states), y: coordinate(up, states), mode: "lines", name: variant.label,
        line: { ...variant.line, width: own ? 3 : 2 },
      };
    });
    const recorded = spec.starts[starts.selectedIndex];
    if (replay.checked && !replay.disabled) {
      traces.push({ x: coordinate(across, recorded.x), y: coordinate(up, recorded.x), mode: "markers", name: "measured", marker: { color: "#000000", size: 4 } });
    }
    traces.push({ x: coordinate(across, [x0]), y: coordinate(up, [x0]), mode: "markers", name: "start", marker: { color: "#000000", size: 10, symbol: "circle-open", line: { width: 2 } } });
    const title = (select) => axis(select.options[select.selectedIndex].text);
    const equal = spec.equal && [across, up].every((s) => spec.plane.includes(Number(s.value)));
    const layout = { xaxis: title(across), yaxis: title(up) };
    if (equal) { layout.xaxis.constrain = "domain"; Object.assign(layout.yaxis, { scaleanchor: "x", constrain: "domain" }); }
    draw("steer-plot", traces, layout);
    report(paths, u);
  }

  function report(paths, u) {
    const body = element("steer-results");
    const heads = body.parentElement.tHead.rows[0].cells;
    body.replaceChildren(...paths.map((states, i) => {
      const row = document.createElement("tr");
      const worst = violation(spec.variants[i].id, states, u);
      const cut = states.length <= u.length ? " (diverges)" : "";
      const cells = [spec.variants[i].short + cut, ...Array.from(states[states.length - 1], digits)];
      if (spec.constrained) cells.push(worst.toExponential(1));
      cells.forEach((text, k) => {
        const cell = document.createElement(k ? "td" : "th");
        if (k) cell.className = "number"; else cell.scope = "row";
        cell.textContent = text;
        cell.dataset.label = heads[k].textContent;
        row.append(cell);
      });
      return row;
    }));
    const own = spec.variants.findIndex((v) => v.id === spec.used);
    const outside = offTheMap(paths[own], u);
    element("steer-words").textContent = outside.length
      ? `Off the map: on the way ${outside.join(", ")} ${outside.length > 1 ? "leave" : "leaves"} the range of the data.`
      : "Every input that the model uses stays within the range of the data.";
    window.offmapSteered = paths.map((states) => states.map((x) => Array.from(x)));
  }

  function begin() {
    const start = spec.starts[starts.selectedIndex];
    fields.forEach((field, i) => { field.value = digits(start.x[0][i]); });
    replay.disabled = !start.u;
    update();
  }

  function show(slider) { slider.nextElementSibling.textContent = digits(Number(slider.value)); }

  let waiting = false; // at most one rollout for each picture
  function soon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; update(); });
  }

  starts.addEventListener("change", begin);
  for (const select of [across, up, replay]) select.addEventListener("change", update);
  for (const field of fields) field.addEventListener("input", () => { replay.checked = false; soon(); });
  for (const slider of [...sliders.flat(), steps]) {
    show(slider);
    slider.addEventListener("input", () => { show(slider); replay.checked = false; soon(); });
  }
  window.offmapModels = models;
  begin();
})();
