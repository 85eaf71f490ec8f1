// Draws the charts, and draws them anew when the theme changes.

const drawings = readJson("charts");
let views = [];

/** A row a name: Vega-Lite's own steps don't go with a chart as wide as its place. */
function heightOf(look, values) {
  const rows = new Set(values.map((value) => value[look.encoding.y?.field]));
  return look.height.step ? look.height.step * rows.size : look.height;
}

async function draw(element) {
  const place = element.dataset.chart;
  const chart = drawings.charts[place];
  const look = themed(drawings.looks[chart.looks]);
  const specification = {
    ...look,
    autosize: { type: "fit-x", contains: "padding" },
    height: heightOf(look, chart.values),
    width: "container",
    description: chart.says,
    params: Object.entries(chart.parameters).map(([name, value]) => ({ name, value })),
    data: { values: chart.values },
  };
  const drawn = await vegaEmbed(element, specification, {
    actions: false,
    ast: true, // expressions are interpreted: the page forbids code made from text
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
