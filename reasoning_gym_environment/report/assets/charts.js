// Charts with Vega-Lite, drawn when they come into view, in the colors of the page's theme.

const darkTheme = matchMedia("(prefers-color-scheme: dark)");

/** Replace `var(--name)`, which charts can't use, by the theme's color. */
function themed(specification) {
  const style = getComputedStyle(document.documentElement);
  const text = JSON.stringify(specification);
  return JSON.parse(
    text.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim()),
  );
}

const CHART_STYLE = {
  background: null,
  font: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
  padding: { left: 0, right: 8, top: 6, bottom: 2 },
  view: { stroke: null },
  axis: {
    domain: false,
    ticks: false,
    gridColor: "var(--grid)",
    labelColor: "var(--soft)",
    titleColor: "var(--soft)",
    labelFontSize: 12,
    titleFontSize: 12,
    titleFontWeight: "normal",
    labelPadding: 6,
    labelLimit: 170,
  },
  axisX: { labelOverlap: "parity", labelSeparation: 8, grid: false, tickCount: 5 },
  axisY: { tickCount: 4 },
};

const SERIES = Array.from({ length: MOST_RUNS }, (_, number) => `var(--series-${number})`);
const PERCENT = { format: "%" };

const quantity = (field, more = {}) => ({ field, type: "quantitative", title: null, ...more });
const tip = (field, title, format) => ({ field, title, format });

const drawings = new Map(); // element -> {specification, onClick, onBrush, onPlot, view, ink}
const inView = new Set();
let busy = Promise.resolve();

const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) inView.add(target);
      else inView.delete(target);
    }
    drawVisible();
  },
  { rootMargin: "200px" },
);

/** Return an element in which a chart is drawn once it is visible.
 *
 * `onClick` gets the datum that is clicked, `onBrush` the values of x between which one drags: the
 * specification has an interval "brush". `onPlot` gets Vega's view once it is drawn, and when its
 * width changes.
 */
function chart(description, height, specification, { onClick, onBrush, onPlot } = {}) {
  const element = make("div", { class: "chart", role: "img", "aria-label": description });
  element.style.height = `${height + 30}px`;
  const sized = { ...specification, height, description }; // Vega labels the element with it
  drawings.set(element, { specification: sized, onClick, onBrush, onPlot });
  observer.observe(element);
  return element;
}

/** Return the color of text, by which themes differ; a print has a light one. */
const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--ink");

/** Return whether a chart is not drawn yet, or in the colors of another theme. */
const isStale = (drawing) => drawing.ink !== ink();

function drawVisible() {
  document.documentElement.dataset.charts = "drawing";
  busy = busy.then(async () => {
    for (const element of inView) {
      const drawing = drawings.get(element);
      if (drawing && isStale(drawing) && element.isConnected) await draw(element, drawing);
    }
    document.documentElement.dataset.charts = "drawn";
  });
}

/** Draw the charts for a print, also those that were never in view.
 *
 * Drawing waits for nothing but promises, so that all are there when the browser lays out the print.
 */
function drawPrint() {
  document.documentElement.classList.add("printed"); // which has the light theme
  for (const [element, drawing] of drawings) {
    const hasWidth = element.isConnected && element.offsetWidth > 0;
    if (hasWidth && isStale(drawing)) draw(element, drawing);
  }
}

addEventListener("beforeprint", drawPrint);
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printed");
  drawVisible();
});

async function draw(element, drawing) {
  drawing.ink = ink();
  drawing.view?.finalize();
  const specification = {
    ...themed(drawing.specification),
    autosize: { type: "fit-x", contains: "padding" },
    width: "container",
  };
  const drawn = await vegaEmbed(element, specification, {
    actions: false,
    ast: true, // interpret expressions: the page forbids eval
    config: themed(CHART_STYLE),
    defaultStyle: false,
    renderer: "svg",
    tooltip: { disableDefaultStyle: true },
  });
  drawing.view = drawn;
  element.querySelector("svg")?.setAttribute("aria-hidden", "true");
  if (drawing.onClick) {
    drawn.view.addEventListener("click", (_, item) => item?.datum && drawing.onClick(item.datum));
  }
  if (drawing.onBrush) listenToBrush(element, drawn.view, drawing.onBrush);
  if (drawing.onPlot) {
    const tell = () => drawing.onPlot(drawn.view);
    // The scales follow the width.
    drawn.view.addSignalListener("width", () => drawn.view.runAfter(tell));
    tell();
  }
}

/** Tell the interval once the pointer is released, wherever that is. */
function listenToBrush(element, view, onBrush) {
  let chosen;
  view.addSignalListener("brush", (_, { x }) => (chosen = x));
  element.addEventListener("pointerdown", () => {
    chosen = undefined;
    addEventListener("pointerup", () => chosen && onBrush(chosen.map(Number)), { once: true });
  });
}

/** Forget the charts of an element, which gets new ones. */
function clearCharts(container) {
  for (const element of container.querySelectorAll(".chart")) {
    observer.unobserve(element);
    inView.delete(element);
    drawings.get(element)?.view?.finalize();
    drawings.delete(element);
  }
}

darkTheme.addEventListener("change", drawVisible);

/** A chart with its title; a note stands beside the title. */
function figure(title, note, ...content) {
  const caption = make("figcaption", {}, make("span", { class: "title" }, title));
  if (note) caption.append(make("span", { class: "soft" }, note));
  return make("figure", {}, caption, ...content);
}

/** Fill an element with new charts at once; until they are drawn, the former ones are seen. */
function showCharts(container, ...content) {
  const former = [...container.querySelectorAll(".chart")].map((element) => [
    ...element.childNodes,
  ]);
  clearCharts(container);
  container.replaceChildren(...content);
  const charts = [...container.querySelectorAll(".chart")];
  if (charts.length === former.length)
    charts.forEach((element, number) => element.append(...former[number]));
}
