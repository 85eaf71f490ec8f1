// Single rollouts: filters, and a list with pages.

const PAGE = 50;
const index = readJson("index");
const chunks = [...document.querySelectorAll("script.chunk")];
const unpacked = new Map();
const byId = (id) => document.getElementById(id);

// The group of each rollout, and the first rollout of each group.
const groupOf = index.group_size.flatMap((size, group) => Array(size).fill(group));
let total = 0;
const firstOf = index.group_size.map((size) => (total += size) - size);

let found = []; // rollouts that pass the filters
let place = 0; // index of the selected one in `found`
let asked = 0; // number of searches; only the latest one is shown

const taskOf = (rollout) => index.tasks[index.group_task[groupOf[rollout]]];
const words = (name) => name.replaceAll("_", " ");
const count = (number) => number.toLocaleString("en");
const plural = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
const decimal = (number) => (number === null ? "–" : number.toFixed(2));

function textsOf(group) {
  const chunk = Math.floor(group / index.chunk_groups);
  if (!unpacked.has(chunk)) unpacked.set(chunk, unpack(chunks[chunk].textContent));
  return unpacked.get(chunk).then((groups) => groups[group % index.chunk_groups]);
}

// Filters

function passes(rollout, wanted) {
  const group = groupOf[rollout];
  const score = index.score[rollout];
  return (
    (!wanted.task || taskOf(rollout) === wanted.task) &&
    (!wanted.split || index.group_split[group] === wanted.split) &&
    (!wanted.status || index.status[rollout] === wanted.status) &&
    (wanted.lowest === "" || score >= Number(wanted.lowest)) &&
    (wanted.highest === "" || score <= Number(wanted.highest))
  );
}

function holds(texts, number, searched) {
  const rollout = texts.rollouts[number];
  const prompt = texts.prompt.filter((m) => m.role !== "system").map((m) => m.content);
  const all = [rollout.rest, rollout.thought, rollout.answer, rollout.detail, texts.oracle];
  return [...all, ...prompt].some((text) => text?.toLowerCase().includes(searched));
}

/** Return the rollouts whose texts contain the searched text; null if a newer search started. */
async function search(rollouts, searched, question) {
  const matching = [];
  for (const [done, rollout] of rollouts.entries()) {
    const texts = await textsOf(groupOf[rollout]);
    if (question !== asked) return null;
    if (holds(texts, rollout - firstOf[groupOf[rollout]], searched)) matching.push(rollout);
    if (done % 500 === 0) byId("found").textContent = `Searching, ${count(done)} done…`;
  }
  return matching;
}

async function filter() {
  const question = ++asked;
  const wanted = Object.fromEntries(new FormData(byId("filters")));
  let passing = groupOf.map((_, rollout) => rollout).filter((r) => passes(r, wanted));
  if (wanted.text) passing = await search(passing, wanted.text.toLowerCase(), question);
  if (passing === null) return;
  found = passing;
  byId("found").textContent = `${plural(found.length, "rollout")} of ${count(total)}`;
  choose(0);
}

/** Show the rollouts of one task. */
function readTask(task) {
  byId("filters").reset();
  byId("filters").elements.task.value = task;
  filter();
  byId("samples").scrollIntoView();
}

function fillFilters() {
  const statuses = new Map();
  for (const status of index.status) statuses.set(status, (statuses.get(status) ?? 0) + 1);
  const { task, status } = byId("filters").elements;
  for (const name of index.tasks) task.append(make("option", { value: name }, lineOf(name)));
  for (const [name, number] of [...statuses].sort((a, b) => b[1] - a[1])) {
    status.append(make("option", { value: name }, `${words(name)} (${count(number)})`));
  }
}

// The list

function row(rollout, position) {
  const status = index.status[rollout];
  const chosen = position === place;
  const line = make(
    "li",
    { role: "option", id: `rollout-${rollout}`, "aria-selected": chosen },
    make("span", { class: `dot ${status}`, role: "img", "aria-label": words(status) }),
    make("span", { class: "task" }, lineOf(taskOf(rollout))),
    make("span", {}, decimal(index.score[rollout])),
    make("bdi", { class: "answer" }, lineOf(index.answer[rollout]) || words(status)),
  );
  line.title = words(status);
  line.addEventListener("click", () => choose(position).then(toDetail));
  return line;
}

function showList() {
  const start = place - (place % PAGE);
  const end = Math.min(start + PAGE, found.length);
  const rows = byId("rows");
  rows.replaceChildren(...found.slice(start, end).map((r, i) => row(r, start + i)));
  rows.setAttribute("aria-activedescendant", found.length ? `rollout-${found[place]}` : "");
  reveal(rows, rows.querySelector("[aria-selected=true]"));
  byId("range").textContent = found.length
    ? `${count(start + 1)} to ${count(end)} of ${count(found.length)}`
    : "no rollouts";
  byId("earlier").disabled = start === 0;
  byId("later").disabled = end === found.length;
}

/** Scroll the list, not the page, as little as necessary. */
function reveal(rows, line) {
  if (!line) return;
  const lowest = line.offsetTop + line.offsetHeight - rows.clientHeight;
  rows.scrollTop = Math.max(lowest, Math.min(rows.scrollTop, line.offsetTop));
}

/** Select the rollout at a position in the list, and show it. */
async function choose(wanted) {
  place = Math.max(0, Math.min(wanted, found.length - 1));
  showList();
  await showDetail(found[place]);
}

const STEPS = {
  ArrowDown: () => place + 1,
  ArrowUp: () => place - 1,
  PageDown: () => place + PAGE,
  PageUp: () => place - PAGE,
  Home: () => 0,
  End: () => found.length - 1,
};

function onKey(event) {
  if (event.key === "Enter") byId("detail").focus();
  if (!(event.key in STEPS)) return;
  event.preventDefault();
  choose(STEPS[event.key]());
  byId("rows").querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
}

/** On a narrow screen the rollout is below the list. */
function toDetail() {
  if (matchMedia("(max-width: 52rem)").matches) byId("detail").scrollIntoView();
}

// Start

let pause;
byId("filters").addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(filter, 150);
});
byId("filters").addEventListener("reset", () => setTimeout(filter));
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("rows").addEventListener("keydown", onKey);
byId("earlier").addEventListener("click", () => choose(place - (place % PAGE) - PAGE));
byId("later").addEventListener("click", () => choose(place - (place % PAGE) + PAGE));
fillFilters();
await filter();
document.documentElement.dataset.samples = "shown";
await drawAll();
