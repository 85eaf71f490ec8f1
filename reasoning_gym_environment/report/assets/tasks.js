// The task table: a row for each task or category, in it a line for each run shown.

function taskRows() {
  const shown = shownRuns();
  const found = groupsLeft("task");
  const wanted = state.find.trim().toLowerCase();
  const trained = shown.filter((run) => data.runs[run].kind === "training");
  const byCategory = state.grouping === "category";
  const keyOf = (group) => (byCategory ? taskOf(group).category : data.group.task[group]);
  const parted = [...groupBy(found, keyOf)];
  const limits = { rows: MARKED.length * parted.length, size: leastSize() };
  return parted
    .map(([key, groups]) => {
      const own = byRun(groups);
      const runs = shown.filter((run) => own.has(run));
      return {
        task: byCategory ? { name: key, category: key } : data.tasks[key],
        lines: runs.map((run) => {
          const ordered = inOrder(own.get(run));
          return {
            place: shown.indexOf(run),
            training: data.runs[run].kind === "training",
            groups: ordered,
            figures: figuresOf(ordered),
            ...(trained.includes(run) ? differsOf(run, ordered, limits) : {}),
          };
        }),
      };
    })
    .filter(
      ({ task }) =>
        !wanted || task.name.toLowerCase().includes(wanted) || task.category.includes(wanted),
    );
}

/** Return a task's figures in a run, the worst first, and by how much that stands out. */
function differsOf(run, groups, limits) {
  const rows = figuresOfParts(comparedParts(run, groups), data.value, data.cell, limits);
  if (!rows.length) return {};
  return { rows, differs: worstOfTask(rows), solvedRow: rows.find(({ measure }) => measure.name === "solved") };
}

/** Say how many tasks differ, and how many would by noise alone. */
function differingTasks(rows) {
  const known = rows.filter(({ lines: [first] }) => first?.differs !== undefined);
  if (!known.length) return "";
  const beyond = known.filter(({ lines: [first] }) => first.differs > NORMAL_QUANTILE).length;
  const noise = Math.ceil(BY_NOISE * known.length);
  return `, ${whole(beyond)} of which differ in bold; noise alone would mark up to ${whole(noise)}`;
}

function showTasks() {
  const rows = taskRows();
  const shown = shownRuns();
  const several = shown.length > 1;
  const any = (test) => rows.some((row) => row.lines.some(test));
  byId("chance-legend").hidden = !any(({ figures }) => figures.chance !== null);
  const order = several ? "; sorted by the first run shown" : "";
  const noun = state.grouping === "category" ? "row" : "task";
  byId("task-count").textContent = `${plural(rows.length, noun)}${differingTasks(rows)}${order}`;
  const legend = (run, place) =>
    make("li", {}, dot(place), " ", make("bdi", {}, line(data.runs[run].name)));
  byId("series-legend").replaceChildren(...(several ? shown.map(legend) : []));
  showTable(byId("task-table"), {
    label: "Tasks",
    columns: taskColumns(any, several),
    rows,
    sort: state.table === DEFAULTS.table && !any(isCompared) ? "-groups" : state.table,
    onSort: (table) => change({ table }),
    onRow: ({ task }) => chooseTask(task),
    current: ({ task }) => task.name === state.task || task.name === state.category,
  });
}

function chooseTask({ name }) {
  const field = state.grouping === "category" ? "category" : "task";
  change({ [field]: state[field] === name ? "" : name });
}

const rounded = (value) => percent(value, 0);

/** A column of numbers, with a line for each run; it sorts by the first one. */
function figureColumn(key, label, value, text, help) {
  return {
    ...{ key, label, help },
    value: ({ lines: [first] }) => value(first.figures),
    cell: ({ lines: own }) =>
      lines(own, ({ figures }) => (value(figures) === null ? "–" : text(value(figures)))),
  };
}

/** Return the columns that have a value: `any` says whether a line passes a test. */
function taskColumns(any, several) {
  const again = any(({ figures }) => figures.again !== null);
  const leveled = any(({ figures }) => figures.level !== null);
  const mark = ({ figures, place }) => [several ? dot(place) : "", solvedCell(figures, place)];
  const signal = "Groups in which some rollouts are solved, not all";
  return [
    { key: "task", label: "Task", text: true, value: ({ task }) => task.name, cell: taskChoice },
    {
      ...{ key: "category", label: "Category", text: true },
      value: ({ task }) => task.category,
      cell: ({ task }) => line(task.category),
    },
    {
      ...{ key: "solved", label: "Solved", help: "Solved share with its 95% interval" },
      value: ({ lines: [first] }) => first.figures.solved?.value ?? null,
      cell: ({ lines: own }) => lines(own, mark),
    },
    any(({ training }) => training) && {
      ...{ key: "time", label: "Over time" },
      cell: ({ lines: own }) => lines(own, sparkOf),
    },
    any(isCompared) && {
      ...{ key: "differs", label: "Differs", help: "The figure that got worse by most errors" },
      value: ({ lines: [first] }) => first.differs ?? null,
      cell: ({ lines: own }) => lines(own, differsCell),
    },
    any(isCompared) && {
      ...{ key: "level-before", label: "Solved at the same level", help: "To the part before" },
      value: ({ lines: [first] }) => first.solvedRow?.level.before?.value ?? null,
      cell: ({ lines: own }) => lines(own, (each) => solvedGap(each, "before")),
    },
    any(isCompared) && {
      ...{ key: "level-first", label: "to first" },
      value: ({ lines: [first] }) => first.solvedRow?.level.first?.value ?? null,
      cell: ({ lines: own }) => lines(own, (each) => solvedGap(each, "first")),
    },
    leveled &&
      figureColumn("level", "Level now", (own) => own.lastLevel, String, "Of the last group"),
    figureColumn("signal", again ? "Signal, fresh" : "Signal", (own) => own.fresh, rounded, signal),
    again && figureColumn("again", "Signal, again", (own) => own.again, rounded, "Asked again"),
    figureColumn("length", "Length", (own) => own.length, whole, "Mean completion, in tokens"),
    figureColumn("truncated", "Truncated", (own) => own.truncated, rounded),
    figureColumn("format", "No answer", (own) => own.format, rounded, "No answer, or several"),
    figureColumn("groups", "Groups", (own) => own.groups, whole),
  ].filter(Boolean);
}

const isCompared = ({ rows }) => rows !== undefined;

/** The worst figure of a task: its last value, and by how much it differs from another part. */
function differsCell({ rows, differs }) {
  if (!rows) return "–";
  const [{ measure, last, whole: own }] = rows;
  const found = own.best ?? own.first;
  const text = `${measure.label} ${valueText(measure, last)} (${differenceText(measure, found)})`;
  const mark = rows.some((row) => row.marked) ? make("span", { class: "worse" }, "▲ ") : "";
  return [mark, make(differs > NORMAL_QUANTILE ? "strong" : "span", {}, text)];
}

function solvedGap({ solvedRow }, key) {
  return solvedRow ? differenceText(solvedRow.measure, solvedRow.level[key]) : "–";
}

function taskChoice({ task }) {
  return makeButton(line(task.name), () => chooseTask(task), {
    class: "plain",
    "aria-pressed": String([state.task, state.category].includes(task.name)),
    "data-key": `task ${task.name}`,
  });
}

function sparkOf({ groups, place, training }) {
  if (!training || groups.length < 2) return "";
  return sparkline(
    parts(groups, 12).map((own) => figuresOf(own).solved?.value ?? null),
    place,
  );
}
