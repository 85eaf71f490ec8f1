// The list of rollouts: filtered, sorted, and drawn where it is seen.

const ROW_HEIGHT = 54;
const SORTS = {
  newest: {
    label: "newest first",
    key: (each, group) => data.group.time[group] ?? data.place[group],
    down: true,
  },
  oldest: {
    label: "oldest first",
    key: (each, group) => data.group.time[group] ?? data.place[group],
  },
  best: { label: "highest reward first", key: (each) => data.rollout.reward[each], down: true },
  worst: { label: "lowest reward first", key: (each) => data.rollout.reward[each] },
  longest: { label: "longest first", key: (each) => data.rollout.tokens[each] ?? 0, down: true },
  shortest: { label: "shortest first", key: (each) => data.rollout.tokens[each] ?? 0 },
  disagreement: {
    label: "most disagreement in the group first",
    key: (each, group) => disagreement(group),
    down: true,
  },
};

const list = { found: [], place: -1, matches: null, searched: "", searching: 0 };

/** Return the spread of a group's rewards. */
function disagreement(group) {
  const rewards = rolloutsOf(group).map((each) => data.rollout.reward[each]);
  const center = sum(rewards) / rewards.length;
  return sum(rewards.map((each) => (each - center) ** 2)) / rewards.length;
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

function rolloutFilters() {
  const passes = [];
  if (!source.live) passes.push((each, group) => data.group.at[group] !== null);
  if (state.status) passes.push((each) => statusOf(each) === state.status);
  if (state.low !== "") passes.push((each) => data.rollout.reward[each] >= Number(state.low));
  if (state.high !== "") passes.push((each) => data.rollout.reward[each] <= Number(state.high));
  if (list.matches)
    passes.push(
      (each, group) => list.matches.has(data.group.id[group]) || list.matches.has(idOf(each)),
    );
  return passes;
}

function filterRollouts() {
  const passes = rolloutFilters();
  const found = [];
  const keys = new Float64Array(data.groupOf.length);
  const { key, down } = SORTS[state.sort] ?? SORTS.newest;
  for (const group of groupsLeft()) {
    const shared = key === SORTS.disagreement.key ? disagreement(group) : null;
    for (let each = data.first[group]; each < data.first[group + 1]; each += 1) {
      if (!passes.every((pass) => pass(each, group))) continue;
      keys[each] = shared ?? key(each, group);
      found.push(each);
    }
  }
  found.sort((a, b) => (down ? keys[b] - keys[a] : keys[a] - keys[b]) || a - b);
  return found;
}

async function showRollouts() {
  await search();
  const rows = byId("rows");
  const top = list.found[Math.floor(rows.scrollTop / ROW_HEIGHT)];
  const offset = rows.scrollTop % ROW_HEIGHT;
  list.found = filterRollouts();
  list.place = list.found.indexOf(openedRollout());
  const total = source.live
    ? data.groupOf.length
    : sum(data.group.size.filter((_, group) => data.group.at[group] !== null));
  byId("found").textContent = `${whole(list.found.length)} of ${plural(total, "rollout")}`;
  drawRows();
  const kept = rows.scrollTop > 0 && top !== undefined ? list.found.indexOf(top) : -1;
  rows.scrollTop = kept >= 0 ? kept * ROW_HEIGHT + offset : 0;
  drawRows();
}

/** Search the texts, unless the same was searched and nothing has come since. */
async function search() {
  const wanted = `${state.text}\0${data.group.id.length}`;
  if (!state.text.trim()) {
    Object.assign(list, { matches: null, searched: "" });
    return;
  }
  if (list.searched === wanted) return;
  list.searching += 1;
  const own = list.searching;
  byId("found").textContent = "Searching …";
  const found = await source.search(state.text.trim(), (part) => {
    byId("found").textContent = `Searching, ${percent(part, 0)} done`;
    return own === list.searching;
  });
  if (found !== null && own === list.searching)
    Object.assign(list, { matches: new Set(found), searched: wanted });
}

function drawRows() {
  const rows = byId("rows");
  const begin = Math.max(0, Math.floor(rows.scrollTop / ROW_HEIGHT) - 6);
  const end = Math.min(list.found.length, begin + Math.ceil(rows.clientHeight / ROW_HEIGHT) + 12);
  const spacer = make("li", { class: "spacer", role: "presentation" });
  spacer.style.height = `${list.found.length * ROW_HEIGHT}px`;
  const drawn = [spacer];
  for (let place = begin; place < end; place += 1) drawn.push(rowOf(place));
  rows.replaceChildren(...drawn);
  if (list.place >= begin && list.place < end)
    rows.setAttribute("aria-activedescendant", `rollout-${list.place}`);
  else rows.removeAttribute("aria-activedescendant");
}

function rowOf(place) {
  const rollout = list.found[place];
  const group = data.groupOf[rollout];
  const { reward, tokens, truncated } = data.rollout;
  const level = data.group.level[group];
  const parts = [
    words(statusOf(rollout)),
    tokens[rollout] === null
      ? "no completion"
      : `${whole(tokens[rollout])} tokens${truncated[rollout] ? ", truncated" : ""}`,
  ];
  if (level !== null) parts.push(`level ${level}`);
  if (data.group.asked_again[group]) parts.push("asked again");
  const place0 = shownRuns().indexOf(data.group.run[group]);
  const attributes = {
    id: `rollout-${place}`,
    role: "option",
    "aria-selected": place === list.place,
    "aria-setsize": list.found.length,
    "aria-posinset": place + 1,
  };
  const row = make(
    "li",
    attributes,
    make("span", { class: `dot ${kindOf(statusOf(rollout))}`, "aria-hidden": "true" }),
    make("bdi", { class: "task" }, line(taskOf(group).name)),
    make("span", { class: "number" }, decimal(reward[rollout])),
    make(
      "span",
      { class: "about soft" },
      shownRuns().length > 1 ? dot(place0) : "",
      parts.join(" · "),
    ),
  );
  row.style.top = `${place * ROW_HEIGHT}px`;
  row.addEventListener("click", () => choose(place, true));
  return row;
}

/** Select a rollout of the list, show it, and keep it in view. */
async function choose(place, focus = false) {
  if (!list.found.length) return;
  list.place = Math.max(0, Math.min(list.found.length - 1, place));
  const rows = byId("rows");
  const top = list.place * ROW_HEIGHT;
  if (top < rows.scrollTop) rows.scrollTop = top;
  else if (top + ROW_HEIGHT > rows.scrollTop + rows.clientHeight)
    rows.scrollTop = top + ROW_HEIGHT - rows.clientHeight;
  drawRows();
  await openRollout(idOf(list.found[list.place]));
  if (focus && matchMedia("(max-width: 52rem)").matches) focusDetail();
}

async function openRollout(id) {
  state.rollout = id;
  writeFragment();
  await showDetail();
}

function focusDetail() {
  byId("detail").focus();
  byId("detail").scrollIntoView();
}

function moveInList(event) {
  const page = Math.floor(byId("rows").clientHeight / ROW_HEIGHT);
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

/** Move by letter, wherever no text is typed. */
function moveByKey(event) {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.closest("input, select, textarea")
  )
    return;
  const keys = {
    j: () => choose(list.place + 1),
    k: () => choose(Math.max(0, list.place - 1)),
    h: () => chooseSibling(-1),
    l: () => chooseSibling(1),
    s: () => toggleTogether(),
    "/": () => byId("text").focus(),
  };
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
}
