// The task table: a row for each task, in it a line for each run shown.

function taskRows() {
  const shown = shownRuns();
  const found = groupsLeft("task");
  const wanted = state.find.trim().toLowerCase();
  const trained = shown.filter((run) => data.runs[run].kind === "training");
  const windows = new Map(trained.map((run) => [run, windowsOf(run)]));
  return [...groupBy(found, (group) => data.group.task[group])]
    .map(([number, groups]) => {
      const own = byRun(groups);
      const runs = shown.filter((run) => own.has(run));
      return {
        task: data.tasks[number],
        lines: runs.map((run) => {
          const ordered = inOrder(own.get(run));
          return {
            place: shown.indexOf(run),
            training: data.runs[run].kind === "training",
            groups: ordered,
            figures: figuresOf(ordered),
            change: changeOfTask(windows.get(run), ordered),
          };
        }),
      };
    })
    .filter(
      ({ task }) =>
        !wanted || task.name.toLowerCase().includes(wanted) || task.category.includes(wanted),
    );
}

/** Return by how much a task's solved share differs between two windows; null if unknown. */
function changeOfTask(windows, groups) {
  if (!windows) return null;
  const within = ({ first, last }) =>
    groups.filter((group) => data.place[group] >= first && data.place[group] <= last);
  const [before, after] = [windows.before, windows.after].map((each) => figuresOf(within(each)).solved);
  return before && after ? after.value - before.value : null;
}

function showTasks() {
  const rows = taskRows();
  const shown = shownRuns();
  const several = shown.length > 1;
  const any = (test) => rows.some((row) => row.lines.some(test));
  byId("chance-legend").hidden = !any(({ figures }) => figures.chance !== null);
  const order = several ? "; sorted by the first run shown" : "";
  byId("task-count").textContent = `${plural(rows.length, "task")}${order}`;
  const legend = (run, place) =>
    make("li", {}, dot(place), " ", make("bdi", {}, line(data.runs[run].name)));
  byId("series-legend").replaceChildren(...(several ? shown.map(legend) : []));
  showTable(byId("task-table"), {
    label: "Tasks",
    columns: taskColumns(any, several),
    rows,
    sort: state.table,
    onSort: (table) => change({ table }),
    onRow: ({ task }) => chooseTask(task),
    current: ({ task }) => task.name === state.task,
  });
}

const chooseTask = (task) => change({ task: state.task === task.name ? "" : task.name });
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
    any(({ change: by }) => by !== null) && {
      ...{ key: "change", label: "Change", help: "Of the solved share, between the windows of What changed" },
      value: ({ lines: [first] }) => first.change,
      cell: ({ lines: own }) => lines(own, ({ change: by }) => (by === null ? "–" : points(by))),
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

function taskChoice({ task }) {
  return makeButton(line(task.name), () => chooseTask(task), {
    class: "plain",
    "aria-pressed": String(state.task === task.name),
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
