// The table of rollouts: filtered, sorted, and drawn where it is seen.

const ROW_HEIGHT = 34;
const ROLLOUT_COLUMNS = [
  {
    key: "status",
    label: "Status",
    text: true,
    value: (each) => statusOf(each),
    cell: (each) => [statusDot(statusOf(each)), words(statusOf(each))],
  },
  {
    key: "reward",
    label: "Reward",
    value: (each) => data.rollout.reward[each],
    cell: (each) => decimal(data.rollout.reward[each]),
  },
  {
    key: "answer",
    label: "Answer",
    text: true,
    value: (each) => data.rollout.answer[each],
    cell: (each) => excerpt(data.rollout.answer[each]),
  },
  {
    key: "oracle",
    label: "Oracle",
    text: true,
    value: (each) => data.group.oracle[data.groupOf[each]],
    cell: (each) => excerpt(data.group.oracle[data.groupOf[each]]),
  },
  {
    key: "task",
    label: "Task",
    text: true,
    value: (each) => taskOf(data.groupOf[each]).name,
    cell: (each) => {
      const runs = shownRuns();
      const mark = runs.length > 1 ? [dot(runs.indexOf(data.group.run[data.groupOf[each]]))] : [];
      return [...mark, make("bdi", {}, line(taskOf(data.groupOf[each]).name))];
    },
  },
  numberColumn("level", "Level"),
  numberColumn("step", "Step", "The trainer's step"),
  {
    key: "tokens",
    label: "Tokens",
    help: "Of the completion; … is truncated",
    value: (each) => data.rollout.tokens[each],
    cell: (each) => {
      const tokens = data.rollout.tokens[each];
      if (tokens === null) return "–";
      return `${whole(tokens)}${data.rollout.truncated[each] ? "…" : ""}`;
    },
  },
  {
    key: "spread",
    label: "Spread",
    help: "Standard deviation of the rewards in the group: how much its rollouts disagree",
    value: (each) => spread(data.groupOf[each]),
    cell: (each) => decimal(spread(data.groupOf[each])),
  },
  {
    key: "time",
    label: "Time",
    help: "UTC; without times, the group's place in its file",
    value: (each) => data.group.time[data.groupOf[each]] ?? data.place[data.groupOf[each]],
    cell: (each) => {
      const time = data.group.time[data.groupOf[each]];
      return time === null ? `# ${data.place[data.groupOf[each]] + 1}` : clock(time).slice(5, 19);
    },
  },
];

/** A column of a group's numbers, which may be missing. */
function numberColumn(key, label, help) {
  const value = (each) => FIELDS[key](each, data.groupOf[each]);
  return { key, label, help, value, cell: (each) => String(value(each) ?? "–") };
}

const list = { found: [], place: -1, matches: null, searched: "", searching: 0, columns: [] };

const excerpt = (text) => (text === null ? "–" : make("bdi", {}, line(text)));
const statusDot = (status) => make("span", { class: `dot ${kindOf(status)}`, "aria-hidden": "true" });

/** Return the standard deviation of a group's rewards. */
function spread(group) {
  const rewards = rolloutsOf(group).map((each) => data.rollout.reward[each]);
  const center = sum(rewards) / rewards.length;
  return Math.sqrt(sum(rewards.map((each) => (each - center) ** 2)) / rewards.length);
}

const idOf = (rollout) => {
  const group = data.groupOf[rollout];
  return `${data.group.id[group]}.${rollout - data.first[group] + 1}`;
};

/** Return the rollout of an identifier ID.N; undefined if there is none. */
function rolloutOf(id) {
  const cut = id.lastIndexOf(".");
  const group = data.numberOf.get(id.slice(0, cut));
  const number = Number(id.slice(cut + 1));
  return group !== undefined && number >= 1 && number <= data.group.size[group]
    ? data.first[group] + number - 1
    : undefined;
}

/** Return the rollout shown: the one chosen, or the first of a list that stays as it is. */
function openedRollout() {
  if (state.rollout) return rolloutOf(state.rollout);
  return source.live ? undefined : list.found[0];
}

async function showRollouts() {
  const where = parseWhere(state.where);
  const tests = testsOf(where);
  await search(where.words.map(unquoted).join(" ")).catch((error) => {
    where.problem = `The texts can't be searched: ${error.message}`;
    Object.assign(list, { matches: null, searched: "" });
  });
  const rows = byId("rows");
  const top = list.found[Math.floor(rows.scrollTop / ROW_HEIGHT)];
  const offset = rows.scrollTop % ROW_HEIGHT;
  const passes = list.matches
    ? [(each, group) => list.matches.has(data.group.id[group]) || list.matches.has(idOf(each))]
    : [];
  const hasText = (group) => source.live || data.group.at[group] !== null;
  const groups = groupsLeft();
  const { found, counts } = matching(groups.filter(hasText), tests, passes);
  const others = groups.filter((group) => !hasText(group));
  showLeftOut(others, tests, list.matches !== null);
  const has = (column) => data.group[column]?.some((value) => value !== null);
  list.columns = ROLLOUT_COLUMNS.filter(({ key }) => !["level", "step"].includes(key) || has(key));
  const descending = state.sort.startsWith("-");
  const column = columnOf(list.columns, state.sort);
  list.found = sorted(found, column, descending);
  list.place = list.found.indexOf(openedRollout());
  byId("where-problem").textContent = where.problem;
  byId("where-problem").hidden = !where.problem;
  showFacets(where, counts);
  const total = source.live
    ? data.groupOf.length
    : sum(data.group.size.filter((_, group) => data.group.at[group] !== null));
  byId("found").textContent = `${whole(list.found.length)} of ${plural(total, "rollout")}`;
  showHead(byId("rollout-head"), list.columns, column, descending, (sort) => change({ sort }));
  byId("rollout-table").setAttribute("aria-rowcount", list.found.length + 1);
  drawRows();
  const kept = rows.scrollTop > 0 && top !== undefined ? list.found.indexOf(top) : -1;
  rows.scrollTop = kept >= 0 ? kept * ROW_HEIGHT + offset : 0;
  drawRows();
}

/** Say how many rollouts meet the conditions whose texts this page doesn't have. */
function showLeftOut(groups, tests, isSearch) {
  const count = isSearch
    ? sum(groups.map((group) => data.group.size[group]))
    : matching(groups, tests, []).found.length;
  const more = isSearch ? "more that are not searched" : "more that match";
  byId("left-out").textContent = count
    ? `; ${whole(count)} ${more}: this page lacks their texts. See them with watch, or with the copied command.`
    : "";
}

/** Search the texts, unless the same was searched and nothing has come since. */
async function search(text) {
  const wanted = `${text}\0${data.group.id.length}`;
  if (!text.trim()) {
    Object.assign(list, { matches: null, searched: "" });
    return;
  }
  if (list.searched === wanted) return;
  list.searching += 1;
  const own = list.searching;
  byId("found").textContent = "Searching …";
  const found = await source.search(text, (part) => {
    byId("found").textContent = `Searching, ${percent(part, 0)} done`;
    return own === list.searching;
  });
  if (found !== null && own === list.searching)
    Object.assign(list, { matches: new Set(found), searched: wanted });
}

function drawRows() {
  const table = byId("rollout-table");
  const most = Math.ceil(innerHeight / ROW_HEIGHT) + 12; // the table is never higher than the window
  const begin = Math.max(0, Math.floor(byId("rows").scrollTop / ROW_HEIGHT) - 6);
  const end = Math.min(list.found.length, begin + most);
  const drawn = [gap(begin)];
  for (let place = begin; place < end; place += 1) drawn.push(rowOf(place));
  byId("rollout-body").replaceChildren(...drawn, gap(list.found.length - end));
  if (list.place >= begin && list.place < end)
    table.setAttribute("aria-activedescendant", `rollout-${list.place}`);
  else table.removeAttribute("aria-activedescendant");
}

/** A row as high as rows that are not drawn. */
function gap(rows) {
  const row = make("tr", { class: "gap", "aria-hidden": "true" });
  row.style.height = `${rows * ROW_HEIGHT}px`;
  return row;
}

function rowOf(place) {
  const row = make("tr", {
    id: `rollout-${place}`,
    role: "row",
    "aria-selected": place === list.place,
    "aria-rowindex": place + 2,
  });
  for (const column of list.columns) {
    const content = [column.cell(list.found[place])].flat();
    row.append(make("td", { class: classOf(column), role: "gridcell" }, ...content));
  }
  row.addEventListener("click", () => choose(place, { push: true, focus: true }));
  return row;
}

/** Select a rollout of the list, show it, and keep it in view. */
async function choose(place, { push = false, focus = false } = {}) {
  if (!list.found.length) return;
  list.place = Math.max(0, Math.min(list.found.length - 1, place));
  keepInView();
  await openRollout(idOf(list.found[list.place]), push);
  if (focus && narrow.matches) focusDetail();
}

/** Scroll the table so that its selected row is seen. */
function keepInView() {
  const rows = byId("rows");
  const top = list.place * ROW_HEIGHT;
  const height = rows.clientHeight - byId("rollout-head").offsetHeight;
  if (top < rows.scrollTop) rows.scrollTop = top;
  else if (top + ROW_HEIGHT > rows.scrollTop + height) rows.scrollTop = top + ROW_HEIGHT - height;
  drawRows();
}

async function openRollout(id, push = false) {
  state.rollout = id;
  writeFragment(push);
  showSection();
  await showDetail();
}

function focusDetail() {
  byId("detail").focus();
  byId("detail").scrollIntoView();
}

function moveInList(event) {
  if (event.target !== byId("rollout-table")) return; // a button of its head
  const page = Math.floor(byId("rows").clientHeight / ROW_HEIGHT) - 1;
  const steps = {
    ArrowDown: 1,
    ArrowUp: -1,
    PageDown: page,
    PageUp: -page,
    Home: -Infinity,
    End: Infinity,
  };
  if (event.key === "Enter") focusDetail();
  else if (event.key in steps) choose(list.place < 0 ? 0 : list.place + steps[event.key]);
  else return;
  event.preventDefault();
}

/** Move by letter in the section shown, wherever no text is typed; Escape leaves a field for text. */
function moveByKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open || byId("note").open) return;
  if (event.target.closest("input:not([type=checkbox]), select, textarea")) {
    if (event.key !== "Escape" || event.target.type !== "search") return;
    event.preventDefault(); // the text stays
    if (event.target.id === "where") byId("rollout-table").focus({ preventScroll: true });
    else event.target.blur();
    return;
  }
  const keys = {
    "/": () => focusSearch(),
    "?": () => byId("help").showModal(),
  };
  const keysOfRollouts = {
    j: () => choose(list.place + 1),
    k: () => choose(Math.max(0, list.place - 1)),
    h: () => chooseSibling(-1),
    l: () => chooseSibling(1),
    s: () => toggleTogether(),
  };
  if (sectionShown() === "rollouts") Object.assign(keys, keysOfRollouts);
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
}

/** Go to the search for a task where tasks are shown, else to that of rollouts. */
function focusSearch() {
  const isOfTasks = sectionShown() === "tasks";
  if (!isOfTasks) goToSection("rollouts");
  byId(isOfTasks ? "find" : "where").focus();
}

// The selection, as a file and as a command.

/** Offer the rows of the rollouts in the table as JSON lines, oldest group first. */
async function downloadSelection() {
  const groups = [...groupBy(list.found, (each) => data.groupOf[each])];
  groups.sort(([one], [other]) => one - other);
  const rows = [];
  for (let begin = 0; begin < groups.length; begin += 8) {
    const part = groups.slice(begin, begin + 8);
    rows.push(...(await Promise.all(part.map(([group]) => source.group(data.group.id[group])))));
    sayOfSelection(`Reading, ${percent(begin / groups.length, 0)} done`);
  }
  const lines = groups.map(([group, own], place) => {
    const numbers = own.sort((one, other) => one - other).map((each) => each - data.first[group]);
    const row = { ...rows[place], rollouts: numbers.map((number) => rows[place].rollouts[number]) };
    return `${asciiJson(row)}\n`;
  });
  const address = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  make("a", { href: address, download: "rollouts.jsonl" }).click();
  const cut = rows.filter(isCut).length;
  const note = cut ? `; ${plural(cut, "group")} with texts cut in the middle` : "";
  sayOfSelection(`${plural(list.found.length, "rollout")} in ${plural(groups.length, "row")}${note}`);
}

/** Copy the command that prints the rollouts in the table, or more where no condition is exact. */
async function copySelection() {
  const runs = [...new Set(list.found.map((each) => data.group.run[data.groupOf[each]]))];
  const where = parseWhere(state.where);
  const add = (field, values) => where.values.has(field) || where.values.set(field, values);
  for (const field of ["task", "category", "problems"]) if (state[field]) add(field, [state[field]]);
  const own = runs.map((run) => data.runs[run]);
  if (!own.length) return;
  const ofTraining = own.filter(({ kind }) => kind === "training").map(({ id }) => id);
  if (!ofTraining.length || ofTraining.length === own.length) add("kind", [own[0].kind]);
  if (NAMES.run().length > 1 && ofTraining.length === own.length) add("run", ofTraining);
  if (state.difficulty && !ofTraining.length)
    add("difficulty", [state.difficulty === "default" ? "none" : state.difficulty]);
  if (parseSpan()) {
    const numbers = list.found.map((each) => data.group.number[data.groupOf[each]]);
    const bounds = [numbers.reduce((a, b) => Math.min(a, b)), numbers.reduce((a, b) => Math.max(a, b))];
    if (bounds[0] > 0) add("group", [bounds.join("..")]);
  }
  const text = whereText(where);
  const folders = [...new Set(own.map(({ folder }) => folder))];
  const files = data.files
    .filter(({ name, groups }) => groups && folders.includes(name.replace(/[/][^/]*$/, "")))
    .map(({ name }) => name);
  const paths = files.length && files.length <= 20 ? files : folders;
  if (/[^\x20-\x7e]/.test([text, ...paths].join(""))) {
    sayOfSelection("Names with unusual characters don't go into a command: download the rows");
    return;
  }
  const shell = (word) => (/^[\w./:,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const command = ["reasoning-gym-environment show", ...paths.map(shell)];
  if (text) command.push(`--where ${shell(text)}`);
  const done = await copied(command.join(" "));
  const selected = new Set(runs);
  const groups = data.group.id.flatMap((_, group) => (selected.has(data.group.run[group]) ? [group] : []));
  const passes = list.matches
    ? [(each, group) => list.matches.has(data.group.id[group]) || list.matches.has(idOf(each))]
    : [];
  const count = matching(groups, testsOf(where), passes).found.length;
  sayOfSelection(
    done ? `Command copied; it selects ${plural(count, "rollout")}` : "The command can't be copied here",
  );
}

function sayOfSelection(text) {
  byId("selection-said").textContent = text;
}
