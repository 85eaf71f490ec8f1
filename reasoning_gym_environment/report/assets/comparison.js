// Two evaluations, paired by item: what `compare` prints, as a table.

function evaluations() {
  return [...data.runs.keys()].filter((run) => data.runs[run].kind === "evaluation");
}

/** Return the last group of each problem of a run, by problem. */
function itemsOf(run) {
  return new Map(data.order[run].map((group) => [data.group.problem[group], group]));
}

/** Return the mean over a group's scored rollouts; null without any. */
function scoredMean(group, column) {
  const values = rolloutsOf(group)
    .filter((each) => data.rollout.score[each] !== null)
    .map((each) => data.rollout[column][each]);
  return values.length ? sum(values) / values.length : null;
}

function pairsOf(common, column) {
  return common.map(([before, after]) => ({
    task: taskOf(before).name,
    category: taskOf(before).category,
    before: scoredMean(before, column),
    after: scoredMean(after, column),
  }));
}

const differences = (pairs) => pairs.map((pair) => pair.after - pair.before);
const mean = (pairs, side) => sum(pairs.map((pair) => pair[side])) / pairs.length;

function changeOf(name, pairs, estimate = meanDifference(differences(pairs))) {
  return {
    name,
    items: pairs.length,
    before: mean(pairs, "before"),
    after: mean(pairs, "after"),
    ...estimate,
  };
}

/** Pair two evaluations; null when no item is scored in both. */
function compare(before, after) {
  const [one, other] = [itemsOf(before), itemsOf(after)];
  const common = [...one]
    .filter(([problem]) => other.has(problem))
    .map(([problem, group]) => [group, other.get(problem)]);
  const scored = common.filter((pair) =>
    pair.every((group) => scoredMean(group, "score") !== null),
  );
  if (!scored.length) return null;
  const solved = pairsOf(scored, "solved");
  const tasks = groupBy(solved, (pair) => pair.task);
  const found = discoveries(
    new Map([...tasks].map(([task, pairs]) => [task, signFlipP(differences(pairs))])),
  );
  const byTask = [...tasks].map(([task, pairs]) => ({
    ...changeOf(task, pairs),
    category: pairs[0].category,
    beyond: found.has(task),
  }));
  const macro = {
    ...changeOf(
      "solved, mean over tasks",
      solved,
      meanDifference(...[...tasks.values()].map(differences)),
    ),
    before: sum(byTask.map((each) => each.before)) / byTask.length,
    after: sum(byTask.map((each) => each.after)) / byTask.length,
  };
  return {
    overall: [
      changeOf("solved, mean over items", solved),
      macro,
      changeOf("score, mean over items", pairsOf(scored, "score")),
    ],
    tasks: byTask,
    excluded: [
      `${one.size - common.length} items only before`,
      `${other.size - common.length} only after`,
      `${common.length - scored.length} unscored in one`,
    ].join(", "),
  };
}

function showComparison() {
  const runs = evaluations();
  const section = byId("comparison");
  section.hidden = runs.length < 2;
  byId("comparison-link").hidden = section.hidden;
  if (section.hidden) return;
  const shown = shownRuns().filter((run) => runs.includes(run));
  const [first, last] = shown.length > 1 ? [shown[0], shown.at(-1)] : [runs[0], runs.at(-1)];
  const chosen = (name, otherwise) =>
    state[name] !== "" && runs.includes(Number(state[name])) ? Number(state[name]) : otherwise;
  const [before, after] = [chosen("before", first), chosen("after", last)];
  const names = runs.map((run) => [String(run), line(data.runs[run].name)]);
  fillOptions(byId("before"), names, String(before));
  fillOptions(byId("after"), names, String(after));
  const [said, tables] = [byId("comparison-said"), [byId("overall-table"), byId("change-table")]];
  const result = data.runs[before].rules === data.runs[after].rules ? compare(before, after) : null;
  tables.forEach((table) => (table.hidden = !result));
  if (!result) {
    said.textContent =
      data.runs[before].rules === data.runs[after].rules
        ? "Not compared: no item is scored in both."
        : "Not compared: they count different scores as solved. Rescore the older one.";
    return;
  }
  said.textContent = `${testedChanges(result.tasks)} Excluded: ${result.excluded}.`;
  const columns = changeColumns();
  const sorting = { sort: state.changes, onSort: (changes) => change({ changes }) };
  showTable(byId("overall-table"), {
    label: "Overall changes",
    columns: columns.map((each) => ({ ...each, value: null })).slice(0, -2),
    rows: result.overall,
    sort: "",
  });
  const onRow = ({ name }) => change({ task: state.task === name ? "" : name });
  showTable(byId("change-table"), {
    label: "Changes by task",
    columns,
    rows: result.tasks,
    ...sorting,
    onRow,
    current: ({ name }) => name === state.task,
  });
}

function testedChanges(tasks) {
  if (tasks.every((each) => each.items < MIN_ITEMS)) {
    return `Too few items per task for a test (at least ${MIN_ITEMS}).`;
  }
  const beyond = tasks.filter((each) => each.beyond).length;
  return `${beyond} of ${plural(tasks.length, "task")} changed beyond noise.`;
}

function changeColumns() {
  const points = (value) => `${value >= 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)}`;
  return [
    {
      key: "name",
      label: "Task",
      text: true,
      value: (row) => row.name,
      cell: (row) => line(row.name),
    },
    { key: "items", label: "Items", value: (row) => row.items, cell: (row) => whole(row.items) },
    {
      key: "from",
      label: "Before",
      value: (row) => row.before,
      cell: (row) => percent(row.before),
    },
    { key: "to", label: "After", value: (row) => row.after, cell: (row) => percent(row.after) },
    {
      key: "change",
      label: "Change in points",
      value: (row) => row.value,
      cell: (row) =>
        make(
          "span",
          { class: "solved-cell", title: `95%: ${points(row.low)} to ${points(row.high)}` },
          differenceBar(row),
          make("span", { class: "value" }, points(row.value)),
        ),
    },
    { key: "interval", label: "95%", cell: (row) => `${points(row.low)} to ${points(row.high)}` },
    {
      key: "category",
      label: "Category",
      text: true,
      value: (row) => row.category,
      cell: (row) => line(row.category),
    },
    {
      key: "beyond",
      label: "Beyond noise",
      text: true,
      value: (row) => 10 * row.beyond + Math.abs(row.value),
      cell: (row) => (row.beyond ? "yes" : "no"),
    },
  ];
}
