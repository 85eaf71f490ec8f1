// Over time: the figures of groups in the order of their run, as points that a line joins.

const MOST_POINTS = 60;
const DIFFERENCES = 20; // parts of the steps at which runs are compared

/** What figures over time have as x: a group's value, null where it is unknown. */
const AXES = {
  step: { label: "trainer's step", of: (group) => data.group.step[group] },
  group: { label: "number of the group in its run", of: (group) => data.place[group] + 1 },
  time: {
    label: "time in UTC",
    of: (group) => data.group.time[group] && 1000 * data.group.time[group],
    is: { type: "temporal", scale: { type: "utc" } },
  },
};

/** Return the axis: the chosen one or the step if all groups have it, else the group's number. */
function axisFor(groups) {
  const has = (name) => AXES[name] && groups.every((group) => AXES[name].of(group) !== null);
  return AXES[[state.x, "step"].find(has) ?? "group"];
}

/** Return the encoding of x between these values. */
function xAlong(axis, domain) {
  const { type = "quantitative", scale = {} } = axis.is ?? {};
  const ends = { expr: JSON.stringify(domain) }; // Vega-Lite warns of plain numbers as times
  return { field: "x", type, title: null, scale: { ...scale, domain: ends, nice: false } };
}

/** Return the first and the last value of an axis that groups have. */
function extentOf(groups, axis) {
  let [low, high] = [Infinity, -Infinity];
  for (const group of groups) {
    const value = axis.of(group);
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** Split a run's groups into parts of about equal size; a value of the axis stands in one alone. */
function partsAlong(groups, axis, most) {
  const split = [];
  for (const own of parts(inOrder(groups), most)) {
    const former = split.at(-1);
    if (former && axis.of(former.at(-1)) === axis.of(own.at(-1))) former.push(...own);
    else split.push([...own]);
  }
  return split;
}

const METRICS = {
  solved: { label: "Solved share", value: (own) => own.solved?.value ?? null, percent: true },
  reward: { label: "Mean reward", value: (own) => own.reward },
  signal: { label: "Groups with signal", value: (own) => own.signal, percent: true },
  length: { label: "Mean length in tokens", value: (own) => own.length, whole: true },
  truncated: { label: "Truncated", value: (own) => own.truncated, percent: true },
  format: { label: "Format failures", value: (own) => own.format, percent: true },
  level: { label: "Mean level", value: (own) => own.level },
};

/** Return a point for each part of a run's groups, at its last one, with all metrics' figures. */
function pointsOf(groups, series, axis) {
  return partsAlong(groups, axis, MOST_POINTS).map((own) => ({
    series,
    run: data.group.run[own[0]],
    first: data.place[own[0]],
    last: data.place[own.at(-1)],
    x: axis.of(own.at(-1)),
    groups: own.length,
    time: clock(data.group.time[own[0]]),
    figures: figuresOf(own),
  }));
}

/** Return the chart of a metric along `axis` between the values of `domain`.
 *
 * `most` shares the other axis between charts, `behind` are further layers.
 */
function timeChart(title, metric, series, { axis, domain, most, height = 150, behind, onBrush }) {
  const own = series.map((points) => valuesOf(points, metric));
  const raw = own.flat();
  if (!raw.length) return make("p", { class: "none soft" }, "no value in these groups");
  const x = xAlong(axis, domain);
  const scale = { domain: domainOf(metric, raw, most), nice: true };
  const y = { ...quantity("value", { scale }), axis: METRICS[metric].percent ? PERCENT : {} };
  const colors = { domain: SERIES.map((_, number) => number), range: SERIES };
  const color = { field: "series", type: "nominal", legend: null, scale: colors };
  const brush = { name: "brush", select: { type: "interval", encodings: ["x"] } };
  const runs = [...new Set(raw.map(({ run }) => run))];
  const layers = [
    ...(behind?.(x) ?? spanLayer(x, axis)),
    ...markLayers(runs, x, axis),
    {
      data: { values: raw },
      mark: { type: "circle", size: 34, opacity: 0.4, cursor: onBrush ? "crosshair" : "pointer" },
      encoding: { x, y, color, tooltip: tooltipOf(metric) },
      ...(onBrush ? { params: [brush] } : {}),
    },
    {
      data: { values: raw },
      mark: { type: "line", strokeWidth: 2.2 },
      encoding: { x, y, color },
    },
  ];
  const ends = [raw[0], raw.at(-1)].map((point) => show(point.value, METRICS[metric]));
  const description = `${title} by ${axis.label}: from ${ends[0]} to ${ends[1]}`;
  const actions = onBrush ? { onBrush } : { onClick: selectPoint };
  return chart(description, height, { layer: layers }, actions);
}

/** Return the points that have a value of a metric. */
function valuesOf(points, metric) {
  const found = points.map(({ figures, ...point }) => {
    const { solved } = figures;
    const interval = solved ? `${percent(solved.low)} to ${percent(solved.high)}` : "–";
    return {
      ...point,
      value: METRICS[metric].value(figures),
      interval,
      rollouts: figures.rollouts,
    };
  });
  return found.filter((point) => point.value !== null);
}

/** Shares of solved rollouts and of signal have the whole axis; a reward may be negative. */
function domainOf(metric, points, most) {
  const values = points.map((point) => point.value);
  const high = most ?? Math.max(...values);
  if (metric === "solved" || metric === "signal") return [0, 1];
  if (metric === "reward") return [Math.min(0, ...values), Math.max(1, high)];
  return [0, Math.max(METRICS[metric].percent ? 0.05 : 1, high)];
}

/** The chosen span of groups, behind the points. */
function spanLayer(x, axis) {
  const span = parseSpan();
  return span ? [windowLayer(x, axis, data.order[span.run], span, "var(--mark)", 0.8)] : [];
}

/** Places of an order, from `first` to `last`, as a background. */
function windowLayer(x, axis, order, { first, last }, color, opacity) {
  const [from, to] = [first, last].map((place) => axis.of(order[Math.min(place, order.length - 1)]));
  return {
    data: { values: [{ from, to }] },
    mark: { type: "rect", color, stroke: color, opacity, clip: true },
    encoding: { x: { ...x, field: "from" }, x2: { field: "to" } },
  };
}

function selectPoint(point) {
  if (point.last === undefined) return;
  change({ span: `${point.run}:${point.first}-${point.last}`, section: "rollouts" });
}

function show(value, metric) {
  if (metric.percent) return percent(value);
  return metric.whole ? whole(value) : decimal(value);
}

function tooltipOf(metric) {
  const first = [
    { field: "value", title: "value", format: METRICS[metric].percent ? ".1%" : ",.3~f" },
    { field: "groups", title: "groups", format: "," },
    { field: "rollouts", title: "rollouts", format: "," },
    { field: "time", title: "from" },
  ];
  if (metric === "solved") first.splice(1, 0, { field: "interval", title: "95%" });
  return first;
}

/** Return the training runs shown, with their groups but for the chosen span. */
function trainingSeries(groups) {
  const shown = shownRuns();
  return [...byRun(groups)]
    .filter(([run]) => data.runs[run].kind === "training")
    .sort(([one], [other]) => one - other)
    .map(([run, own]) => ({ run, number: shown.indexOf(run), groups: own }));
}

function showTime() {
  const runs = trainingSeries(groupsLeft("span"));
  const container = byId("time-charts");
  const trained = data.runs.some((run) => run.kind === "training");
  byId("time").hidden = !trained;
  byId("time-none").hidden = runs.length > 0;
  byId("time-form").hidden = !runs.length;
  byId("metric").parentElement.hidden = state.by !== "category";
  if (!runs.length) return showCharts(container);
  const groups = runs.flatMap((run) => run.groups);
  const axis = axisFor(groups);
  byId("time-axis").textContent = axis.label;
  const legend = ({ run, number }) =>
    make("li", {}, dot(number), " ", make("bdi", {}, line(data.runs[run].name)));
  byId("time-legend").replaceChildren(...(runs.length > 1 ? runs.map(legend) : []));
  const along = { axis, domain: extentOf(groups, axis) };
  container.className = state.by ? "grid small" : "grid three";
  return showCharts(
    container,
    ...(state.by ? chartsByCategory(runs, along) : chartsByMetric(runs, along)),
    ...(runs.length > 1 && axis !== AXES.time ? [differenceChart(runs, axis)] : []),
  );
}

/** Return, for parts of an axis that two runs have in common, by how much the other's share differs. */
function differences(one, other, axis) {
  const [from, until] = [one, other]
    .map((run) => extentOf(run.groups, axis))
    .reduce(([low, high], [begin, end]) => [Math.max(low, begin), Math.min(high, end)]);
  const number = Math.max(1, Math.min(DIFFERENCES, until - from + 1));
  const partOf = (group) => {
    const x = axis.of(group);
    return x < from || x > until ? -1 : Math.floor((number * (x - from)) / (until - from + 1));
  };
  const parted = [one, other].map((run) => groupBy(run.groups, partOf));
  return Array.from({ length: Math.ceil(number) }, (_, part) => part).flatMap((part) => {
    const [base, own] = parted.map((groups) => figuresOf(groups.get(part) ?? []).solved);
    if (!base || !own) return [];
    const value = own.value - base.value;
    const spread = NORMAL_QUANTILE * Math.hypot(base.error ?? 1, own.error ?? 1);
    const x = from + ((part + 0.5) * (until - from + 1)) / number - 0.5;
    return [{ series: other.number, x, value, low: Math.max(-1, value - spread), high: Math.min(1, value + spread) }];
  });
}

/** The solved shares of runs less that of the first one, at equal steps. */
function differenceChart(runs, axis) {
  const [first, ...others] = runs;
  const values = others.flatMap((other) => differences(first, other, axis));
  const title = `Solved share less that of ${line(data.runs[first.run].name)}`;
  if (!values.length) return figure(title, "", make("p", { class: "none soft" }, "no step in common"));
  const x = xAlong(axis, [values[0].x, values.at(-1).x]);
  const y = (field) => quantity(field, { axis: PERCENT });
  const colors = { domain: SERIES.map((_, number) => number), range: SERIES };
  const color = { field: "series", type: "nominal", legend: null, scale: colors };
  const layer = [
    { data: { values: [{ y: 0 }] }, mark: { type: "rule", color: "var(--soft)" }, encoding: { y: y("y") } },
    { mark: { type: "area", opacity: 0.16 }, encoding: { x, y: y("low"), y2: { field: "high" }, color } },
    { mark: { type: "line", strokeWidth: 2.2, point: true }, encoding: { x, y: y("value"), color } },
  ];
  const last = values.at(-1);
  const said = `at last ${points(last.value)} points, 95% ${points(last.low)} to ${points(last.high)}`;
  return figure(title, said, chart(`${title} by ${axis.label}: ${said}`, 150, { data: { values }, layer }));
}

function chartsByMetric(runs, along) {
  const series = runs.map(({ number, groups }) => pointsOf(groups, number, along.axis));
  return Object.entries(METRICS)
    .filter(([, { value }]) => series.flat().some((point) => value(point.figures) !== null))
    .map(([metric, { label }]) => {
      const now = runs.length === 1 ? latest(series[0], METRICS[metric]) : "";
      return figure(label, now, timeChart(label, metric, series, along));
    });
}

function latest(points, metric) {
  const known = points
    .map((point) => ({ ...point, value: metric.value(point.figures) }))
    .filter((point) => point.value !== null);
  return known.length ? `now ${show(known.at(-1).value, metric)}` : "";
}

/** One chart for each category, all with the same axes. */
function chartsByCategory(runs, along) {
  const metric = METRICS[state.metric] ? state.metric : "solved";
  const categories = [...new Set(data.tasks.map((task) => task.category))].sort();
  const charts = categories.map((category) => {
    const series = runs.map(({ number, groups }) =>
      pointsOf(
        groups.filter((group) => taskOf(group).category === category),
        number,
        along.axis,
      ),
    );
    return { category, series, groups: sum(series.flat().map((point) => point.groups)) };
  });
  const values = charts.flatMap(({ series }) =>
    series.flat().map((point) => METRICS[metric].value(point.figures) ?? 0),
  );
  const most = Math.max(0, ...values);
  return charts.map(({ category, series, groups }) =>
    figure(
      category,
      plural(groups, "group"),
      timeChart(`${METRICS[metric].label}, ${category}`, metric, series, {
        ...along,
        most,
        height: 110,
      }),
    ),
  );
}
