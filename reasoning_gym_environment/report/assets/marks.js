// What happened in a run, on its line of time: waits, events, warnings of the log, notes.

/** Return the place among a run's groups of a time in seconds: that of the first group after it. */
function placeAt(run, seconds) {
  const order = data.order[run] ?? [];
  const after = order.findIndex((group) => data.group.time[group] >= seconds);
  return after < 0 ? order.length - 1 : after;
}

const secondsOf = (time) => Date.parse(time) / 1000;

/** Return what happened in a run, each with its text and the time at which it began and ended. */
function marksOf(run) {
  const { waits = [], events = [], warnings, updated, ended } = data.runs[run];
  const span = (kind, time, until, text) => {
    const end = until || ended || updated; // a killed run leaves what lasted without an end
    if (end === time) return { kind, time, text };
    const said = `${text}, ${line(time).slice(11, 19)} ${until ? "to" : "on, still at"} ${line(end).slice(11, 19)}`;
    return { kind, time, until: end, text: said };
  };
  const marks = [
    ...waits.map(({ reason, since, until }) => span("wait", since, until, `waited for ${reason}`)),
    ...events.map(({ time, until, text }) => span("event", time, until, text)),
    ...warnings.map(({ time, level, text }) => ({ kind: "warning", time, text: `${level}: ${text}` })),
  ];
  return marks
    .map((mark) => ({ ...mark, seconds: secondsOf(mark.time) }))
    .map((mark) => ({ ...mark, place: placeAt(run, mark.seconds) }))
    .sort((one, other) => one.seconds - other.seconds);
}

/** List what happened in a run, with the group at which it did. */
function showMarks(run) {
  const marks = marksOf(run);
  const steps = notedSteps(run);
  byId("note-form").hidden = !source.live || data.runs[run].step === null;
  byId("events").hidden = !marks.length && !steps.length;
  const count = (kind) => marks.filter((mark) => mark.kind === kind).length;
  const counts = [
    count("wait") && plural(count("wait"), "wait"),
    count("event") && plural(count("event"), "event"),
    count("warning") && `${plural(count("warning"), "warning")} of the log`,
    steps.length && plural(steps.length, "note"),
  ];
  byId("events-said").textContent = counts.filter(Boolean).join(", ");
  byId("event-list").replaceChildren(
    ...steps.map(({ about, text }) =>
      make("li", {}, `${about}: `, make("bdi", {}, line(text)), " ", noteButton(run, about)),
    ),
    ...marks.map(({ place, time, text }) => {
      const at = `group ${whole(place + 1)}, ${line(time).slice(11, 19)} `;
      return make("li", {}, at, make("bdi", {}, line(text)));
    }),
  );
}

const SPAN_COLORS = { wait: "var(--format)", event: "var(--series-4)" };

/** Return layers behind the points of runs: spans of what lasted, and lines at what happened once. */
function markLayers(runs, x, axis) {
  const at = (run, mark) =>
    axis === AXES.time ? 1000 * mark.seconds : axis.of(data.order[run][mark.place]);
  const marks = runs.flatMap((run) => marksOf(run).map((mark) => ({ ...mark, run })));
  const spans = marks.filter(({ until }) => until).map((mark) => {
    const seconds = secondsOf(mark.until);
    const end = { seconds, place: placeAt(mark.run, seconds) };
    const said = line(mark.text).slice(0, 120);
    return { x: at(mark.run, mark), until: at(mark.run, end), color: SPAN_COLORS[mark.kind], said };
  });
  const once = marks
    .filter(({ until }) => !until)
    .map((mark) => ({ x: at(mark.run, mark), said: line(mark.text).slice(0, 120) }));
  for (const run of runs) {
    for (const { about, text, place } of notedSteps(run))
      once.push({ x: axis.of(data.order[run][place]), said: line(`${about}: ${text}`).slice(0, 120) });
  }
  const tooltip = [tip("said", "event")];
  const layers = [];
  const color = { field: "color", type: "nominal", legend: null, scale: null };
  if (spans.length)
    layers.push({
      data: { values: spans },
      mark: { type: "rect", opacity: 0.3, clip: true },
      encoding: { x, x2: { field: "until" }, tooltip, color, stroke: color },
    });
  if (once.length)
    layers.push({
      data: { values: once },
      mark: { type: "rule", color: "var(--fault)", strokeDash: [3, 3], strokeWidth: 1.5, clip: true },
      encoding: { x, tooltip },
    });
  return layers;
}
