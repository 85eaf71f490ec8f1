// What changed: the tasks' contributions to a change between two windows of a run, with reasons.

const WINDOW_FIELDS = ["before-first", "before-last", "after-first", "after-last"];
const LEAST_WINDOW = 50; // groups of a default window, if a run has twice as many
const NOTED_FACTOR = 1.5; // a length that changes less is not mentioned

/** Return the windows of a run: those chosen, or its last fifth and the one before. */
function windowsOf(run) {
  const found = /^(\d+):(\d+)-(\d+),(\d+)-(\d+)$/.exec(state.windows)?.slice(1).map(Number);
  const size = data.order[run].length;
  if (found && found[0] === run) {
    const [, ...ends] = found.map((each) => Math.min(each, size - 1));
    return { before: { first: ends[0], last: ends[1] }, after: { first: ends[2], last: ends[3] } };
  }
  const own = Math.min(Math.floor(size / 2), Math.max(LEAST_WINDOW, Math.ceil(size / 5)));
  return {
    before: { first: size - 2 * own, last: size - own - 1 },
    after: { first: size - own, last: size - 1 },
  };
}

function chooseWindows(run, { before, after }) {
  const text = [before, after].map(({ first, last }) => `${first}-${last}`).join(",");
  change({ windows: `${run}:${text}` });
}

function endingOf(rollout) {
  if (data.rollout.truncated[rollout]) return "truncation";
  return data.rollout.format_failure[rollout] ? "format" : "answers";
}

/** Return a row for each scored rollout. */
function scoredRows(groups, measure) {
  const rows = [];
  eachRollout(groups, (each, group) => {
    if (data.rollout.score[each] === null) return;
    const [task, level] = [data.group.task[group], data.group.level[group]];
    const value = data.rollout[measure][each];
    rows.push({ group, task, level, ending: endingOf(each), value });
  });
  return rows;
}

const meanValue = (rows) => sum(rows.map(({ value }) => value)) / rows.length;

/**
 * Split the change of a mean into what each key contributes: `own` by its changed mean, `mix` by
 * its changed share of the rows. They add up to the change, whatever the center is.
 */
function splitChange(before, after, key, center) {
  const [one, other] = [groupBy(before, key), groupBy(after, key)];
  const parts = [...new Set([...one.keys(), ...other.keys()])].map((name) => {
    const [a, b] = [one.get(name) ?? [], other.get(name) ?? []];
    const [from, to] = [meanValue(a.length ? a : b), meanValue(b.length ? b : a)];
    const [light, heavy] = [a.length / before.length, b.length / after.length];
    return { name, before: a, after: b, from, to, gain: heavy - light, weight: (light + heavy) / 2 };
  });
  const reference = parts.find(({ name }) => name === center) ?? {
    from: meanValue(before),
    to: meanValue(after),
  };
  return parts.map((part) => ({
    ...part,
    own: part.weight * (part.to - part.from),
    mix: (part.gain * (part.from + part.to - reference.from - reference.to)) / 2,
  }));
}

/** Return what a task's changed mean is made of: its level, and at each level how answers end. */
function reasonsOf(task) {
  const reasons = { mix: task.mix, level: 0, truncation: 0, format: 0, answers: 0 };
  if (!task.before.length || !task.after.length) return reasons;
  for (const level of splitChange(task.before, task.after, (row) => row.level)) {
    reasons.level += task.weight * level.mix;
    if (!level.before.length || !level.after.length) continue;
    for (const ending of splitChange(level.before, level.after, (row) => row.ending, "answers")) {
      reasons[ending.name] += task.weight * level.weight * ending.mix;
      reasons.answers += task.weight * level.weight * ending.own;
    }
  }
  return reasons;
}

/** Return the standard error of a mean, clustered by group, at least that of a group that differs. */
function errorOf(rows) {
  const groups = [...groupBy(rows, ({ group }) => group).values()];
  const { variance } = clusteredMean(groups.map((own) => [own.length, own.length * meanValue(own)]));
  return variance === null ? null : Math.max(Math.sqrt(variance), 1 / groups.length);
}

/** Return the tasks' contributions to the change of a measure, the largest first. */
function contributions(groupsBefore, groupsAfter, measure) {
  const [before, after] = [groupsBefore, groupsAfter].map((own) => scoredRows(own, measure));
  if (!before.length || !after.length) return null;
  const chances = new Map();
  const tasks = splitChange(before, after, ({ task }) => task).map((part) => {
    const errors = [part.before, part.after].map((own) => (own.length ? errorOf(own) : null));
    const sigmas = Math.abs(part.to - part.from) / Math.hypot(...errors);
    if (!errors.includes(null)) chances.set(part.name, erfc(sigmas / Math.SQRT2));
    return { ...part, task: data.tasks[part.name].name, value: part.own + part.mix };
  });
  const found = discoveries(chances);
  const rows = tasks.map(({ before: one, after: other, ...part }) => ({
    ...part,
    reasons: reasonsOf({ ...part, before: one, after: other }),
    beyond: found.has(part.name),
    groupsBefore: [...new Set(one.map(({ group }) => group))],
    groupsAfter: [...new Set(other.map(({ group }) => group))],
  }));
  rows.sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
  return { from: meanValue(before), to: meanValue(after), rows };
}

const REASONS = {
  answers: ({ value }) => (value > 0 ? "more right answers" : "fewer right answers"),
  level: (row) => `level ${fromTo(row, "level", decimal)}`,
  mix: ({ gain }) => `${gain > 0 ? "more" : "fewer"} rollouts of it`,
  truncation: (row) => `truncated ${fromTo(row, "truncated", rounded)}`,
  format: (row) => `no answer ${fromTo(row, "format", rounded)}`,
};

function fromTo({ figures }, name, text) {
  return figures.map((own) => (own[name] === null ? "–" : text(own[name]))).join(" → ");
}

/** Return a row's reasons in words: the largest, and the next one if it has half its size. */
function describeReasons(row) {
  const ranked = Object.entries(row.reasons)
    .filter(([, value]) => value * row.value > 0)
    .sort(([, one], [, other]) => Math.abs(other) - Math.abs(one));
  const large = ranked
    .slice(0, 2)
    .filter(([, value]) => Math.abs(value) >= Math.abs(ranked[0][1]) / 2);
  const said = large.map(([name]) => REASONS[name](row));
  const [short, long] = row.figures.map(({ length }) => length).sort((one, other) => one - other);
  if (short && long / short >= NOTED_FACTOR) said.push(`length ${fromTo(row, "length", whole)}`);
  if (row.repeats) said.push("answers repeat");
  return said.join(", ");
}

function showChanges() {
  const all = trainingSeries(groupsLeft("span", "task"));
  const series = all.find(({ run }) => state.windows.startsWith(`${run}:`)) ?? all[0];
  const trained = Boolean(series) && series.groups.length > 1;
  byId("changes").hidden = byId("changes-link").hidden = !trained;
  if (!trained) return;
  const { run } = series;
  const windows = windowsOf(run);
  const ends = [windows.before, windows.after].flatMap(({ first, last }) => [first + 1, last + 1]);
  WINDOW_FIELDS.forEach((name, place) => (byId(name).value = ends[place]));
  showFlags(run);
  showWindows(series, windows);
  showContributions(run, series.groups, windows);
}

/** Show the changes that Python finds, each with the windows around its begin. */
function showFlags(run) {
  const flags = data.runs[run].flags ?? [];
  byId("flags").hidden = !flags.length;
  byId("flags").replaceChildren(
    ...flags.map(({ since, text }) => {
      const place = data.order[run].findIndex((group) => data.group.number[group] >= since);
      const around = () => chooseWindows(run, windowsAround(run, place));
      const attributes = { "data-key": `flag ${text}` };
      return make("li", {}, line(text), " ", makeButton("Compare around it", around, attributes));
    }),
  );
}

function windowsAround(run, place) {
  const size = data.order[run].length;
  const own = Math.min(Math.max(LEAST_WINDOW, Math.ceil(size / 5)), Math.max(1, place), size - place);
  return {
    before: { first: Math.max(0, place - own), last: Math.max(0, place - 1) },
    after: { first: place, last: place + own - 1 },
  };
}

/** The measure over time with both windows behind it, which one drags anew. */
function showWindows({ run, number, groups }, windows) {
  const axis = axisFor(groups);
  const { measure } = state;
  const title = METRICS[measure].label;
  const colors = { before: "var(--different)", after: "var(--mark)" };
  const layer = (x, name) =>
    windowLayer(x, axis, data.order[run], windows[name], colors[name], 0.8);
  const onBrush = ([low, high]) => {
    const inside = (group) => axis.of(group) >= low && axis.of(group) <= high;
    const places = data.order[run].flatMap((group, place) => (inside(group) ? [place] : []));
    if (!places.length) return;
    const chosen = { first: places[0], last: places.at(-1) };
    chooseWindows(run, { ...windows, [byId("drag").value]: chosen });
  };
  const drawn = timeChart(title, measure, [pointsOf(groups, number, axis)], {
    ...{ axis, domain: extentOf(groups, axis), onBrush },
    behind: (x) => ["before", "after"].map((name) => layer(x, name)),
  });
  const swatches = ["before", "after"].flatMap((name) => [
    make("span", { class: `swatch ${name}`, "aria-hidden": "true" }),
    ` ${name}, `,
  ]);
  const note = make("span", { class: "soft windows" }, ...swatches, ` by ${axis.label}`);
  const caption = make("figcaption", {}, make("span", { class: "title" }, title), note);
  showCharts(byId("changes-chart"), make("figure", {}, caption, drawn));
}

function showContributions(run, groups, { before, after }) {
  const within = ({ first, last }) =>
    groups.filter((group) => data.place[group] >= first && data.place[group] <= last);
  const measure = state.measure === "reward" ? "reward" : "solved";
  const found = contributions(within(before), within(after), measure);
  byId("contribution-table").hidden = !found;
  if (!found) {
    byId("changes-said").textContent = "No scored rollouts in one of the windows.";
    return;
  }
  const { from, to } = found;
  const metric = METRICS[measure];
  const points = (value) => `${value >= 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)}`;
  byId("changes-said").textContent =
    `${metric.label}: ${show(from, metric)} → ${show(to, metric)} (${points(to - from)} points).`;
  const repeating = new Set(
    (data.runs[run].flags ?? []).filter(({ kinds }) => kinds.includes("repeats")).map(({ task }) => task),
  );
  const rows = found.rows.map((row) => ({
    ...row,
    figures: [figuresOf(row.groupsBefore), figuresOf(row.groupsAfter)],
    repeats: repeating.has(row.task),
  }));
  const most = Math.max(...rows.map(({ value }) => Math.abs(value)));
  showTable(byId("contribution-table"), {
    label: "What tasks contribute to the change",
    columns: contributionColumns(run, after, metric, points, most),
    rows,
    sort: "",
  });
}

function contributionColumns(run, { first, last }, metric, points, most) {
  const read = ({ task }) => {
    change({ task, span: `${run}:${first}-${last}` });
    goTo("rollouts");
  };
  const bar = ({ value, beyond }) =>
    differenceBar({ value: value / most, low: 0, high: value / most, beyond });
  const counts = (row) => [row.groupsBefore, row.groupsAfter].map(({ length }) => whole(length));
  return [
    {
      ...{ key: "task", label: "Task", text: true },
      cell: (row) =>
        makeButton(line(row.task), () => chooseTask({ name: row.task }), { class: "plain" }),
    },
    {
      ...{ key: "contribution", label: "Contribution" },
      cell: (row) =>
        make(
          "span",
          { class: "solved-cell" },
          most ? bar(row) : "",
          make("span", { class: "value" }, points(row.value)),
        ),
    },
    { key: "reason", label: "Reason", text: true, cell: describeReasons },
    {
      ...{ key: "means", label: metric.label },
      cell: ({ from, to }) => `${show(from, metric)} → ${show(to, metric)}`,
    },
    { key: "groups", label: "Groups", cell: (row) => counts(row).join(" → ") },
    {
      ...{ key: "beyond", label: "Beyond noise", text: true },
      cell: (row) => (row.beyond ? "yes" : "no"),
    },
    {
      ...{ key: "read", label: "Rollouts", text: true },
      cell: (row) =>
        makeButton("Read", () => read(row), {
          class: "plain link",
          "aria-label": `Read rollouts of ${line(row.task)} after the change`,
          "data-key": `read ${row.task}`,
        }),
    },
  ];
}

/** Compare the groups that are entered. */
function windowsFromFields() {
  const series = trainingSeries(groupsLeft("span", "task"));
  const { run } = series.find((each) => state.windows.startsWith(`${each.run}:`)) ?? series[0];
  const [first, last, ...after] = WINDOW_FIELDS.map((name) => Math.max(0, Number(byId(name).value) - 1));
  if (last < first || after[1] < after[0]) return;
  chooseWindows(run, { before: { first, last }, after: { first: after[0], last: after[1] } });
}
