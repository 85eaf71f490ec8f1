// Over time: the figures of groups in the order of their run, as points behind a smoothed line.

const MOST_POINTS = 60;
const SMOOTHING = 0.65; // standard deviation of the weights, as a share of the width over √points

const METRICS = {
  solved: { label: "Solved share", value: (own) => own.solved?.value ?? null, percent: true },
  reward: { label: "Mean reward", value: (own) => own.reward },
  signal: { label: "Groups with signal", value: (own) => own.signal, percent: true },
  length: { label: "Mean length in tokens", value: (own) => own.length, whole: true },
  truncated: { label: "Truncated", value: (own) => own.truncated, percent: true },
  format: { label: "Format failures", value: (own) => own.format, percent: true },
  level: { label: "Mean level", value: (own) => own.level },
};

/** Return a point for each part of a run's groups, with the figures of all metrics. */
function pointsOf(groups, series) {
  return parts(inOrder(groups), MOST_POINTS).map((own) => {
    const places = own.map((group) => data.place[group]);
    return {
      series,
      run: data.group.run[own[0]],
      first: places[0],
      last: places.at(-1),
      x: sum(places) / places.length + 1,
      groups: own.length,
      time: clock(data.group.time[own[0]]),
      figures: figuresOf(own),
    };
  });
}

/** Return the smoothed line through points: a kernel mean, weighted by groups. */
function smoothed(points) {
  if (points.length < 3) return points;
  const width = Math.max(
    1,
    ((points.at(-1).x - points[0].x) * SMOOTHING) / Math.sqrt(points.length),
  );
  return points.map((at) => {
    let [total, weights] = [0, 0];
    for (const each of points) {
      const weight = each.groups * Math.exp(-(((each.x - at.x) / width) ** 2) / 2);
      total += weight * each.value;
      weights += weight;
    }
    return { ...at, value: total / weights };
  });
}

/** Return the chart of a metric; `limits` share an axis between charts. */
function timeChart(title, metric, series, limits = {}) {
  const own = series.map((points) => valuesOf(points, metric));
  const raw = own.flat();
  if (!raw.length) return make("p", { class: "none soft" }, "no value in these groups");
  const quantity = { type: "quantitative", title: null };
  const end = limits.end ?? Math.max(...raw.map((point) => point.last + 1));
  const x = { ...quantity, field: "x", scale: { domain: [0, end], nice: false } };
  const scale = { domain: domainOf(metric, raw, limits.most), nice: true };
  const y = { ...quantity, field: "value", axis: METRICS[metric].percent ? PERCENT : {}, scale };
  const colors = { domain: SERIES.map((_, number) => number), range: SERIES };
  const color = { field: "series", type: "nominal", legend: null, scale: colors };
  const layers = [
    ...spanLayer(x),
    {
      data: { values: raw },
      mark: { type: "circle", size: 34, opacity: 0.4, cursor: "pointer" },
      encoding: { x, y, color, tooltip: tooltipOf(metric) },
    },
    {
      data: { values: own.flatMap(smoothed) },
      mark: { type: "line", strokeWidth: 2.2, interpolate: "monotone" },
      encoding: { x, y, color },
    },
  ];
  const ends = [raw[0], raw.at(-1)].map((point) => show(point.value, METRICS[metric]));
  const description = `${title} in the order of training: from ${ends[0]} to ${ends[1]}`;
  return chart(description, limits.height ?? 150, { layer: layers }, selectPoint);
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
function spanLayer(x) {
  const span = parseSpan();
  if (!span) return [];
  return [
    {
      data: { values: [{ from: span.first + 1, to: span.last + 1.01 }] },
      mark: { type: "rect", color: "var(--mark)", opacity: 0.8 },
      encoding: { x: { ...x, field: "from" }, x2: { field: "to" } },
    },
  ];
}

function selectPoint(point) {
  if (point.last === undefined) return;
  change({ span: `${point.run}:${point.first}-${point.last}` });
  goTo("rollouts");
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
  byId("time").hidden = byId("time-link").hidden = !trained;
  byId("time-none").hidden = runs.length > 0;
  byId("time-form").hidden = !runs.length;
  byId("metric").parentElement.hidden = state.by !== "category";
  if (!runs.length) return showCharts(container);
  const end = Math.max(...runs.map(({ run }) => data.order[run].length));
  container.className = state.by ? "grid small" : "grid three";
  return showCharts(
    container,
    ...(state.by ? chartsByCategory(runs, end) : chartsByMetric(runs, end)),
  );
}

function chartsByMetric(runs, end) {
  const series = runs.map(({ number, groups }) => pointsOf(groups, number));
  return Object.entries(METRICS)
    .filter(([, { value }]) => series.flat().some((point) => value(point.figures) !== null))
    .map(([metric, { label }]) => {
      const now = runs.length === 1 ? latest(series[0], METRICS[metric]) : "";
      return figure(label, now, timeChart(label, metric, series, { end }));
    });
}

function latest(points, metric) {
  const known = points
    .map((point) => ({ ...point, value: metric.value(point.figures) }))
    .filter((point) => point.value !== null);
  return known.length ? `now ${show(smoothed(known).at(-1).value, metric)}` : "";
}

/** One chart for each category, all with the same axes. */
function chartsByCategory(runs, end) {
  const metric = METRICS[state.metric] ? state.metric : "solved";
  const categories = [...new Set(data.tasks.map((task) => task.category))].sort();
  const charts = categories.map((category) => {
    const series = runs.map(({ number, groups }) =>
      pointsOf(
        groups.filter((group) => taskOf(group).category === category),
        number,
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
        end,
        most,
        height: 110,
      }),
    ),
  );
}
