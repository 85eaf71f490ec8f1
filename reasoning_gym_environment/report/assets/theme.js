// The colours of the page's theme, for charts: they can't use CSS variables themselves.

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
  padding: { left: 0, right: 8, top: 4, bottom: 5 },
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
    labelLimit: 160,
  },
  axisX: { labelOverlap: "parity", labelSeparation: 8 },
  axisY: { labelColor: "var(--ink)" },
  legend: { labelColor: "var(--soft)", titleColor: "var(--soft)", titleFontWeight: "normal" },
  text: { color: "var(--ink)", fontSize: 12 },
};

const darkTheme = matchMedia("(prefers-color-scheme: dark)");
