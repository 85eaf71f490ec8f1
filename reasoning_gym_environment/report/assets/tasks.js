// The task table: a row for each task, in it a line for each run shown.

function taskRows() {
  const shown = shownRuns();
  const found = groupsLeft("task");
  const wanted = state.find.trim().toLowerCase();
  return [...groupBy(found, (group) => data.group.task[group])]
    .map(([number, groups]) => {
      const own = byRun(groups);
      const runs = shown.filter((run) => own.has(run));
      return {
        task: data.tasks[number],
        lines: runs.map((run) => {
          const ordered = inOrder(own.get(run));
          return { place: shown.indexOf(run), training: data.runs[run].kind === "training", groups: ordered, figures: figuresOf(ordered) };
        }),
      };
    })
    .filter(({ task }) => !wanted || task.name.toLowerCase().includes(wanted) || task.category.includes(wanted));
}

function showTasks() {
  const rows = taskRows();
  const several = shownRuns().length > 1;
  const leveled = rows.some((row) => row.lines.some((own) => own.figures.level !== null));
  const again = rows.some((row) => row.lines.some((own) => own.figures.again !== null));
  const time = rows.some((row) => row.lines.some((own) => own.training));
  const chance = rows.some((row) => row.lines.some((own) => own.figures.chance !== null));
  const number = (key, label, value, text, help) => ({
    key, label, help,
    value: ({ lines: [first] }) => value(first.figures),
    cell: ({ lines: own }) => lines(own, ({ figures }) => (value(figures) === null ? "–" : text(value(figures)))),
  });
  const columns = [
    { key: "task", label: "Task", text: true, value: ({ task }) => task.name, cell: taskChoice },
    { key: "category", label: "Category", text: true, value: ({ task }) => task.category, cell: ({ task }) => line(task.category) },
    {
      key: "solved", label: "Solved", help: "Solved share with its 95% interval",
      value: ({ lines: [first] }) => first.figures.solved?.value ?? null,
      cell: ({ lines: own }) => lines(own, ({ figures, place }) => [several ? dot(place) : "", solvedCell(figures, place)].filter(Boolean)),
    },
    time && { key: "time", label: "Over time", cell: ({ lines: own }) => lines(own, sparkOf) },
    leveled && number("level", "Level now", (own) => own.lastLevel, String, "Level of the last group"),
    number("signal", again ? "Signal, fresh" : "Signal", (own) => own.fresh, (value) => percent(value, 0), "Groups in which some rollouts are solved, not all"),
    again && number("again", "Signal, again", (own) => own.again, (value) => percent(value, 0), "The same of problems asked again"),
    number("length", "Length", (own) => own.length, whole, "Mean completion length in tokens"),
    number("truncated", "Truncated", (own) => own.truncated, (value) => percent(value, 0)),
    number("format", "No answer", (own) => own.format, (value) => percent(value, 0), "No answer, or several"),
    number("groups", "Groups", (own) => own.groups, whole),
  ].filter(Boolean);
  byId("chance-legend").hidden = !chance;
  byId("task-count").textContent = `${plural(rows.length, "task")}${several ? "; sorted by the first run shown" : ""}`;
  byId("series-legend").replaceChildren(...(several ? shownRuns().map((run, place) => make("li", {}, dot(place), " ", make("bdi", {}, line(data.runs[run].name)))) : []));
  showTable(byId("task-table"), {
    label: "Tasks",
    columns,
    rows,
    sort: state.table,
    onSort: (table) => change({ table }),
    onRow: ({ task }) => change({ task: state.task === task.name ? "" : task.name }),
    current: ({ task }) => task.name === state.task,
  });
}

function taskChoice({ task }) {
  const button = makeButton(line(task.name), () => change({ task: state.task === task.name ? "" : task.name }), {
    class: "plain",
    "aria-pressed": String(state.task === task.name),
    "data-key": `task ${task.name}`,
  });
  return button;
}

function sparkOf({ groups, place, training }) {
  if (!training || groups.length < 2) return "";
  return sparkline(parts(groups, 12).map((own) => figuresOf(own).solved?.value ?? null), place);
}
