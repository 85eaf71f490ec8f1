// Draws the charts, and redraws them when the theme changes.

const drawings = readJson("charts");
let views = [];

/** One row per name: Vega-Lite's own steps don't work with a responsive width. */
function heightOf(spec, values) {
  const rows = new Set(values.map((value) => value[spec.encoding.y?.field]));
  return spec.height.step ? spec.height.step * rows.size : spec.height;
}

async function draw(element) {
  const place = element.dataset.chart;
  const chart = drawings.charts[place];
  const spec = themed(drawings.specs[chart.spec]);
  const specification = {
    ...spec,
    autosize: { type: "fit-x", contains: "padding" },
    height: heightOf(spec, chart.values),
    width: "container",
    description: chart.description,
    params: Object.entries(chart.parameters).map(([name, value]) => ({ name, value })),
    data: { values: chart.values },
  };
  const drawn = await vegaEmbed(element, specification, {
    actions: false,
    ast: true, // interpret expressions: the page forbids eval
    config: themed(CHART_STYLE),
    defaultStyle: false,
    renderer: "svg",
    tooltip: { disableDefaultStyle: true },
  });
  drawn.view.addEventListener("click", (_, item) => {
    const mark = item?.datum ?? {};
    const task = place.startsWith("task/") ? mark.name : mark.task;
    if (task) readTask(task);
  });
  views.push(drawn);
}

async function drawAll() {
  for (const view of views) view.finalize();
  views = [];
  for (const element of document.querySelectorAll("[data-chart]")) await draw(element);
  document.documentElement.dataset.charts = "drawn";
}

darkTheme.addEventListener("change", drawAll);
