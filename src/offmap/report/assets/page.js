/* Draws the figures of the page from the data that it carries. */
"use strict";

const page = JSON.parse(document.getElementById("page-data").textContent);

const LAYOUT = {
  font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", size: 13, color: "#1b1f24" },
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  margin: { l: 54, r: 10, t: 10, b: 42 },
  hovermode: "closest",
  dragmode: false, // a finger on a figure scrolls the page
  showlegend: false,
};
const CONFIG = { responsive: true, displaylogo: false, displayModeBar: false, showTips: false };

/** Draw or redraw a flat figure. */
function draw(id, data, layout) {
  return Plotly.react(id, data, { ...LAYOUT, ...layout }, CONFIG);
}

/** Draw a figure in space. */
function drawSpace(id, figure) {
  const holder = document.getElementById(id);
  holder.closest("figure").hidden = !figure;
  return figure && Plotly.react(holder, figure.data, { ...LAYOUT, ...figure.layout, dragmode: "turntable" }, CONFIG);
}

/** Keep a picture of each figure in space for print, where WebGL leaves a hole. */
async function keepPictures() {
  for (const holder of document.querySelectorAll(".plot.space.js-plotly-plot")) {
    const picture = holder.parentElement.querySelector("img");
    picture.src = await Plotly.toImage(holder, { format: "png", width: 640, height: 480 });
  }
}

/** A line with a band of two standard deviations around it. */
function band(t, middle, std, colour) {
  const edge = { x: t, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
  const fill = colour + "38";
  return [
    { ...edge, y: middle.map((v, i) => v - 2 * std[i]) },
    { ...edge, y: middle.map((v, i) => v + 2 * std[i]), fill: "tonexty", fillcolor: fill },
  ];
}

const axis = (text) => ({ title: { text, standoff: 4 }, gridcolor: "#E3E6EA", zerolinecolor: "#C9CED4", automargin: true });

function drawTrial(index) {
  const { states, variants, used, trials, dt } = page.rollouts;
  const trial = trials[index];
  const t = trial.x.map((_, k) => k * dt);
  states.forEach((name, j) => {
    const column = (rows) => rows.map((row) => row[j]);
    const measured = { x: t, y: column(trial.x), mode: "markers", marker: { color: "#000000", size: 4 }, name: "measured" };
    const lines = variants.map((v) => ({
      x: t, y: column(trial.predicted[v.id]), mode: "lines", name: v.label,
      line: { ...v.line, width: v.id === used ? 2.5 : 1.6 },
    }));
    const own = variants.find((v) => v.id === used);
    const layout = { xaxis: axis("time (s)"), yaxis: { ...axis(name), nticks: 5 }, margin: { l: 50, r: 6, t: 6, b: 36 } };
    draw(`state-${j}`, [...band(t, column(trial.predicted[used]), column(trial.std), own.line.color), ...lines, measured], layout);
  });
}

function drawScene(index) {
  const scene = page.scenes[index];
  document.getElementById("scene-words").textContent = scene.words;
  drawSpace("manifold", scene.manifold);
  drawSpace("feasible", scene.feasible);
  return new Promise((done) => setTimeout(() => done(keepPictures()), 300)); // the page comes first
}

/** Call `show` with the chosen index now and whenever the choice changes. */
function chosen(id, show) {
  const select = document.getElementById(id);
  if (!select) return Promise.resolve();
  select.addEventListener("change", () => show(select.selectedIndex));
  return Promise.resolve(show(select.selectedIndex));
}

/* Print is narrower than a screen and wider than a phone: figures are redrawn for it and back. */
function redrawn(printing) {
  document.documentElement.classList.toggle("printing", printing);
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    Plotly.relayout(plot, { width: plot.clientWidth, height: plot.clientHeight });
  }
}
window.addEventListener("beforeprint", () => redrawn(true));
window.addEventListener("afterprint", () => redrawn(false));

for (const [id, figure] of Object.entries(page.figures)) draw(id, figure.data, figure.layout);
chosen("trial", drawTrial);
/** Resolves when every figure stands; tests and printers may wait for it. */
window.offmapReady = chosen("scene", drawScene);
