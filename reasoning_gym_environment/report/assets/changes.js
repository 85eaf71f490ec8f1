// What changed: the tasks' contributions to a change between two windows of a run, with reasons.

const WINDOW_FIELDS = ["before-first", "before-last", "after-first", "after-last"];
const LEAST_WINDOW = 50; // groups of a default window, if a run has twice as many
const NOTED_FACTOR = 1.5; // a length that changes less is not mentioned

/** Return the windows of a run: those chosen, around its largest change, or its last fifths. */
function windowsOf(run) {
  const found = /^(\d+):(\d+)-(\d+),(\d+)-(\d+)$/.exec(state.windows)?.slice(1).map(Number);
  const size = data.order[run].length;
  if (found && found[0] === run) {
    const [, ...ends] = found.map((each) => Math.min(each, size - 1));
    return { before: { first: ends[0], last: ends[1] }, after: { first: ends[2], last: ends[3] } };
  }
  const [largest] = data.runs[run].flags ?? [];
  if (largest) return windowsAround(run, largest);
  const own = windowSize(size);
  return {
    before: { first: size - 2 * own, last: size - own - 1 },
    after: { first: size - own, last: size - 1 },
  };
}

const windowSize = (size) =>
  Math.min(Math.floor(size / 2), Math.max(LEAST_WINDOW, Math.ceil(size / 5)));

/** Return the windows around a change: the groups before it, and its own. */
function windowsAround(run, { since, until }) {
  const numbers = data.order[run].map((group) => data.group.number[group]);
  const size = numbers.length;
  const begin = numbers.findIndex((number) => number >= since);
  const first = begin > 0 ? begin : Math.min(Math.max(1, since - 1), size - 1); // without numbers
  const over = until === null ? -1 : numbers.findIndex((number) => number > until);
  const end = over > first ? over : size;
  const own = windowSize(size);
  return {
    before: { first: Math.max(0, first - own), last: first - 1 },
    after: { first, last: Math.min(end, first + own) - 1 },
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
    commonLevel: one.some(({ level }) => other.some((row) => row.level === level)),
    beyond: found.has(part.name),
    groupsBefore: [...new Set(one.map(({ group }) => group))],
    groupsAfter: [...new Set(other.map(({ group }) => group))],
  }));
  rows.sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
  const [one, other] = [errorOf(before), errorOf(after)];
  const error = one === null || other === null ? null : Math.hypot(one, other);
  return { from: meanValue(before), to: meanValue(after), error, rows };
}

const REASONS = {
  answers: ({ value }) => (value > 0 ? "more right answers" : "fewer right answers"),
  level: (row) => {
    const cause = row.commonLevel ? "level" : "level or ability: no common level,";
    return `${cause} ${fromTo(row, "level", decimal)}`;
  },
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

/** Show the changes that Python finds, each with the windows around it and its rollouts. */
function showFlags(run) {
  const flags = data.runs[run].flags ?? [];
  byId("flags").hidden = !flags.length;
  byId("flags").replaceChildren(
    ...flags.map((flag) => {
      const around = () => chooseWindows(run, windowsAround(run, flag));
      const read = () => {
        change({ ...NO_FILTERS, runs: String(run), where: flag.where });
        goTo("rollouts");
      };
      return make(
        "li",
        {},
        ...[line(flag.text), " "],
        makeButton("Compare around it", around, { "data-key": `flag ${flag.text}` }),
        " ",
        makeButton("Read its rollouts", read, { "data-key": `read ${flag.text}` }),
      );
    }),
  );
  showEvents(run);
}

const CHANGE_IN_LOG = "Look at the rollouts"; // what the log says of a change, which is shown anyway

/** Return what the log of a run warned of, each with its place among the run's groups. */
function eventsOf(run) {
  const order = data.order[run] ?? [];
  const events = data.runs[run].warnings.filter(({ text }) => !text.startsWith(CHANGE_IN_LOG));
  return events.map((event) => {
    const seconds = Date.parse(event.time) / 1000;
    const after = order.findIndex((group) => data.group.time[group] >= seconds);
    return { ...event, seconds, place: after < 0 ? order.length - 1 : after };
  });
}

function showEvents(run) {
  const events = eventsOf(run);
  const steps = notedSteps(run);
  byId("note-form").hidden = !source.live || data.runs[run].step === null;
  byId("events").hidden = !events.length && !steps.length;
  const counts = [
    events.length && `${plural(events.length, "warning")} of the log`,
    steps.length && plural(steps.length, "note"),
  ];
  byId("events-said").textContent = counts.filter(Boolean).join(", ");
  byId("event-list").replaceChildren(
    ...steps.map(({ about, text }) =>
      make("li", {}, `${about}: `, make("bdi", {}, line(text)), " ", noteButton(run, about)),
    ),
    ...events.map(({ place, time, level, text }) => {
      const at = `group ${whole(place + 1)}, ${line(time).slice(11, 19)} ${line(level)}: `;
      return make("li", {}, at, make("bdi", {}, line(text)));
    }),
  );
}

/** Lines at what the log warned of and at noted steps, behind the points of a run. */
function eventLayers(runs, x, axis) {
  const values = runs.flatMap((run) =>
    eventsOf(run).map(({ place, seconds, level, text }) => ({
      x: axis === AXES.time ? 1000 * seconds : axis.of(data.order[run][place]),
      said: line(`${level}: ${text}`).slice(0, 120),
    })),
  );
  for (const run of runs) {
    for (const { about, text, place } of notedSteps(run))
      values.push({ x: axis.of(data.order[run][place]), said: line(`${about}: ${text}`).slice(0, 120) });
  }
  if (!values.length) return [];
  const mark = { type: "rule", color: "var(--fault)", strokeDash: [3, 3], strokeWidth: 1.5, clip: true };
  return [{ data: { values }, mark, encoding: { x, tooltip: [tip("said", "event")] } }];
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

/** Return the changes that begin among some groups of a run. */
function flagsWithin(run, first, last) {
  const [from, to] = [first, last].map((place) => data.group.number[data.order[run][place]]);
  return (data.runs[run].flags ?? []).filter(({ since }) => since >= from && since <= to);
}

function showContributions(run, groups, { before, after }) {
  const within = ({ first, last }) =>
    groups.filter((group) => data.place[group] >= first && data.place[group] <= last);
  const measure = state.measure === "reward" ? "reward" : "solved";
  const found = contributions(within(before), within(after), measure);
  byId("contribution-table").hidden = byId("within-noise").hidden = !found;
  if (!found) {
    byId("changes-said").textContent = "No scored rollouts in one of the windows.";
    return;
  }
  const flags = flagsWithin(run, before.first, after.last);
  const rows = found.rows.map((row) => ({
    ...row,
    figures: [figuresOf(row.groupsBefore), figuresOf(row.groupsAfter)],
    repeats: flags.some(({ task, kinds }) => task === row.task && kinds.includes("repeats")),
    named: flags.some(({ task }) => task === row.task),
  }));
  const beyond = rows.filter((row) => row.beyond || row.named);
  const noise = rows.filter((row) => !beyond.includes(row));
  const metric = METRICS[measure];
  byId("changes-said").textContent = describeTotal(found, metric);
  const columns = contributionColumns(run, after, metric, rows);
  const label = "What tasks contribute to the change";
  byId("contribution-table").hidden = !beyond.length;
  showTable(byId("contribution-table"), { label, columns, rows: beyond, sort: "" });
  byId("within-noise").hidden = !noise.length;
  byId("noise-said").textContent = `${plural(noise.length, "task")} within noise`;
  showTable(byId("noise-table"), { label: `${label}, within noise`, columns, rows: noise, sort: "" });
}

const points = (value) => `${value >= 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)}`;

/** Return the change of the mean over all tasks with its interval, in words. */
function describeTotal({ from, to, error, rows }, metric) {
  const spread = NORMAL_QUANTILE * error;
  const interval = error === null ? "" : `, 95% ${points(to - from - spread)} to ${points(to - from + spread)}`;
  const total = `${metric.label}: ${show(from, metric)} → ${show(to, metric)}`;
  const beyond = rows.filter((row) => row.beyond).length;
  const tasks = `${beyond} of ${plural(rows.length, "task")} beyond noise`;
  return `${total} (${points(to - from)} points${interval}); ${tasks}.`;
}

function contributionColumns(run, { first, last }, metric, rows) {
  const most = Math.max(...rows.map(({ value }) => Math.abs(value)));
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
      cell: (row) => {
        const [from, to] = counts(row).map((count, side) =>
          count === "0" ? "–" : show([row.from, row.to][side], metric),
        );
        return `${from} → ${to}`;
      },
    },
    { key: "groups", label: "Groups", cell: (row) => counts(row).join(" → ") },
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
