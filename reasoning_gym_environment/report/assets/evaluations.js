// Evaluations over steps: a line for each difficulty, with intervals.

/** Return an evaluation's x: the trainer's step, or the time of its last sample. */
function evaluationAxis(groups) {
  const { step } = AXES;
  const stepped = groups.every((group) => data.runs[data.group.run[group]].step !== null);
  if (stepped && state.x !== "time")
    return { ...step, of: (group) => data.runs[data.group.run[group]].step };
  return groups.every((group) => AXES.time.of(group) !== null)
    ? AXES.time
    : { label: "order of the files", of: (group) => data.group.run[group] };
}

/** Return a point for each evaluation and difficulty, those of one line in their order. */
function evaluationPoints(groups, axis) {
  const points = [...byRun(groups)].flatMap(([run, own]) => {
    const x = extentOf(own, axis)[1];
    const { name, id, setting } = data.runs[run];
    const model = line(setting.model ?? "");
    return [...groupBy(own, difficultyLabel)].map(([difficulty, items]) => ({
      ...{ run, x, difficulty, name: line(name), items: items.length },
      // Evaluations of different models are no curve.
      ...{ model, curve: `${id.replace(/[^/\\]*$/, "")} ${model}`, ...figuresOf(items).solved },
    }));
  });
  return points.filter(({ value }) => value !== undefined).sort((one, other) => one.x - other.x);
}

function showEvaluations() {
  const own = new Set(evaluations());
  const groups = groupsLeft("runs", "span", "problems").filter((each) =>
    own.has(data.group.run[each]),
  );
  const axis = evaluationAxis(groups);
  const points = evaluationPoints(groups, axis);
  const enough = new Set(points.map(({ run }) => run)).size > 1;
  byId("evaluations").hidden = !enough;
  if (!enough) return;
  byId("evaluations-axis").textContent = axis.label;
  const difficulties = difficultiesOf(groups);
  const legend = difficulties.map((name, place) =>
    make("li", {}, dot(place % MOST_RUNS), ` ${difficultyName(name)}`),
  );
  byId("difficulty-legend").replaceChildren(...legend);
  showCharts(byId("evaluations-chart"), evaluationChart(points, axis, difficulties));
}

const DASHES = [[1, 0], [8, 4], [3, 3], [10, 3, 2, 3]]; // of the lines of models

const difficultyName = (label) =>
  label === "default" ? "default difficulty" : `difficulty ${label}`;

function evaluationChart(points, axis, difficulties) {
  const ends = [points[0].x, points.at(-1).x];
  const margin = (ends[1] - ends[0]) / 50 || 1;
  const x = xAlong(axis, [ends[0] - margin, ends[1] + margin]);
  if (axis !== AXES.time) x.axis = { tickMinStep: 1 };
  const y = (field) => quantity(field, { axis: PERCENT, scale: { domain: [0, 1] } });
  const color = {
    ...{ field: "difficulty", type: "nominal", legend: null },
    scale: { domain: difficulties, range: difficulties.map((_, n) => SERIES[n % MOST_RUNS]) },
  };
  const models = [...new Set(points.map(({ model }) => model))];
  const strokeDash = {
    ...{ field: "model", type: "nominal", legend: null },
    scale: { domain: models, range: models.map((_, n) => DASHES[n % DASHES.length]) },
  };
  const tooltip = [
    ...[tip("name", "evaluation"), tip("model", "model"), tip("difficulty", "difficulty"), tip("value", "solved", ".1%")],
    ...[tip("low", "95% from", ".1%"), tip("high", "95% to", ".1%"), tip("items", "items", ",")],
  ];
  const layer = [
    {
      mark: { type: "rule", strokeWidth: 2, opacity: 0.45 },
      encoding: { x, y: y("low"), y2: { field: "high" }, color },
    },
    {
      mark: { type: "line", strokeWidth: 2.2 },
      encoding: { x, y: y("value"), color, detail: { field: "curve" }, strokeDash },
    },
    {
      mark: { type: "circle", size: 60, opacity: 1, cursor: "pointer" },
      encoding: { x, y: y("value"), color, tooltip },
    },
  ];
  const last = points.filter(({ x: at }) => at === ends[1]);
  const said = last.map(({ difficulty, value }) => `${percent(value)} at ${difficultyName(difficulty)}`);
  return chart(
    `Solved share of evaluations by ${axis.label}; at last ${said.join(", ")}`,
    220,
    { data: { values: points }, layer },
    {
      onClick: ({ run, difficulty }) => {
        if (run === undefined) return;
        change({ runs: String(run), difficulty, span: "", section: "rollouts" });
      },
    },
  );
}
