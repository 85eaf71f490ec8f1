// The page as a whole: filters and fragment, what is drawn anew, and following a run.

const POLL_MILLISECONDS = 2000;
const narrow = matchMedia("(max-width: 52rem)"); // as in the style: what is long begins folded
const SECTIONS = [
  showRuns,
  showFilters,
  showTasks,
  showTime,
  showFigures,
  showEvaluations,
  showDistributions,
  showComparison,
  showFiles,
];

/** Change the state, write it into the address, and draw everything anew; Back undoes it. */
function change(changes, push = true) {
  Object.assign(state, changes);
  writeFragment(push);
  showAll();
}

function showAll() {
  for (const each of SECTIONS) each();
  showSection();
  return showRollouts().then(showDetail);
}

/** Return the section shown: the one chosen, or the first that has something. */
function sectionShown() {
  const names = sectionLinks().map(({ dataset }) => dataset.section);
  const chosen = state.section || (state.rollout && "rollouts");
  const filled = names.filter((name) => !byId(name).hidden);
  return filled.includes(chosen) ? chosen : filled[0];
}

const sectionLinks = () => [...document.querySelectorAll("[data-section]")];

/** Show one section, and in each link the address of its section. A print has all sections. */
function showSection() {
  const shown = sectionShown();
  const isNew = !byId(shown).classList.contains("current");
  for (const link of sectionLinks()) {
    const { section } = link.dataset;
    link.href = `#${fragmentOf({ section })}`;
    link.parentElement.hidden = byId(section).hidden;
    link.setAttribute("aria-current", section === shown ? "page" : "false");
    byId(section).classList.toggle("current", section === shown);
  }
  const main = byId("main");
  if (isNew && scrollY > main.offsetTop) main.scrollIntoView();
}

function goToSection(section) {
  state.section = section;
  writeFragment(true);
  showSection();
}

/** Show the rollout of a link, and its row in the table. */
function goToRollout() {
  if (list.place >= 0) keepInView();
  byId("detail").scrollIntoView();
}

/** Give a select these options, `[value, label]`, and a value. */
function fillOptions(select, options, value) {
  const same =
    select.options.length === options.length &&
    options.every(
      ([own, label], number) =>
        select.options[number].value === own && select.options[number].label === label,
    );
  if (!same) select.replaceChildren(...options.map(([own, label]) => new Option(label, own)));
  select.value = value;
}

function showFilters() {
  const all = (label) => [["", label]];
  const values = (list) => [...new Set(list)].sort().map((value) => [value, line(value)]);
  const tasks = data.tasks.filter(
    (task) => !state.category || task.category === state.category || task.name === state.task,
  );
  fillOptions(
    byId("category"),
    [...all("all"), ...values(data.tasks.map((task) => task.category))],
    state.category,
  );
  fillOptions(byId("task"), [...all("all"), ...values(tasks.map((task) => task.name))], state.task);
  const difficulties = difficultiesOf([...data.group.id.keys()]).map((each) => [each, each]);
  fillOptions(byId("difficulty"), [...all("all"), ...difficulties], state.difficulty);
  byId("difficulty").parentElement.hidden = difficulties.length < 2;
  byId("problems").value = state.problems;
  byId("x").parentElement.hidden = data.group.step.every((step) => step === null) && data.group.time.includes(null);
  byId("problems").parentElement.hidden = !data.group.asked_again.some(Boolean);
  fillOptions(
    byId("metric"),
    Object.entries(METRICS).map(([value, { label }]) => [value, label]),
    state.metric,
  );
  fillOptions(byId("measure"), MEASURES.map(({ name, label }) => [name, label]), state.measure);
  for (const name of ["x", "by", "grouping"]) byId(name).value = state[name];
  for (const name of ["where", "find"]) {
    if (document.activeElement !== byId(name)) byId(name).value = state[name];
  }
  const span = parseSpan();
  byId("from").value = span ? span.first + 1 : "";
  byId("until").value = span ? span.last + 1 : "";
  byId("span").hidden = !span;
  if (span)
    byId("span").textContent = `groups ${whole(span.first + 1)} to ${whole(span.last + 1)} ×`;
  const groups = groupsLeft();
  const rollouts = sum(groups.map((group) => data.group.size[group]));
  byId("left").textContent = `${plural(groups.length, "group")}, ${plural(rollouts, "rollout")}`;
  byId("reset").disabled = !Object.keys(NO_FILTERS).some((name) => state[name]);
}

/** Filter to the groups that are entered, of the first training run shown. */
function spanFromFields() {
  const run = parseSpan()?.run ?? shownRuns().find((each) => data.runs[each].kind === "training");
  const first = Math.max(1, Math.floor(Number(byId("from").value)) || 1);
  const last = Math.floor(Number(byId("until").value)) || data.order[run].length;
  change({ span: last >= first ? `${run}:${first - 1}-${last - 1}` : "" });
}

function showFiles() {
  byId("files").hidden = !data.files.length;
  if (!data.files.length) return;
  showTable(byId("file-table"), {
    label: "Files",
    sort: "",
    rows: data.files,
    columns: [
      {
        key: "name",
        label: "File",
        text: true,
        cell: (file) => make("span", { class: "path" }, line(file.name)),
      },
      { key: "kind", label: "Holds", text: true, cell: (file) => file.kind },
      { key: "groups", label: "Groups", cell: (file) => whole(file.groups) },
      { key: "rollouts", label: "Rollouts", cell: (file) => whole(file.rollouts) },
      { key: "torn", label: "Torn lines skipped", cell: (file) => whole(file.torn) },
    ],
  });
  byId("recorded").replaceChildren(
    ...Object.entries(data.recorded).map(([path, metrics]) => {
      const facts = Object.entries(metrics).map(([name, value]) =>
        make(
          "div",
          {},
          make("dt", {}, line(name)),
          make("dd", {}, String(Number(value.toPrecision(4)))),
        ),
      );
      return make(
        "details",
        {},
        make("summary", {}, `Metrics recorded by the evaluation: ${line(path)}`),
        make("dl", { class: "facts" }, ...facts),
      );
    }),
  );
  byId("held").textContent = data.held ?? "";
}

function listen() {
  let waiting;
  const later = (changes) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change(changes, false), 200);
  };
  for (const name of [
    "category",
    "task",
    "difficulty",
    "problems",
    "metric",
    "x",
    "by",
    "of",
    "before",
    "after",
    "items",
    "measure",
    "size",
    "grouping",
  ]) {
    byId(name).addEventListener("change", (event) =>
      change({ [name]: event.target.value, ...(name === "category" ? { task: "" } : {}) }),
    );
  }
  byId("figures-run").addEventListener("change", (event) => change({ of: event.target.value }));
  for (const name of ["where", "find"]) {
    byId(name).addEventListener("input", (event) => later({ [name]: event.target.value }));
  }
  for (const name of ["from", "until"]) byId(name).addEventListener("change", spanFromFields);
  for (const name of WINDOW_FIELDS) byId(name).addEventListener("change", windowsFromFields);
  for (const handle of handles())
    handle.addEventListener("keydown", (event) => {
      if (!moveByHandle(event)) return;
      event.preventDefault(); // the page doesn't scroll
      later({});
    });
  byId("reset-windows").addEventListener("click", () => change({ windows: "" }));
  byId("span").addEventListener("click", () => change({ span: "" }));
  byId("reset").addEventListener("click", () => change(NO_FILTERS));
  byId("reset-list").addEventListener("click", () =>
    change({ where: "", sort: DEFAULTS.sort }),
  );
  byId("download").addEventListener("click", () =>
    downloadSelection().catch((error) => sayOfSelection(`No download: ${error.message}`)),
  );
  byId("copy-command").addEventListener("click", copySelection);
  byId("keys").addEventListener("click", () => byId("help").showModal());
  byId("note-save").addEventListener("click", saveNote);
  byId("note-close").addEventListener("click", () => byId("note").close());
  byId("note-open").addEventListener("click", noteStep);
  byId("help-close").addEventListener("click", () => byId("help").close());
  for (const field of FACETS) byId(`facet-${field}`).open = !narrow.matches;
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the fragment holds the state
    byId("main").focus();
  });
  const foldFilters = () => (byId("filters").open = !narrow.matches);
  narrow.addEventListener("change", foldFilters);
  foldFilters();
  for (const formElement of document.forms)
    formElement.addEventListener("submit", (event) => event.preventDefault());
  byId("rows").addEventListener("scroll", drawRows, { passive: true });
  byId("rollout-table").addEventListener("keydown", moveInList);
  document.addEventListener("keydown", moveByKey);
  addEventListener("hashchange", () => {
    const before = fragmentOf({ section: "" });
    readFragment();
    if (fragmentOf({ section: "" }) === before) showSection();
    else showAll();
  });
}

/** Ask for what came since, while somebody looks; a server that is away is asked again. */
async function follow() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
    if (document.hidden) continue;
    try {
      const batch = await source.next();
      const before = happened();
      const came = takeIn(batch);
      data.lost = "";
      showConnection("");
      if (came || batch.restart || happened() !== before) showAll();
      else showRuns();
      if (data.ended) return;
    } catch (error) {
      data.lost ||= new Date().toLocaleTimeString("en-GB");
      showConnection(`Not connected since ${data.lost}, trying again`, error.message);
      showRuns();
    }
  }
}

/** Return what happened in all runs, to see whether more did: a run that waits has no new groups. */
const happened = () => JSON.stringify(data.runs.map(({ waits, events, warnings }) => [waits, events, warnings]));

function showConnection(problem, error = "") {
  const place = byId("connection");
  const reading = data.reading < 1 ? `reading, ${percent(data.reading, 0)} done` : "live";
  place.textContent = problem || (data.ended ? "ended" : reading);
  place.title = error; // "Failed to fetch" tells nobody that the run may have ended
  place.className = problem ? "badge lost" : data.ended ? "badge" : "badge live";
  place.hidden = false;
}

async function start() {
  forget();
  readFragment();
  listen();
  try {
    takeIn(await source.first());
  } catch (error) {
    byId("facts").textContent = `The rollouts can't be loaded: ${error.message}`;
    throw error;
  }
  const shown = showAll();
  document.documentElement.dataset.page = "shown";
  if (state.rollout) shown.then(goToRollout);
  if (!source.live) return;
  byId("found").removeAttribute("role"); // or a screen reader says it every two seconds
  showConnection("");
  await follow();
}

start();
