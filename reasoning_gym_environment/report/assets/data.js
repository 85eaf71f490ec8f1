// The index: columns by group and by rollout, what the filters leave of them, and their figures.

const data = {};

function forget() {
  Object.assign(data, { runs: [], tasks: [], statuses: [], files: [], recorded: {} });
  Object.assign(data, { group: {}, rollout: {}, first: [0], groupOf: [], numberOf: new Map() });
  data.value = Object.fromEntries(MEASURES.map(({ name }) => [name, []])); // by group
  data.cell = []; // of a group: the number of its pair of task and level
  data.cellNumber = new Map();
}

/** Append a batch of the index; return the number of groups that came. */
function takeIn(batch) {
  if (batch.version !== 2)
    throw new Error(`index version ${batch.version} is unknown: reload the page`);
  if (batch.restart) forget();
  const notesBefore = new Map(data.runs.map(({ id, notes }) => [id, notes]));
  for (const name of ["runs", "tasks", "statuses", "files", "recorded", "held", "notes", "reading", "pairs"])
    data[name] = batch[name] ?? data[name];
  // A batch has the notes that are new; one that was removed is empty.
  for (const run of data.runs) run.notes = { ...notesBefore.get(run.id), ...run.notes };
  data.ended = batch.ended ?? "";
  for (const part of ["group", "rollout"]) {
    for (const [name, values] of Object.entries(batch[`${part}s`])) {
      const column = (data[part][name] ??= []);
      for (const value of values) column.push(value);
    }
  }
  const begin = data.first.length - 1;
  for (let group = begin; group < data.group.id.length; group += 1) {
    data.numberOf.set(data.group.id[group], group);
    data.first.push(data.first[group] + data.group.size[group]);
    for (let each = data.first[group]; each < data.first[group + 1]; each += 1)
      data.groupOf.push(group);
    const pair = `${data.group.task[group]} ${data.group.level[group]}`;
    if (!data.cellNumber.has(pair)) data.cellNumber.set(pair, data.cellNumber.size);
    data.cell.push(data.cellNumber.get(pair));
    for (const [name, value] of Object.entries(valuesOfGroup(group))) data.value[name].push(value);
  }
  if (data.group.id.length > begin) putInOrder();
  return data.group.id.length - begin;
}

/** Return a group's value of each measure, as `MEASURES` in Python; null where it has none. */
function valuesOfGroup(group) {
  const { rollout } = data;
  const all = rolloutsOf(group);
  const scored = all.filter((each) => rollout.score[each] !== null);
  const given = all.filter((each) => rollout.tokens[each] !== null);
  const ended = given.filter((each) => !rollout.truncated[each]);
  const mean = (own, column) =>
    own.length ? own.reduce((total, each) => total + column[each], 0) / own.length : null;
  return {
    solved: mean(scored, rollout.solved),
    reward: mean(scored, rollout.reward),
    missing: mean(ended, rollout.format_failure),
    truncated: mean(given, rollout.truncated),
    signal: data.group.signal[group],
    length: mean(given, rollout.tokens),
    unscored: 1 - scored.length / all.length,
    level: data.group.level[group],
  };
}

/** Order each run's groups: by time, or as stored where a time is missing. */
function putInOrder() {
  data.order = data.runs.map(() => []);
  data.group.run.forEach((run, group) => data.order[run].push(group));
  data.place = [];
  data.order.forEach((groups) => {
    const { time } = data.group;
    if (groups.every((group) => time[group] !== null))
      groups.sort((a, b) => time[a] - time[b] || a - b);
    groups.forEach((group, place) => (data.place[group] = place));
  });
}

const taskOf = (group) => data.tasks[data.group.task[group]];
const runOf = (group) => data.runs[data.group.run[group]];
const rolloutsOf = (group) =>
  Array.from({ length: data.group.size[group] }, (_, number) => data.first[group] + number);
const statusOf = (rollout) => data.statuses[data.rollout.status[rollout]];

/** Each kind of status has a colour; there are five. */
function kindOf(status) {
  if (status === "no_answer" || status === "several_answers") return "format";
  return ["solved", "wrong", "unscored"].includes(status) ? status : "fault";
}

// What the page shows. Every part of the state stands in the address's fragment.

const DEFAULTS = {
  section: "", // the one shown; empty is that of the rollout below, or the first
  runs: "", // numbers of the runs shown; empty is the default choice
  task: "",
  category: "",
  difficulty: "", // "default", the evaluation's, or a decile of training's such as "0.3"
  problems: "", // "fresh" or "again"
  span: "", // RUN:FIRST-LAST, places in the order of a run
  where: "", // conditions on the rollouts, as in filter.js
  sort: "-time", // the rollouts' column; "-" is descending
  table: "-differs", // the task table's column; "-" is descending
  find: "", // in the task table
  grouping: "task", // of the task table's rows: "task" or "category"
  x: "", // of figures over time: "step", "group" or "time"; empty is the step if all rows have it
  by: "", // over time: "" or "category"
  metric: "solved",
  of: "", // the run of the figures and the distributions
  before: "",
  after: "",
  changes: "-beyond", // the comparison's column
  items: "", // of the comparison: "lost", "won" or "all"; empty is the first of them that has any
  item: "", // a group of the item whose answers at all checkpoints are shown
  windows: "", // of the figures: RUN:FIRST-LAST,FIRST-LAST, before and after; empty is tenths
  measure: "solved", // of the curve
  size: "10", // points from which on a figure that got worse is marked
  rollout: "", // ID.N
  together: "", // "1": the group's rollouts side by side
};
const NO_FILTERS = { category: "", task: "", difficulty: "", problems: "", span: "" };
const state = { ...DEFAULTS };
const MOST_RUNS = 6;

function readFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(DEFAULTS)) state[name] = given.get(name) ?? DEFAULTS[name];
}

/** Return the fragment of an address for the state with these changes. */
function fragmentOf(changes = {}) {
  const changed = Object.entries({ ...state, ...changes }).filter(([name, value]) => value !== DEFAULTS[name]);
  return new URLSearchParams(changed).toString();
}

/** Write the state into the address; with `push` the former address is where Back leads. */
function writeFragment(push) {
  const fragment = fragmentOf();
  const address = location.pathname + location.search + (fragment ? `#${fragment}` : "");
  if (address === location.pathname + location.search + location.hash) return;
  history[push ? "pushState" : "replaceState"](null, "", address);
}

/** Return the numbers of the runs shown: those chosen, or training and the last evaluations. */
function shownRuns() {
  const chosen = state.runs
    .split(",")
    .filter(Boolean)
    .map(Number)
    .filter((run) => data.runs[run]);
  if (chosen.length) return chosen;
  const numbers = [...data.runs.keys()];
  const training = numbers.filter((run) => data.runs[run].kind === "training").slice(-MOST_RUNS);
  const evaluations = numbers.filter((run) => data.runs[run].kind !== "training");
  return [...training, ...evaluations.slice(-Math.max(1, MOST_RUNS - training.length))].slice(
    0,
    MOST_RUNS,
  );
}

function parseSpan() {
  const found = /^(\d+):(\d+)-(\d+)$/.exec(state.span);
  return found && { run: Number(found[1]), first: Number(found[2]), last: Number(found[3]) };
}

/** Each filter of groups: whether it lets a group pass. */
const GROUP_FILTERS = {
  runs: () => {
    const shown = new Set(shownRuns());
    return (group) => shown.has(data.group.run[group]);
  },
  task: () => state.task && ((group) => taskOf(group).name === state.task),
  category: () => state.category && ((group) => taskOf(group).category === state.category),
  difficulty: () => state.difficulty && ((group) => difficultyLabel(group) === state.difficulty),
  problems: () =>
    state.problems && ((group) => !data.group.asked_again[group] === (state.problems === "fresh")),
  span: () => {
    const span = parseSpan();
    return (
      span &&
      ((group) =>
        data.group.run[group] === span.run &&
        data.place[group] >= span.first &&
        data.place[group] <= span.last)
    );
  },
};

/** Return an item's difficulty: as evaluations are given it, of training to one digit. */
function difficultyLabel(group) {
  const value = data.group.difficulty[group];
  if (value === null) return "default";
  return String(runOf(group).kind === "training" ? Number(value.toFixed(1)) : value);
}

/** Return labels of difficulties in their order; the default configuration comes first. */
function difficultiesOf(groups) {
  const order = (label) => (label === "default" ? -1 : Number(label));
  return [...new Set(groups.map(difficultyLabel))].sort((a, b) => order(a) - order(b));
}

/** Return the groups that pass all filters but the named ones. */
function groupsLeft(...ignored) {
  const names = Object.keys(GROUP_FILTERS).filter((name) => !ignored.includes(name));
  const passes = names.map((name) => GROUP_FILTERS[name]()).filter(Boolean);
  const left = [];
  for (let group = 0; group < data.group.id.length; group += 1) {
    if (passes.every((pass) => pass(group))) left.push(group);
  }
  return left;
}

/** Return groups by key, each list in the order given. */
function groupBy(groups, key) {
  const found = new Map();
  for (const group of groups) {
    const name = key(group);
    const own = found.get(name);
    if (own) own.push(group);
    else found.set(name, [group]);
  }
  return found;
}

const byRun = (groups) => groupBy(groups, (group) => data.group.run[group]);
const inOrder = (groups) => [...groups].sort((a, b) => data.place[a] - data.place[b]);

/** Return sums over some groups, and the scored and solved rollouts of each question. */
function countGroups(groups) {
  const count = { rollouts: 0, scored: 0, reward: 0, score: 0, unscoredGroups: 0, allSolved: 0 };
  Object.assign(count, { given: 0, tokens: 0, truncated: 0, format: 0 }); // with a completion
  Object.assign(count, { withChance: 0, chance: 0, noReasoning: 0 });
  Object.assign(count, { fresh: [0, 0], again: [0, 0], leveled: 0, levels: 0, lastLevel: null });
  const clusters = new Map();
  const columns = data.group;
  for (const group of groups) {
    const [scored, solved] = countRollouts(group, count);
    if (scored) addCluster(clusters, columns.question[group], scored, solved);
    else count.unscoredGroups += 1;
    if (columns.chance[group] !== null) {
      count.withChance += scored;
      count.chance += scored * columns.chance[group];
      // At levels it isn't measured, and a user's own task has none.
      const atDefault = columns.level[group] === null;
      count.noReasoning += scored * ((atDefault ? taskOf(group).no_reasoning : null) ?? NaN);
    }
    if (columns.signal[group] !== null) {
      const kind = columns.asked_again[group] ? count.again : count.fresh;
      kind[0] += columns.signal[group];
      kind[1] += 1;
      if (!columns.signal[group] && solved) count.allSolved += 1;
    }
    if (columns.level[group] !== null) {
      count.leveled += 1;
      count.levels += columns.level[group];
      count.lastLevel = columns.level[group];
    }
  }
  return { ...count, clusters };
}

/** Add a group's rollouts to the counts; return how many are scored and solved. */
function countRollouts(group, count) {
  const { rollout } = data;
  let [scored, solved] = [0, 0];
  for (let each = data.first[group]; each < data.first[group + 1]; each += 1) {
    count.rollouts += 1;
    if (rollout.tokens[each] !== null) {
      count.given += 1;
      count.tokens += rollout.tokens[each];
      count.truncated += rollout.truncated[each];
      count.format += rollout.format_failure[each];
    }
    if (rollout.score[each] === null) continue;
    scored += 1;
    solved += rollout.solved[each];
    count.reward += rollout.reward[each];
    count.score += rollout.score[each];
  }
  count.scored += scored;
  return [scored, solved];
}

/** Return the figures of some groups; null where nothing is known. */
function figuresOf(groups) {
  const count = countGroups(groups);
  const { rollouts, scored, given, tokens, unscoredGroups, lastLevel } = count;
  const of = (total, number) => (number ? total / number : null);
  const chanceKnown = scored > 0 && count.withChance === scored;
  const withSignal = count.fresh[0] + count.again[0];
  const told = count.fresh[1] + count.again[1];
  return {
    ...{ groups: groups.length, unscoredGroups, rollouts, scored, tokens, lastLevel },
    solved: scored ? share([...count.clusters.values()]) : null,
    chance: chanceKnown ? count.chance / scored : null,
    noReasoning: chanceKnown ? count.noReasoning / scored : NaN,
    reward: of(count.reward, scored),
    score: of(count.score, scored),
    length: of(tokens, given),
    truncated: of(count.truncated, given),
    format: of(count.format, given),
    signal: of(withSignal, told),
    fresh: of(...count.fresh),
    again: of(...count.again),
    allSolved: of(count.allSolved, told),
    level: of(count.levels, count.leveled),
  };
}

function addCluster(clusters, question, scored, solved) {
  const own = clusters.get(question);
  if (own) {
    own[0] += scored;
    own[1] += solved;
  } else clusters.set(question, [scored, solved]);
}

/** Split a list into at most `most` parts of about equal size. */
function parts(list, most) {
  const number = Math.min(most, list.length);
  const end = (part) => Math.floor((part * list.length) / number);
  return Array.from({ length: number }, (_, part) => list.slice(end(part), end(part + 1)));
}

/** Return the smallest value with at least this share of the sorted values up to it. */
function quantile(sorted, part) {
  return sorted.length ? sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)] : null;
}

/** Return the lengths of completions in order. */
function sortedLengths(groups) {
  const lengths = [];
  for (const group of groups) {
    for (let each = data.first[group]; each < data.first[group + 1]; each += 1) {
      if (data.rollout.tokens[each] !== null) lengths.push(data.rollout.tokens[each]);
    }
  }
  return Float64Array.from(lengths).sort();
}

// For the tests, which compare the figures with Python's on the same rollouts.
globalThis.reportFigures = Object.freeze({
  share,
  studentQuantile,
  figuresOf,
  groupsLeft,
  figuresOfParts,
  comparedParts,
  splitThought,
});
