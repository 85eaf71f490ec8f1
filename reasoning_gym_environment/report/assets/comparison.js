// Two evaluations, paired by item: what `compare` finds, as tables, and the items that changed.

const MOST_ITEMS = 100; // rows of the table of items

/** Return the evaluations by step, then as they stand. */
function evaluations() {
  const step = (run) => data.runs[run].step ?? 0;
  return [...data.runs.keys()]
    .filter((run) => data.runs[run].kind === "evaluation")
    .sort((one, other) => step(one) - step(other) || one - other);
}

/** Return the last group of each problem of each evaluation, of the groups that pass filters. */
function itemsOfEvaluations() {
  const groups = byRun(groupsLeft("runs", "span", "problems", "task"));
  return new Map(
    evaluations().map((run) => [
      run,
      new Map(
        inOrder(groups.get(run) ?? []).map((group) => [data.group.problem[group], group]),
      ),
    ]),
  );
}

/** Return the last two evaluations with the same items, else the last two that share any. */
function lastPair(items) {
  const runs = [...items.keys()].reverse();
  const pairs = runs.flatMap((after, place) =>
    runs.slice(place + 1).map((before) => [before, after]),
  );
  const comparable = pairs.filter(([one, other]) => data.runs[one].rules === data.runs[other].rules);
  const overlaps = ([one, other]) => [...items.get(one).keys()].some((key) => items.get(other).has(key));
  const equal = ([one, other]) =>
    items.get(one).size === items.get(other).size &&
    [...items.get(one).keys()].every((key) => items.get(other).has(key));
  return comparable.find(equal) ?? comparable.find(overlaps) ?? pairs[0];
}

/** Return the mean over a group's scored rollouts; null without any. */
function scoredMean(group, column) {
  const values = rolloutsOf(group)
    .filter((each) => data.rollout.score[each] !== null)
    .map((each) => data.rollout[column][each]);
  return values.length ? sum(values) / values.length : null;
}

/** Return the items scored in both evaluations, each as its two groups. */
function scoredPairs(one, other) {
  const common = [...one].filter(([problem]) => other.has(problem));
  const pairs = common.map(([problem, group]) => [group, other.get(problem)]);
  return pairs.filter((pair) => pair.every((group) => scoredMean(group, "score") !== null));
}

const lastAsked = { key: "", answer: null };

/** Return what `compare` finds of two evaluations; null where this page doesn't have it. */
function comparisonOf(before, after) {
  const [one, other] = [before, after].map((run) => data.runs[run].id);
  const key = JSON.stringify([one, other, data.order[before].length, data.order[after].length]);
  if (lastAsked.key !== key)
    Object.assign(lastAsked, { key, answer: source.comparison(one, other) });
  return lastAsked.answer;
}

async function showComparison() {
  const runs = evaluations();
  const section = byId("comparison");
  section.hidden = runs.length < 2;
  if (section.hidden) return;
  const items = itemsOfEvaluations();
  const [first, last] = lastPair(items);
  const chosen = (name, otherwise) =>
    state[name] !== "" && runs.includes(Number(state[name])) ? Number(state[name]) : otherwise;
  const [before, after] = [chosen("before", first), chosen("after", last)];
  const names = runs.map((run) => [String(run), line(data.runs[run].name)]);
  fillOptions(byId("before"), names, String(before));
  fillOptions(byId("after"), names, String(after));
  let pair;
  try {
    pair = await comparisonOf(before, after);
  } catch (error) {
    lastAsked.key = ""; // it is asked for again
    pair = { refused: error.message, by_difficulty: {} };
  }
  pair ??= { refused: "this page has other pairs; `compare` pairs any two", by_difficulty: {} };
  const result = pair.by_difficulty[state.difficulty];
  for (const name of ["overall-table", "change-table", "item-part"]) byId(name).hidden = !result;
  const nothing = `Not compared: ${pair.refused ?? "no item of this difficulty is scored in both"}.`;
  byId("comparison-said").textContent = result?.said ?? nothing;
  if (!result) return;
  showChangeTables(result);
  showItems(scoredPairs(items.get(before), items.get(after)), [before, after], items);
}

function showChangeTables(result) {
  const columns = changeColumns();
  const rowOfChange = ([name, { difference, beyond_noise: beyond, ...change }]) => ({
    ...{ name, ...change, ...difference, beyond },
    category: data.tasks.find((task) => task.name === name)?.category ?? "",
  });
  const overall = [
    ["solved, mean over items", result.by_items],
    ["solved, mean over tasks", result.by_tasks],
    ["score, mean over items", result.score],
  ];
  byId("overall-table").hidden = Boolean(state.category); // it is of all categories
  showTable(byId("overall-table"), {
    label: "Overall changes",
    columns: columns.map((each) => ({ ...each, value: null })).slice(0, -2),
    rows: overall.map(rowOfChange),
    sort: "",
  });
  const rows = Object.entries(result.tasks).map(rowOfChange);
  showTable(byId("change-table"), {
    label: "Changes by task",
    columns,
    rows: rows.filter(({ category }) => !state.category || category === state.category),
    ...{ sort: state.changes, onSort: (changes) => change({ changes }) },
    onRow: ({ name }) => change({ task: state.task === name ? "" : name }),
    current: ({ name }) => name === state.task,
  });
}

/** Show the items whose solved share fell or rose, with both answers. */
function showItems(pairs, runs, items) {
  const all = pairs
    .filter(([group]) => !state.task || taskOf(group).name === state.task)
    .map((groups) => {
      const [from, to] = groups.map((group) => scoredMean(group, "solved"));
      return { groups, change: to - from };
    })
    .sort((one, other) => Math.abs(other.change) - Math.abs(one.change));
  const itemsOf = (kind) =>
    all.filter(({ change: by }) => kind === "all" || (kind === "won" ? by > 0 : by < 0));
  const kind = state.items || ["lost", "won", "all"].find((each) => itemsOf(each).length) || "all";
  byId("items").value = kind;
  const rows = itemsOf(kind);
  const most = rows.length > MOST_ITEMS ? `; the first ${MOST_ITEMS} are shown` : "";
  byId("items-said").textContent = `${plural(rows.length, "item")}${most}. Select one to see its answers at all checkpoints.`;
  const opened = data.numberOf.get(state.item);
  const problem = data.group.problem[opened];
  const side = (place) => ({
    ...{ key: `side ${place}`, text: true },
    label: line(data.runs[runs[place]].name),
    cell: ({ groups }) => answersOf(groups[place]),
  });
  const choose = ({ groups: [group] }) =>
    change({ item: data.group.problem[group] === problem ? "" : data.group.id[group] });
  showTable(byId("item-table"), {
    label: "Items with both answers",
    rows: rows.slice(0, MOST_ITEMS),
    sort: "",
    columns: [itemColumn(choose, problem), oracleColumn, side(0), side(1)],
    onRow: choose,
    current: ({ groups: [group] }) => data.group.problem[group] === problem,
  });
  showHistory(problem, items);
}

const itemColumn = (choose, problem) => ({
  ...{ key: "item", label: "Item", text: true },
  cell: (row) => {
    const [group] = row.groups;
    const pressed = String(data.group.problem[group] === problem);
    const attributes = { class: "plain", "aria-pressed": pressed };
    attributes["data-key"] = `item ${data.group.id[group]}`;
    const label = `${line(taskOf(group).name)}, ${difficultyName(difficultyLabel(group))}`;
    return makeButton(label, () => choose(row), attributes);
  },
});

const oracleColumn = {
  ...{ key: "oracle", label: "Oracle", text: true },
  cell: ({ groups: [group] }) => line(data.group.oracle[group] ?? "–"),
};

/** Return the different answers of a group, solved ones first, each a link to its rollout. */
function answersOf(group) {
  const { answer, solved } = data.rollout;
  const same = groupBy(rolloutsOf(group), (each) => `${solved[each]} ${answer[each] ?? ""}`);
  const ordered = [...same.values()].sort(
    ([one, ...more], [other, ...others]) =>
      solved[other] - solved[one] || others.length - more.length,
  );
  return ordered.map((own) => {
    const [first] = own;
    const open = () => change({ rollout: idOf(first), section: "rollouts" });
    const times = own.length > 1 ? ` ×${own.length}` : "";
    const text = answer[first] === null ? words(statusOf(first)) : line(answer[first]);
    const button = makeButton("", open, { class: "plain answer", title: "Open this rollout" });
    const dotted = make("span", { class: `dot ${kindOf(statusOf(first))}`, "aria-hidden": "true" });
    button.append(dotted, ` ${text}${times}`);
    const said = make("span", { class: "unseen" }, solved[first] ? ", solved" : ", not solved");
    button.append(said);
    return make("div", { class: "line" }, button);
  });
}

/** Show an item's answers at all checkpoints. */
function showHistory(problem, items) {
  const place = byId("item-history");
  const found = [...items].filter(([, own]) => own.has(problem));
  place.hidden = !found.length;
  if (!found.length) return;
  const rows = found.map(([run, own]) => ({ run, groups: [own.get(problem)] }));
  const [{ groups: [group] }] = rows;
  byId("history-title").textContent = `${line(taskOf(group).name)} at all checkpoints`;
  showTable(byId("history-table"), {
    label: "Answers to one item at all checkpoints",
    sort: "",
    rows,
    columns: [
      {
        ...{ key: "name", label: "Evaluation", text: true },
        cell: ({ run }) => line(data.runs[run].name),
      },
      {
        ...{ key: "step", label: "Step" },
        cell: ({ run }) => (data.runs[run].step === null ? "–" : whole(data.runs[run].step)),
      },
      {
        ...{ key: "solved", label: "Solved" },
        cell: ({ groups: [own] }) => {
          const value = scoredMean(own, "solved");
          return value === null ? "–" : percent(value, 0);
        },
      },
      oracleColumn,
      {
        ...{ key: "answers", label: "Answers", text: true },
        cell: ({ groups: [own] }) => answersOf(own),
      },
    ],
  });
}

function changeColumns() {
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
      cell: (row) => (row.beyond ? "yes" : row.verdict === "can't tell" ? row.verdict : "no"),
    },
  ];
}
