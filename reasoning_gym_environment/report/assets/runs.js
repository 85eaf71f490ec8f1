// Who and what: each run's health, figures and settings; several runs stand below each other.

const PACE = ["rollouts per second", "last group"];
const LEVELS = { ok: "●", past: "○", warning: "▲", error: "■" };
const MOST_WARNINGS = 3;

function showRuns() {
  const groups = byRun(groupsLeft("runs"));
  const shown = shownRuns();
  const several = data.runs.length > 1;
  const names = shown.map((run) => line(data.runs[run].name));
  document.title =
    names.length === 1 ? `${names[0]} · reasoning-gym rollouts` : "reasoning-gym rollouts";
  byId("title").textContent = titleOf(shown, names);
  byId("facts").textContent = factsOf(shown);
  replaceIfNew(
    byId("healths"),
    ...notes(),
    ...healthLines(shown, groups),
  );
  byId("tiles").replaceChildren(...(shown.length === 1 ? tilesOf(groups.get(shown[0]) ?? []) : []));
  byId("run-table").hidden = !several;
  byId("run-title").textContent = byId("run-link").textContent = several ? "Runs" : "The run";
  if (several) showRunTable(groups, shown);
  showOutcomes(shown);
  showServers(shown);
  showSettings(shown);
}

const OUTCOMES = {
  sent: "sent to the trainer",
  written: "written",
  filtered: "with equal rewards, not sent",
  lost: "lost by inference",
  interrupted: "interrupted",
  refused: "refused by the API",
  send_failures: "not delivered",
  cancelled: "cancelled at the end",
  unscored: "without a score, not sent",
  dropped: "dropped by a subclass",
  too_long: "too long for the trainer, not sent",
};

/** Say of each run which groups were sent to the trainer, and why others were not. */
function showOutcomes(shown) {
  const lines = [];
  for (const run of shown) {
    const { name, outcomes = {} } = data.runs[run];
    const counts = Object.entries(outcomes).sort(([, one], [, other]) => other - one);
    if (!counts.length) continue;
    const said = counts.map(([kind, count]) => `${whole(count)} ${OUTCOMES[kind] ?? line(kind)}`);
    const whose = shown.length > 1 ? `Groups of ${line(name)}` : "Groups";
    lines.push(make("p", { class: "soft" }, `${whose}: ${said.join(", ")}.`));
  }
  byId("outcomes").replaceChildren(...lines);
}

/** Show how the inference servers of the training runs shown answer. */
function showServers(shown) {
  const rows = shown.flatMap((run) =>
    (data.runs[run].servers ?? []).map((server) => ({ ...server, run: data.runs[run].name })),
  );
  byId("server-table").hidden = !rows.length;
  if (!rows.length) return;
  const count = (key, label) => ({ key, label, cell: (row) => whole(row[key]) });
  const columns = [
    { key: "url", label: "Inference server", text: true, cell: ({ url }) => line(url) },
    ...(shown.length > 1 ? [{ key: "run", label: "Run", text: true, cell: ({ run }) => line(run) }] : []),
    {
      ...{ key: "seconds", label: "Seconds a request" },
      cell: ({ seconds }) => (seconds === null ? "–" : seconds.toFixed(1)),
    },
    count("in_flight", "In flight"),
    count("waiting", "Waiting"),
    count("replies", "Replies"),
    {
      ...{ key: "state", label: "State", text: true },
      cell: ({ is_available: isAvailable }) => (isAvailable ? "answers" : "does not answer"),
    },
  ];
  showTable(byId("server-table"), { label: "Inference servers", columns, rows, sort: "" });
}

function titleOf(shown, names) {
  if (!names.length) return "Waiting for the first group";
  if (names.length === 1) return names[0];
  const evaluated = shown.filter(isEvaluation).length;
  const counts = [
    [names.length - evaluated, "run"],
    [evaluated, "evaluation"],
  ];
  const known = counts.filter(([count]) => count).map(([count, noun]) => plural(count, noun));
  return `${known.join(" and ")} side by side`;
}

/** Who a single run is, when it went, and its pace unless the line of its health says it. */
function factsOf(shown) {
  if (shown.length !== 1) return "";
  const run = data.runs[shown[0]];
  const header = new Map(run.header);
  const given = (names) => names.filter((name) => header.has(name));
  const named = (name) => `${name} ${line(header.get(name))}`;
  const time = (text) => `${line(text).slice(0, 16).replace("T", " ")} UTC`;
  const facts = given(["model"]).map((name) => line(header.get(name)));
  facts.push(...given(["server", "temperature", "seed", "step"]).map(named));
  if (run.step !== null && !header.has("step")) facts.push(`step ${whole(run.step)}`);
  if (run.started) facts.push(`started ${time(run.started)}`);
  if (run.health.some(({ level }) => level !== "ok")) facts.push(...given(PACE).map(named));
  return facts.join(" · ");
}

/** Replace an element's children where they differ, so that focus and selection stay. */
function replaceIfNew(element, ...children) {
  const made = make("div", {}, ...children);
  if (made.innerHTML !== element.innerHTML) element.replaceChildren(...made.childNodes);
}

const notes = () =>
  [data.ended, ...(data.notes ?? [])]
    .filter(Boolean)
    .map((text) => make("p", { class: "soft" }, line(text)));

/** How the runs shown go: the state of a single training run, and what is wrong with any. */
function healthLines(shown, groups) {
  const numbers = [...shown].sort((a, b) => isEvaluation(a) - isEvaluation(b));
  const lines = numbers.flatMap((run) => stateOf(run, groups.get(run) ?? []));
  const isFine = ({ level }) => level === "ok" || level === "past";
  const alone = numbers.filter((run) => !isEvaluation(run)).length === 1 || numbers.length === 1;
  const fine = lines.filter((each) => isFine(each) && alone && each.run === numbers[0]);
  const wrong = [...groupBy(lines.filter((each) => !isFine(each)), ({ text }) => text).values()];
  const name = (same) => {
    const [{ level, text, run }] = same;
    const who = same.length > 1 ? `${same.length} runs` : line(data.runs[run].name);
    return { level, text: numbers.length > 1 ? `${who}: ${text}` : text };
  };
  const named = wrong.map(name);
  const state = fine.map((each) => name([each]));
  const found = [...state, ...named.slice(0, MOST_WARNINGS)].map(healthLine);
  const more = named.slice(MOST_WARNINGS).map(healthLine);
  if (more.length) {
    const details = make("details", {}, make("summary", {}, `${whole(more.length)} more`), ...more);
    details.open = byId("healths").querySelector("details")?.open ?? false;
    found.push(details);
  }
  return found;
}

const isEvaluation = (run) => data.runs[run].kind === "evaluation";

function stateOf(number, groups) {
  const run = data.runs[number];
  const missing = isEvaluation(number) ? figuresOf(groups).unscoredGroups : 0;
  const incomplete = `Incomplete: ${whole(missing)} of ${whole(groups.length)} items not scored`;
  return [...run.health, ...(missing ? [{ level: "warning", text: incomplete }] : [])].map(
    ({ level, text }) =>
      level === "ok" && data.lost
        ? { run: number, level: "past", text: `At ${data.lost}: ${text}` }
        : { run: number, level, text },
  );
}

function healthLine({ level, text }) {
  return make(
    "p",
    { class: `health ${LEVELS[level] ? level : "warning"}` },
    make("span", { "aria-hidden": "true" }, LEVELS[level] ?? LEVELS.warning),
    " ",
    make("span", {}, line(text)),
  );
}

function tile(name, value, note = "") {
  return make(
    "div",
    {},
    make("dt", {}, name),
    make("dd", { class: "figure" }, value),
    make("dd", { class: "note" }, note),
  );
}

function tilesOf(groups) {
  const own = figuresOf(groups);
  if (!own.groups)
    return [tile("Groups", "0", data.group.id.length ? "no group passes the filters" : "")];
  const tasks = new Set(groups.map((group) => data.group.task[group])).size;
  const tiles = [
    ...(own.solved ? solvedTiles(own) : []),
    tile(
      "Groups",
      whole(own.groups),
      `${plural(own.rollouts, "rollout")} of ${plural(tasks, "task")}`,
    ),
    tile("Tokens", short(own.tokens), "of completions"),
  ];
  if (own.signal !== null) tiles.splice(own.solved ? 2 : 0, 0, signalTile(own));
  if (own.length !== null) {
    const median = whole(quantile(sortedLengths(groups), 0.5));
    const note = `tokens, median ${median}; truncated ${percent(own.truncated)}`;
    tiles.push(tile("Mean length", whole(own.length), note));
    tiles.push(tile("Format failures", percent(own.format), "no answer, or several"));
  }
  return tiles;
}

function solvedTiles({ solved, ...own }) {
  const notes = [`95% ${percent(solved.low)} to ${percent(solved.high)}`];
  if (own.chance !== null) {
    notes.push(`chance ${percent(own.chance)}`);
    if (own.noReasoning >= 0) notes.push(`no reasoning ${percent(own.noReasoning)}`);
  }
  if (own.unscoredGroups) notes.push(`${whole(own.unscoredGroups)} groups not scored`);
  return [
    tile("Solved", percent(solved.value), notes.join("; ")),
    tile("Mean reward", own.reward.toFixed(3), `score ${own.score.toFixed(3)}`),
  ];
}

function signalTile(own) {
  const none = percent(1 - own.signal - own.allSolved);
  const notes = [`all solved ${percent(own.allSolved)}, none ${none}`];
  if (own.again !== null) {
    notes.push(`fresh ${percent(own.fresh, 0)}, asked again ${percent(own.again, 0)}`);
  }
  return tile("Groups with signal", percent(own.signal), notes.join("; "));
}

function showRunTable(groups, shown) {
  const rows = data.runs.map((run, number) => ({
    run,
    number,
    figures: groups.has(number) ? figuresOf(groups.get(number)) : null,
  }));
  const number = (key, label, value, text) => ({
    key,
    label,
    value: ({ figures }) => figures && value(figures),
    cell: ({ figures }) => (figures && value(figures) !== null ? text(value(figures)) : "–"),
  });
  showTable(byId("run-table"), {
    label: "Runs and evaluations",
    sort: runSort,
    onSort: (next) => {
      runSort = next;
      showRuns();
    },
    rows,
    columns: [
      {
        key: "name",
        label: "Run",
        text: true,
        value: ({ run, number }) => number + (run.kind === "training" ? 0 : data.runs.length),
        cell: (row) => runChoice(row, shown),
      },
      ...settingColumns(),
      {
        key: "solved",
        label: "Solved",
        value: ({ figures }) => figures?.solved?.value ?? null,
        cell: ({ figures, number }) => solvedCell(figures, Math.max(0, shown.indexOf(number))),
      },
      ...difficultyColumns(groups),
      number(
        "reward",
        "Reward",
        (own) => own.reward,
        (value) => value.toFixed(3),
      ),
      number(
        "signal",
        "Signal",
        (own) => own.signal,
        (value) => percent(value),
      ),
      number("length", "Length", (own) => own.length, whole),
      number(
        "truncated",
        "Truncated",
        (own) => own.truncated,
        (value) => percent(value),
      ),
      number(
        "format",
        "No answer",
        (own) => own.format,
        (value) => percent(value),
      ),
      number("groups", "Groups", (own) => own.groups, whole),
      number("rollouts", "Rollouts", (own) => own.rollouts, whole),
      number("tokens", "Tokens", (own) => own.tokens, short),
    ],
  });
}

let runSort = "name";

const SETTINGS = { model: "Model", tasks: "Tasks", curriculum: "Curriculum", seed: "Seed" };

/** Return a column for each setting in which runs differ. */
function settingColumns() {
  const values = (key) => new Set(data.runs.map(({ setting }) => setting[key]));
  return Object.entries(SETTINGS)
    .filter(([key]) => values(key).size > 1)
    .map(([key, label]) => ({
      ...{ key, label, text: true },
      value: ({ run }) => run.setting[key] ?? null,
      cell: ({ run }) => line(run.setting[key] ?? "–"),
    }));
}

/** Return the evaluations' steps, and a column for each of several difficulties. */
function difficultyColumns(groups) {
  const evaluated = new Set(evaluations());
  const own = [...groups].filter(([run]) => evaluated.has(run));
  const labels = difficultiesOf(own.flatMap(([, items]) => items));
  const parted = new Map(own.map(([run, items]) => [run, groupBy(items, difficultyLabel)]));
  const solvedAt = (number, label) => {
    const items = parted.get(number)?.get(label);
    return items ? figuresOf(items).solved : null;
  };
  const columns = (labels.length > 1 ? labels : []).map((label) => ({
    ...{ key: `difficulty ${label}`, label: label === "default" ? "Default" : `At ${label}` },
    ...{ help: `Solved at ${difficultyName(label)}` },
    value: ({ number }) => solvedAt(number, label)?.value ?? null,
    cell: ({ number }) => {
      const found = solvedAt(number, label);
      if (!found) return "–";
      const title = `95%: ${percent(found.low)} to ${percent(found.high)}`;
      return make("span", { title }, percent(found.value));
    },
  }));
  const step = {
    ...{ key: "step", label: "Step" },
    value: ({ run }) => run.step,
    cell: ({ run }) => (run.step === null ? "–" : whole(run.step)),
  };
  return data.runs.some((run) => run.step !== null) ? [step, ...columns] : columns;
}

function runChoice({ run, number }, shown) {
  const place = shown.indexOf(number);
  const box = make("input", { type: "checkbox", "data-key": `run ${number}` });
  box.checked = place >= 0;
  box.addEventListener("change", () => {
    const chosen = box.checked ? [...shown, number] : shown.filter((each) => each !== number);
    change({
      runs: chosen
        .slice(-MOST_RUNS)
        .sort((a, b) => a - b)
        .join(","),
    });
  });
  return make("label", {}, box, place >= 0 ? dot(place) : "", make("bdi", {}, line(run.name)));
}

/** The mark of a run in tables and lists. */
const dot = (place) => make("span", { class: `dot series-${place}`, "aria-hidden": "true" });

function solvedCell(figures, place) {
  if (!figures?.solved) return "–";
  const { value, low, high } = figures.solved;
  const text = make(
    "span",
    { class: "value", title: `95%: ${percent(low)} to ${percent(high)}` },
    percent(value),
  );
  return make(
    "span",
    { class: "solved-cell" },
    intervalBar(figures.solved, figures.chance, place),
    text,
  );
}

const fact = (label, value) =>
  make("div", {}, make("dt", {}, line(label)), make("dd", {}, line(value)));

function showSettings(shown) {
  const opened = [...byId("settings").querySelectorAll("details[open]")];
  const open = new Set(opened.map((each) => each.dataset.key));
  const folded = (key, title, ...content) => {
    const details = make("details", { "data-key": key }, make("summary", {}, title), ...content);
    details.open = open.has(key);
    return details;
  };
  const [first] = shown;
  if (shown.length === 1) return replaceIfNew(byId("settings"), ...settingsOf(first, folded));
  const each = shown.map((run) =>
    folded(`run ${run}`, line(data.runs[run].name), ...settingsOf(run, folded)),
  );
  return replaceIfNew(
    byId("settings"),
    folded("all", "Settings, system prompts and warnings", ...each),
  );
}

function settingsOf(number, folded) {
  const run = data.runs[number];
  const found = [];
  if (run.warnings.length && !run.groups) {
    // Of a run with groups, they stand on its line of time.
    const lines = run.warnings.map(({ time, level, text }) =>
      make("li", {}, `${line(time).slice(11, 19)} ${line(level)} `, make("bdi", {}, line(text))),
    );
    const title = `Last ${lines.length === 1 ? "warning" : `${lines.length} warnings`} of the log`;
    found.push(folded(`log ${number}`, title, make("ul", { class: "log" }, ...lines)));
  }
  const header = run.header.filter(([label]) => !PACE.includes(label));
  const facts = [...header, ["name", run.id]].map(([label, value]) => fact(label, value));
  const list = make("dl", { class: "facts" }, ...facts);
  found.push(folded(`settings ${number}`, "Settings and versions", list));
  if (run.system_prompt) {
    found.push(folded(`prompt ${number}`, "System prompt", modelText(run.system_prompt)));
  }
  return found;
}
