// The figures of a run: its last groups and earlier ones, in a table and in one large chart.

const WINDOW_FIELDS = ["before-first", "before-last", "after-first", "after-last"];

/** Return the windows of a run, in places of its order: those chosen, or its last two tenths. */
function windowsOf(run) {
  const found = /^(\d+):(\d+)-(\d+),(\d+)-(\d+)$/.exec(state.windows)?.slice(1).map(Number);
  const size = data.order[run].length;
  if (found && found[0] === run) {
    const [, ...ends] = found.map((each) => Math.min(each, size - 1));
    const [before, after] = [ends.slice(0, 2), ends.slice(2)].map(([first, last]) => ({ first, last }));
    return { before, after, chosen: true };
  }
  const sizes = partsOfSeries(data.order[run]).map((part) => part.length);
  const [own, former] = [sizes.at(-1), sizes.at(-2)];
  return {
    before: { first: Math.max(0, size - own - former), last: Math.max(0, size - own - 1) },
    after: { first: size - own, last: size - 1 },
    chosen: false,
  };
}

/** Return the state that has these windows. */
function stateOfWindows(run, { before, after }) {
  const text = [before, after].map(({ first, last }) => `${first}-${last}`).join(",");
  return { windows: `${run}:${text}` };
}

/** Return groups in the order of their numbers, or of their run where one has none. */
function numbered(groups) {
  const { number } = data.group;
  if (!groups.every((group) => number[group] > 0)) return inOrder(groups);
  return [...groups].sort((one, other) => number[one] - number[other]);
}

/** Return the parts of some groups of a run that are compared: both chosen windows, or tenths. */
function comparedParts(run, groups) {
  const { before, after, chosen } = windowsOf(run);
  if (!chosen) return partsOfSeries(numbered(groups));
  const within = ({ first, last }) =>
    groups.filter((group) => data.place[group] >= first && data.place[group] <= last);
  return [within(before), within(after)];
}

const leastSize = () => Math.max(0, Number(state.size) || 0) / 100;

/** Return the training run whose figures are shown: the one chosen, that of the windows, or the first. */
function figuresSeries(all = trainingSeries(groupsLeft("span"))) {
  const chosen = state.of || state.windows.split(":")[0];
  return all.find(({ run }) => String(run) === chosen) ?? all[0];
}

function showFigures() {
  const all = trainingSeries(groupsLeft("span"));
  const series = figuresSeries(all);
  const trained = Boolean(series) && series.groups.length > 1;
  byId("figures").hidden = !trained;
  if (!trained) return;
  const { run, groups } = series;
  const windows = windowsOf(run);
  const ends = [windows.before, windows.after].flatMap(({ first, last }) => [first + 1, last + 1]);
  WINDOW_FIELDS.forEach((name, place) => (byId(name).value = ends[place]));
  byId("size").value = state.size;
  byId("reset-windows").hidden = !windows.chosen;
  const names = all.map((each) => [String(each.run), line(data.runs[each.run].name)]);
  fillOptions(byId("figures-run"), names, String(run));
  byId("figures-run").parentElement.hidden = all.length < 2;
  showFiguresTable(run, groups, windows);
  showMarks(run);
  showCurve(series, windows);
  showHandles(run);
}

/** Return the labels of the compared parts. */
function partNames({ chosen }, groups) {
  if (chosen) return { last: "After", before: "Before" };
  const part = groups.length >= TENTHS_FROM ? "tenth" : "third";
  return { last: `Last ${part}`, before: "The one before", first: `First ${part}`, best: `Best ${part}` };
}

function showFiguresTable(run, groups, windows) {
  const isAll = !state.task && !state.category;
  const { target = null } = data.runs[run];
  const limits = { rows: MARKED.length, size: leastSize(), target: isAll ? target : null };
  const rows = figuresOfParts(comparedParts(run, groups), data.value, data.cell, limits);
  const names = partNames(windows, groups);
  const value = (key) => ({
    ...{ key, label: names[key] },
    cell: (row) => valueText(row.measure, row[key]),
  });
  const gap = (kind, key, label, help) => ({
    ...{ key: `${kind} ${key}`, label, help },
    cell: (row) => differenceText(row.measure, row[kind][key]),
  });
  const columns = [
    { key: "measure", label: "Measure", text: true, cell: measureCell },
    value("last"),
    value("before"),
    ...(windows.chosen ? [] : [value("first"), value("best")]),
    gap("whole", "before", "To before"),
    ...(windows.chosen ? [] : [gap("whole", "first", "To first")]),
    gap("level", "before", "Same level, to before"),
    ...(windows.chosen ? [] : [gap("level", "first", "to first"), gap("level", "best", "to best")]),
    {
      ...{ key: "covered", label: "Compared" },
      cell: ({ measure, level: { before, first } }) =>
        measure.name === "level"
          ? "–"
          : [before, ...(windows.chosen ? [] : [first])]
              .map((found) => percent(found?.covered ?? 0, 0))
              .join(", "),
    },
  ];
  showTable(byId("figures-table"), { label: "Figures", columns, rows, sort: "" });
}

function measureCell({ measure, target, marked }) {
  const mark = marked ? [" ", make("span", { class: "worse" }, "▲ worse")] : [];
  const aim = target === null ? [] : [make("span", { class: "soft" }, `, target ${percent(target, 0)}`)];
  return [measure.label, ...aim, ...mark];
}

function valueText(measure, value) {
  if (value === null || value === undefined) return "–";
  if (measure.percent) return percent(value);
  return measure.whole ? whole(Math.round(value)) : value.toFixed(2);
}

/** Return a difference with half the width of its interval; of shares, in points. */
function differenceText(measure, found) {
  if (!found) return "–";
  const text = (value) => {
    if (measure.percent) return (100 * value).toFixed(1);
    return measure.whole ? whole(Math.round(value)) : value.toFixed(2);
  };
  const signed = `${found.value < 0 ? "−" : "+"}${text(Math.abs(found.value))}`;
  return found.low === null ? signed : `${signed} ± ${text((found.high - found.low) / 2)}`;
}

const CURVE_POINTS = 60;
const CURVE_HEIGHT = 300;

/** Return a point for each part of a run's groups: the mean, that at the same level, the level. */
function curveOf(groups, axis, measure) {
  const split = partsAlong(groups, axis, CURVE_POINTS);
  const values = data.value[measure.name];
  const means = standardisedMeans(split, values, data.cell);
  return split.map((own, place) => ({
    x: axis.of(own.at(-1)),
    groups: own.length,
    value: meanOf(sumsOf(own, values, data.cell)),
    same: means[place],
    level: meanOf(sumsOf(own, data.value.level, data.cell)),
  }));
}

/** The measure over groups, with both windows behind it, which one drags anew. */
function showCurve({ run, groups }, windows) {
  const axis = state.x ? axisFor(groups) : AXES.group;
  const measure = MEASURES.find(({ name }) => name === state.measure) ?? MEASURES[0];
  const points = curveOf(groups, axis, measure);
  const known = points.filter(({ value }) => value !== null);
  const leveled = known.some(({ level }) => level !== null) && measure.name !== "level";
  const x = xAlong(axis, extentOf(groups, axis));
  const y = (field) => ({
    ...quantity(field, measure.percent ? { scale: { domain: [0, 1] } } : { scale: { zero: true } }),
    axis: measure.percent ? PERCENT : {},
  });
  const format = measure.percent ? ".1%" : ",.3~f";
  const tooltip = [
    ...[tip("value", measure.label, format), tip("same", "at the same level", format)],
    ...[tip("level", "mean level", ".2f"), tip("groups", "groups", ",")],
  ];
  const brush = { name: "brush", select: { type: "interval", encodings: ["x"] } };
  const colors = { before: "var(--different)", after: "var(--mark)" };
  const stroke = { type: "line", strokeWidth: 2.2 };
  const layer = [
    ...["before", "after"].map((name) =>
      windowLayer(x, axis, data.order[run], windows[name], colors[name], 0.8),
    ),
    ...markLayers([run], x, axis),
    {
      data: { values: known },
      mark: { type: "circle", size: 34, opacity: 0.5, cursor: "crosshair", color: "var(--series-0)" },
      encoding: { x, y: y("value"), tooltip },
      params: [brush],
    },
    { data: { values: known }, mark: { ...stroke, color: "var(--series-0)" }, encoding: { x, y: y("value") } },
    {
      data: { values: known.filter(({ same }) => same !== null) },
      mark: { ...stroke, color: "var(--series-1)", strokeDash: [7, 3] },
      encoding: { x, y: y("same") },
    },
  ];
  const levels = {
    data: { values: known.filter(({ level }) => level !== null) },
    mark: { type: "line", strokeWidth: 1.6, color: "var(--soft)", strokeDash: [2, 3] },
    encoding: { x, y: quantity("level", { axis: { orient: "right", grid: false, format: ".1f" }, scale: { zero: false } }) },
  };
  const specification = leveled
    ? { layer: [{ layer }, levels], resolve: { scale: { y: "independent" } } }
    : { layer };
  const onBrush = ([low, high]) => {
    const inside = (group) => axis.of(group) >= low && axis.of(group) <= high;
    const places = data.order[run].flatMap((group, place) => (inside(group) ? [place] : []));
    if (!places.length) return;
    const own = { first: places[0], last: places.at(-1) };
    change(stateOfWindows(run, { ...windows, [byId("drag").value]: own }));
  };
  const ends = [known[0], known.at(-1)].map((point) => valueText(measure, point?.value));
  const description = `${measure.label} by ${axis.label}: from ${ends[0]} to ${ends[1]}`;
  const key = (mark, text) => make("span", {}, make("span", { class: mark, "aria-hidden": "true" }), ` ${text}`);
  const caption = make(
    "figcaption",
    {},
    make("span", { class: "title" }, `${measure.label} of ${line(data.runs[run].name)}`),
    make(
      "span",
      { class: "soft windows" },
      key("stroke mean", "mean"),
      key("stroke same", "at the same level"),
      ...(leveled ? [key("stroke level", "mean level, right axis")] : []),
      key("swatch before", "before"),
      key("swatch after", "after"),
      `by ${axis.label}`,
    ),
  );
  const onPlot = (view) => placeHandles(view, run, axis);
  for (const handle of handles()) handle.hidden = !known.length;
  const content = known.length
    ? chart(description, CURVE_HEIGHT, specification, { onBrush, onPlot })
    : make("p", { class: "none soft" }, "no value in these groups");
  showCharts(byId("figures-chart"), make("figure", {}, caption, content));
}

/** Compare the groups that are entered. */
function windowsFromFields() {
  const { run } = figuresSeries();
  const [first, last, ...after] = WINDOW_FIELDS.map((name) => Math.max(0, Number(byId(name).value) - 1));
  if (last < first || after[1] < after[0]) return;
  const entered = { before: { first, last }, after: { first: after[0], last: after[1] } };
  change(stateOfWindows(run, entered));
}

/** By which share of the run's groups a key moves the end of a window. */
const KEY_SHARES = {
  ...{ ArrowLeft: -1 / CURVE_POINTS, ArrowDown: -1 / CURVE_POINTS, PageDown: -1 / 10, Home: -1 },
  ...{ ArrowRight: 1 / CURVE_POINTS, ArrowUp: 1 / CURVE_POINTS, PageUp: 1 / 10, End: 1 },
};

const handles = () => [...document.querySelectorAll(".handle")];

/** Return the place of a handle's end in the order of the run, and the least and the largest one. */
function placesOf(handle, run, windows) {
  const [name, end] = handle.dataset.end.split("-");
  const { first, last } = windows[name];
  if (end === "first") return { name, end, place: first, least: 0, most: last };
  return { name, end, place: last, least: first, most: data.order[run].length - 1 };
}

/** Move the end of a window by a key on its handle; return whether the key is for that. */
function moveByHandle({ target, key, ctrlKey, metaKey, altKey }) {
  const share = KEY_SHARES[key];
  if (!share || ctrlKey || metaKey || altKey) return false;
  const { run } = figuresSeries();
  const windows = windowsOf(run);
  const { name, end, place, least, most } = placesOf(target, run, windows);
  const groups = Math.max(1, Math.round(Math.abs(share) * data.order[run].length));
  const moved = Math.min(most, Math.max(least, place + Math.sign(share) * groups));
  if (moved !== place) {
    const changed = { ...windows[name], [end]: moved };
    Object.assign(state, stateOfWindows(run, { ...windows, [name]: changed }));
    showHandles(run);
  }
  return true;
}

/** Say in the handles which groups the windows have. */
function showHandles(run) {
  const size = data.order[run].length;
  for (const handle of handles()) {
    const { place, least, most } = placesOf(handle, run, windowsOf(run));
    handle.setAttribute("aria-valuemin", least + 1);
    handle.setAttribute("aria-valuemax", most + 1);
    handle.setAttribute("aria-valuenow", place + 1);
    handle.setAttribute("aria-valuetext", `group ${whole(place + 1)} of ${whole(size)}`);
  }
}

/** Put the handles on the ends of the windows in the drawn curve. */
function placeHandles(view, run, axis) {
  const { offsetLeft, offsetTop } = byId("figures-chart").querySelector(".chart");
  const [left, top] = view.origin();
  const padding = view.padding();
  for (const handle of handles()) {
    const { place } = placesOf(handle, run, windowsOf(run));
    const x = view.scale("x")(axis.of(data.order[run][place]));
    const inside = Math.min(view.width(), Math.max(0, x));
    handle.style.left = `${offsetLeft + padding.left + left + inside}px`;
    handle.style.top = `${offsetTop + padding.top + top}px`;
  }
}
