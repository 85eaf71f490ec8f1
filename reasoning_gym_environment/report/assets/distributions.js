// Distributions of one run's rollouts: runs are never pooled.

const KINDS = ["solved", "wrong", "format", "fault", "unscored"];
const KIND_LABELS = {
  solved: "solved",
  wrong: "wrong",
  format: "format failure",
  fault: "fault",
  unscored: "unscored",
};
const KIND_COLORS = KINDS.map((kind) => `var(--${kind})`);
const LENGTH_BINS = 30;

/** Round up to the next of 1, 2, 5, 10, 20, 50, … */
function roundWidth(width) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, width)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= width);
}

function showDistributions() {
  const runs = byRun(groupsLeft());
  const shown = shownRuns().filter((run) => runs.has(run));
  const run = shown.includes(Number(state.of)) && state.of !== "" ? Number(state.of) : shown[0];
  fillOptions(
    byId("of"),
    shown.map((each) => [String(each), line(data.runs[each].name)]),
    String(run),
  );
  byId("of").parentElement.hidden = shown.length < 2;
  const container = byId("distribution-charts");
  if (run === undefined) return showCharts(container);
  const groups = runs.get(run);
  return showCharts(
    container,
    ...[statusChart, lengthChart, rewardByLength, scoreChart, difficultyChart, statusesOverTime]
      .map((each) => each(groups))
      .filter(Boolean),
  );
}

function statusChart(groups) {
  const counts = groupBy(groups.flatMap(rolloutsOf), statusOf);
  const total = sum([...counts.values()].map((own) => own.length));
  const values = [...counts]
    .sort(([, one], [, other]) => other.length - one.length)
    .map(([name, { length }]) => {
      const said = `${percent(length / total)} · ${whole(length)}`;
      return { name, status: words(name), kind: kindOf(name), share: length / total, said };
    });
  const y = { field: "status", type: "nominal", sort: null, title: null };
  const x = quantity("share", { axis: null, scale: { domain: [0, 1.35] } });
  const bar = { type: "bar", height: 16, cornerRadiusEnd: 2, cursor: "pointer" };
  const text = { type: "text", align: "left", dx: 6, color: "var(--ink)", fontSize: 12 };
  const layer = [
    { mark: bar, encoding: { color: colorOfKind("kind") } },
    { mark: text, encoding: { text: { field: "said" } } },
  ];
  const description = values.map(({ status, said }) => `${status} ${said}`).join(", ");
  const select = ({ name }) => change({ where: `status:${name}`, section: "rollouts" });
  const specification = { data: { values }, encoding: { x, y }, layer };
  const drawn = chart(
    `Rollouts by status: ${description}`,
    26 * values.length,
    specification,
    { onClick: select },
  );
  return figure("Statuses", `${plural(total, "rollout")}; select one to read it`, drawn);
}

const colorOfKind = (field) => ({
  field,
  type: "nominal",
  legend: null,
  scale: { domain: KINDS, range: KIND_COLORS },
});

function eachRollout(groups, use) {
  for (const group of groups) {
    for (let each = data.first[group]; each < data.first[group + 1]; each += 1) use(each, group);
  }
}

/** Count rollouts by bin and by whether they are solved; returns rows for a stacked histogram. */
function histogram(groups, value, width, end, last = Infinity) {
  const counts = new Map();
  let total = 0;
  eachRollout(groups, (rollout) => {
    const own = value(rollout);
    if (own === null) return;
    total += 1;
    if (own > end) return;
    const key = `${Math.min(last, Math.floor(own / width + 1e-9))} ${data.rollout.solved[rollout]}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  });
  return [...counts].map(([key, count]) => {
    const [bin, solved] = key.split(" ").map(Number);
    return {
      start: bin * width,
      end: (bin + 1) * width,
      kind: solved ? "solved" : "wrong",
      said: solved ? "solved" : "not solved",
      share: count / total,
      count,
    };
  });
}

function histogramChart(description, values) {
  return chart(description, 150, {
    data: { values },
    mark: { type: "bar", binSpacing: 1 },
    encoding: {
      x: quantity("start", { bin: { binned: true } }),
      x2: { field: "end" },
      y: quantity("share", { axis: PERCENT }),
      color: colorOfKind("kind"),
      order: { field: "said", sort: "descending" },
      tooltip: [
        tip("start", "from", ",.2~f"),
        tip("end", "to", ",.2~f"),
        tip("said", "of"),
        tip("share", "share of rollouts", ".1%"),
        tip("count", "rollouts", ","),
      ],
    },
  });
}

function lengthChart(groups) {
  const lengths = sortedLengths(groups);
  if (!lengths.length || !lengths.at(-1)) return null;
  const end = quantile(lengths, 0.99);
  const beyond = lengths.filter((each) => each > end).length;
  const values = histogram(
    groups,
    (each) => data.rollout.tokens[each],
    roundWidth(end / LENGTH_BINS),
    end,
  );
  const note = beyond
    ? `${whole(beyond)} longer than ${whole(end)}, up to ${whole(lengths.at(-1))}`
    : "";
  return figure(
    "Length in tokens",
    note,
    histogramChart(
      `Completion lengths: median ${whole(quantile(lengths, 0.5))}, 99th percentile ${whole(end)}`,
      values,
    ),
  );
}

function scoreChart(groups) {
  const values = histogram(groups, (each) => data.rollout.score[each], 0.05, 1, 19);
  if (!values.length) return null;
  return figure(
    "Verifier's score",
    "share of scored rollouts",
    histogramChart("Distribution of the verifier's scores", values),
  );
}

/** Count rollouts by length and reward; return cells, and the mean reward by length. */
function lengthsAndRewards(groups, end, width) {
  const { tokens, reward, score } = data.rollout;
  const rollouts = groups
    .flatMap(rolloutsOf)
    .filter((each) => tokens[each] !== null && score[each] !== null && tokens[each] <= end);
  const low = rollouts.reduce((least, each) => Math.min(least, reward[each]), 0);
  const high = rollouts.reduce((most, each) => Math.max(most, reward[each]), 1);
  const height = (high - low) / 10;
  const [cells, columns] = [new Map(), new Map()];
  for (const each of rollouts) {
    const x = width * Math.floor(tokens[each] / width);
    const y = low + height * Math.min(9, Math.floor((reward[each] - low) / height + 1e-9));
    const cell = cells.get(`${x} ${y}`) ?? { x, x2: x + width, y, y2: y + height, count: 0 };
    cells.set(`${x} ${y}`, { ...cell, count: cell.count + 1 });
    const column = columns.get(x) ?? { x: x + width / 2, total: 0, count: 0 };
    columns.set(x, { ...column, total: column.total + reward[each], count: column.count + 1 });
  }
  const means = [...columns.values()]
    .filter(({ count }) => count >= 5)
    .map((column) => ({ ...column, y: column.total / column.count }))
    .sort((one, other) => one.x - other.x);
  return { cells: [...cells.values()], means, domain: [low, high] };
}

function rewardByLength(groups) {
  const lengths = sortedLengths(groups);
  if (!lengths.length || !lengths.at(-1)) return null;
  const end = quantile(lengths, 0.99);
  const { cells, means, domain } = lengthsAndRewards(groups, end, roundWidth(end / 20));
  if (!cells.length) return null;
  const axes = { x: quantity("x"), y: quantity("y", { scale: { domain, nice: false } }) };
  const range = ["var(--heat-low)", "var(--heat-high)"];
  const color = quantity("count", { legend: null, scale: { type: "sqrt", domainMin: 0, range } });
  const counted = tip("count", "rollouts", ",");
  const mean = "var(--mean)";
  const layer = [
    {
      data: { values: cells },
      mark: { type: "rect" },
      encoding: {
        ...axes,
        x2: { field: "x2" },
        y2: { field: "y2" },
        color,
        tooltip: [tip("x", "tokens from"), tip("y", "reward from", ".2f"), counted],
      },
    },
    {
      data: { values: means },
      mark: { type: "line", color: mean, strokeWidth: 2.2, point: { size: 26, color: mean } },
      encoding: { ...axes, tooltip: [tip("y", "mean reward", ".3f"), counted] },
    },
  ];
  if (!means.length) layer.pop();
  const drawn = chart("Reward against completion length in tokens", 150, { layer });
  return figure("Reward against length", "cells: rollouts; line: mean reward", drawn);
}

/** Solved share by the difficulty of the items, on ladders of different heights. */
function difficultyChart(groups) {
  const placed = groups.filter((group) => data.group.difficulty[group] !== null);
  if (!placed.length) return null;
  const values = [...groupBy(placed, difficultyLabel)]
    .map(([name, own]) => {
      const { solved } = figuresOf(own);
      return {
        ...solved,
        solved: solved?.value ?? null,
        name,
        difficulty: Number(name),
        groups: own.length,
      };
    })
    .filter((each) => each.solved !== null);
  const x = quantity("difficulty", { scale: { domain: [-0.03, 1.03], nice: false } });
  const y = (field) => quantity(field, { axis: PERCENT, scale: { domain: [0, 1] } });
  const size = quantity("groups", { legend: null, scale: { domainMin: 0, range: [30, 220] } });
  const interval = [tip("low", "95% from", ".1%"), tip("high", "95% to", ".1%")];
  const shares = [tip("name", "difficulty"), tip("solved", "solved", ".1%"), ...interval];
  const layer = [
    {
      mark: { type: "rule", color: "var(--series-0)", strokeWidth: 2 },
      encoding: { x, y: y("low"), y2: { field: "high" } },
    },
    {
      mark: { type: "circle", color: "var(--series-0)", opacity: 1, cursor: "pointer" },
      encoding: { x, y: y("solved"), size, tooltip: [...shares, tip("groups", "groups", ",")] },
    },
  ];
  const rest = groups.length - placed.length;
  const note = rest
    ? `${plural(rest, "group")} at default difficulty`
    : "0 is a ladder's lowest level";
  const description = "Solved share by difficulty with 95% intervals";
  const select = ({ name }) => name && change({ difficulty: name });
  return figure(
    "Solved by difficulty",
    note,
    chart(description, 150, { data: { values }, layer }, { onClick: select }),
  );
}

function statusesOverTime(groups) {
  if (runOf(groups[0]).kind !== "training" || groups.length < 8) return null;
  const axis = axisFor(groups);
  const domain = extentOf(groups, axis);
  const split = partsAlong(groups, axis, 24);
  const values = split.flatMap((own, number) => {
    const kinds = groupBy(own.flatMap(rolloutsOf), (each) => kindOf(statusOf(each)));
    const total = sum(own.map((group) => data.group.size[group]));
    const x = axis.of(own[0]);
    const end = split[number + 1] ? axis.of(split[number + 1][0]) : domain[1];
    let high = 0;
    return KINDS.map((kind) => {
      const count = kinds.get(kind)?.length ?? 0;
      const low = high;
      high += count / total;
      return { x, end, low, high, said: KIND_LABELS[kind], kind, share: count / total, count };
    });
  });
  const specification = {
    data: { values },
    mark: { type: "rect" },
    encoding: {
      x: xAlong(axis, domain),
      x2: { field: "end" },
      y: quantity("low", { axis: PERCENT, scale: { domain: [0, 1] } }),
      y2: { field: "high" },
      color: colorOfKind("kind"),
      tooltip: [tip("said", "status"), tip("share", "share", ".1%"), tip("count", "rollouts", ",")],
    },
  };
  const drawn = chart(`Shares of statuses by ${axis.label}`, 150, specification);
  return figure("Statuses over time", "share of rollouts", drawn);
}
