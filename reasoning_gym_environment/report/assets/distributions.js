// Distributions of one run's rollouts: runs are never pooled.

const KINDS = ["solved", "wrong", "format", "fault", "unscored"];
const KIND_LABELS = { solved: "solved", wrong: "wrong", format: "format failure", fault: "fault", unscored: "unscored" };
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
  fillOptions(byId("of"), shown.map((each) => [String(each), line(data.runs[each].name)]), String(run));
  byId("of").parentElement.hidden = shown.length < 2;
  const container = byId("distribution-charts");
  if (run === undefined) return showCharts(container);
  const groups = runs.get(run);
  return showCharts(container, ...[statusChart, lengthChart, rewardByLength, scoreChart, difficultyChart, statusesOverTime]
    .map((each) => each(groups)).filter(Boolean));
}

function statusChart(groups) {
  const counts = new Map();
  let total = 0;
  eachRollout(groups, (rollout) => {
    counts.set(statusOf(rollout), (counts.get(statusOf(rollout)) ?? 0) + 1);
    total += 1;
  });
  const values = [...counts].sort((a, b) => b[1] - a[1]).map(([status, count]) => ({
    status: words(status), kind: kindOf(status), name: status, share: count / total, count, said: `${percent(count / total)} · ${whole(count)}`,
  }));
  const y = { field: "status", type: "nominal", sort: null, title: null };
  const x = { field: "share", type: "quantitative", axis: null, scale: { domain: [0, 1.35] } };
  return figure("Statuses", `${plural(total, "rollout")}; select one to read it`, chart(
    `Rollouts by status: ${values.map(({ status, said }) => `${status} ${said}`).join(", ")}`, 26 * values.length,
    {
      data: { values },
      encoding: { y, x },
      layer: [
        { mark: { type: "bar", height: 16, cornerRadiusEnd: 2, cursor: "pointer" }, encoding: { color: colorOfKind("kind") } },
        { mark: { type: "text", align: "left", dx: 6, color: "var(--ink)", fontSize: 12 }, encoding: { text: { field: "said" } } },
      ],
    },
    ({ name }) => {
      change({ status: name });
      goTo("rollouts");
    },
  ));
}

const colorOfKind = (field) => ({ field, type: "nominal", legend: null, scale: { domain: KINDS, range: KIND_COLORS } });

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
    return { start: bin * width, end: (bin + 1) * width, kind: solved ? "solved" : "wrong", said: solved ? "solved" : "not solved", share: count / total, count };
  });
}

function histogramChart(description, values, title) {
  return chart(description, 150, {
    data: { values },
    mark: { type: "bar", binSpacing: 1 },
    encoding: {
      x: { field: "start", bin: { binned: true }, type: "quantitative", title },
      x2: { field: "end" },
      y: { field: "share", type: "quantitative", axis: { ...PERCENT, title: null } },
      color: colorOfKind("kind"),
      order: { field: "said", sort: "descending" },
      tooltip: [
        { field: "start", title: "from", format: ",.2~f" },
        { field: "end", title: "to", format: ",.2~f" },
        { field: "said", title: "of" },
        { field: "share", title: "share of rollouts", format: ".1%" },
        { field: "count", title: "rollouts", format: "," },
      ],
    },
  });
}

function lengthChart(groups) {
  const lengths = sortedLengths(groups);
  if (!lengths.length || !lengths.at(-1)) return null;
  const end = quantile(lengths, 0.99);
  const beyond = lengths.filter((each) => each > end).length;
  const values = histogram(groups, (each) => data.rollout.tokens[each], roundWidth(end / LENGTH_BINS), end);
  const note = beyond ? `${whole(beyond)} longer than ${whole(end)}, up to ${whole(lengths.at(-1))}` : "";
  return figure("Length in tokens", note, histogramChart(`Completion lengths: median ${whole(quantile(lengths, 0.5))}, 99th percentile ${whole(end)}`, values, null));
}

function scoreChart(groups) {
  const values = histogram(groups, (each) => data.rollout.score[each], 0.05, 1, 19);
  if (!values.length) return null;
  return figure("Verifier's score", "share of scored rollouts", histogramChart("Distribution of the verifier's scores", values, null));
}

/** Rollouts by length and reward, as cells. */
function rewardByLength(groups) {
  const lengths = sortedLengths(groups);
  if (!lengths.length || !lengths.at(-1)) return null;
  const end = quantile(lengths, 0.99);
  const width = roundWidth(end / 20);
  const cells = new Map();
  const columns = new Map();
  let [low, high] = [0, 1];
  eachRollout(groups, (each) => {
    low = Math.min(low, data.rollout.reward[each]);
    high = Math.max(high, data.rollout.reward[each]);
  });
  const height = (high - low) / 10;
  eachRollout(groups, (each) => {
    const { tokens, reward, score } = data.rollout;
    if (tokens[each] === null || score[each] === null || tokens[each] > end) return;
    const x = Math.floor(tokens[each] / width);
    const y = Math.min(9, Math.floor((reward[each] - low) / height + 1e-9));
    cells.set(`${x} ${y}`, (cells.get(`${x} ${y}`) ?? 0) + 1);
    const own = columns.get(x) ?? [0, 0];
    columns.set(x, [own[0] + 1, own[1] + reward[each]]);
  });
  if (!cells.size) return null;
  const values = [...cells].map(([key, count]) => {
    const [x, y] = key.split(" ").map(Number);
    return { x: x * width, x2: (x + 1) * width, y: low + y * height, y2: low + (y + 1) * height, count };
  });
  const means = [...columns].sort((a, b) => a[0] - b[0]).filter(([, [count]]) => count >= 5)
    .map(([x, [count, total]]) => ({ x: (x + 0.5) * width, y: total / count, count }));
  const axes = { x: { field: "x", type: "quantitative", title: null }, y: { field: "y", type: "quantitative", title: null, scale: { domain: [low, high], nice: false } } };
  return figure("Reward against length", "cells: rollouts; line: mean reward", chart("Reward against completion length in tokens", 150, {
    layer: [
      {
        data: { values },
        mark: { type: "rect" },
        encoding: {
          ...axes,
          x2: { field: "x2" },
          y2: { field: "y2" },
          color: { field: "count", type: "quantitative", legend: null, scale: { type: "sqrt", domainMin: 0, range: ["var(--heat-low)", "var(--heat-high)"] } },
          tooltip: [{ field: "x", title: "tokens from" }, { field: "y", title: "reward from", format: ".2f" }, { field: "count", title: "rollouts", format: "," }],
        },
      },
      { data: { values: means }, mark: { type: "line", color: "var(--mean)", strokeWidth: 2.2, point: { filled: true, size: 26, color: "var(--mean)" } }, encoding: { ...axes, tooltip: [{ field: "y", title: "mean reward", format: ".3f" }, { field: "count", title: "rollouts", format: "," }] } },
    ],
  }));
}

/** Solved share by the difficulty of the items, on ladders of different heights. */
function difficultyChart(groups) {
  const placed = groupBy(groups.filter((group) => data.group.difficulty[group] !== null), difficultyLabel);
  if (!placed.size) return null;
  const values = [...placed].map(([difficulty, own]) => {
    const found = figuresOf(own);
    return { difficulty: Number(difficulty), name: difficulty, solved: found.solved?.value ?? null, low: found.solved?.low, high: found.solved?.high, groups: own.length };
  }).filter((each) => each.solved !== null);
  const x = { field: "difficulty", type: "quantitative", title: null, scale: { domain: [-0.03, 1.03], nice: false } };
  const y = (field) => ({ field, type: "quantitative", title: null, axis: PERCENT, scale: { domain: [0, 1] } });
  const rest = groups.length - sum([...placed.values()].map((own) => own.length));
  return figure("Solved by difficulty", rest ? `${plural(rest, "group")} at default difficulty` : "0 is a ladder's lowest level", chart("Solved share by difficulty with 95% intervals", 150, {
    data: { values },
    layer: [
      { mark: { type: "rule", color: "var(--series-0)", strokeWidth: 2 }, encoding: { x, y: y("low"), y2: { field: "high" } } },
      {
        mark: { type: "circle", color: "var(--series-0)", opacity: 1, cursor: "pointer" },
        encoding: {
          x, y: y("solved"),
          size: { field: "groups", type: "quantitative", legend: null, scale: { domainMin: 0, range: [30, 220] } },
          tooltip: [{ field: "name", title: "difficulty" }, { field: "solved", format: ".1%" }, { field: "low", format: ".1%" }, { field: "high", format: ".1%" }, { field: "groups", format: "," }],
        },
      },
    ],
  }, ({ name }) => name && change({ difficulty: name })));
}

function statusesOverTime(groups) {
  if (runOf(groups[0]).kind !== "training" || groups.length < 8) return null;
  const values = parts(inOrder(groups), 24).flatMap((own) => {
    const counts = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
    let total = 0;
    eachRollout(own, (each) => {
      counts[kindOf(statusOf(each))] += 1;
      total += 1;
    });
    const [start, end] = [data.place[own[0]] + 1, data.place[own.at(-1)] + 1.5];
    return KINDS.map((kind, order) => ({ start, end, kind, said: KIND_LABELS[kind], order, share: counts[kind] / total, count: counts[kind] }));
  });
  return figure("Statuses over time", "share of rollouts, by group", chart("Shares of statuses in the order of training", 150, {
    data: { values },
    mark: { type: "bar", binSpacing: 0 },
    encoding: {
      x: { field: "start", bin: { binned: true }, type: "quantitative", title: null },
      x2: { field: "end" },
      y: { field: "share", type: "quantitative", title: null, axis: PERCENT, scale: { domain: [0, 1] } },
      color: colorOfKind("kind"),
      order: { field: "order" },
      tooltip: [{ field: "said", title: "status" }, { field: "share", format: ".1%" }, { field: "count", title: "rollouts", format: "," }],
    },
  }));
}
