// Conditions on rollouts, such as `task:maze,gcd level:>=3 status:wrong`, as `commands/show.py` has
// them: several values of a field are alternatives, other words are searched in the texts.

/** What a condition can be about: a rollout's value, from its number and its group's. */
const FIELDS = {
  kind: (_, group) => runOf(group).kind,
  run: (_, group) => (runOf(group).kind === "training" ? runOf(group).id : null),
  task: (_, group) => taskOf(group).name,
  category: (_, group) => taskOf(group).category,
  problems: (_, group) => (data.group.asked_again[group] ? "again" : "fresh"),
  status: (each) => statusOf(each),
  level: (_, group) => data.group.level[group],
  difficulty: (_, group) => (runOf(group).kind === "training" ? null : data.group.difficulty[group]),
  step: (_, group) => data.group.step[group],
  group: (_, group) => data.group.number[group],
  reward: (each) => data.rollout.reward[each],
  tokens: (each) => data.rollout.tokens[each],
};
const FACETS = ["status", "level", "task"];

/** The names that a field can have here; undefined for a field of numbers. */
const NAMES = {
  kind: () => ["training", "evaluation"],
  run: () => data.runs.filter(({ kind }) => kind === "training").map(({ id }) => id),
  task: () => data.tasks.map(({ name }) => name),
  category: () => data.tasks.map(({ category }) => category),
  problems: () => ["fresh", "again"],
  status: () => data.statuses,
};

const unquoted = (text) => text.replace(/^"+|"+$/g, "");
const quoted = (value) => (/[\s",]/.test(value) ? `"${value}"` : value);

/** Return a text's values by field, its other words, and what is wrong with it. */
function parseWhere(text) {
  const where = { values: new Map(), words: [], problem: "" };
  for (const [term] of text.matchAll(/(?:"[^"]*"|[^\s"])+|"/g)) {
    const [field, given] = term.split(/:(.*)/s);
    if (given === undefined || !/^[a-z]+$/.test(field)) where.words.push(term);
    else if (!Object.hasOwn(FIELDS, field)) {
      const fields = Object.keys(FIELDS).join(", ");
      where.problem = `Unknown field ${field}: fields are ${fields}. Quote the word to search for it.`;
    } else {
      const values = given.match(/"[^"]*"|[^,"]+/g) ?? [""];
      const known = where.values.get(field) ?? [];
      where.values.set(field, [...known, ...values.map(unquoted)]);
    }
  }
  return where;
}

/** Return the text of values by field and of other words: the inverse of `parseWhere`. */
function whereText({ values, words: others }) {
  const terms = [...values].filter(([, own]) => own.length);
  return [...terms.map(([field, own]) => `${field}:${own.map(quoted).join(",")}`), ...others].join(" ");
}

/** Return `[field, test]` for each field; an unknown value is told in `where.problem`. */
function testsOf(where) {
  const tests = [];
  for (const [field, values] of where.values) {
    const own = values.map((value) => testOf(field, value, where)).filter(Boolean);
    if (own.length) tests.push([field, (value) => own.some((test) => test(value))]);
  }
  return tests;
}

function testOf(field, value, where) {
  if (field in NAMES) {
    const names = [...new Set(NAMES[field]())].sort();
    if (names.includes(value)) return (own) => own === value;
    where.problem = `Unknown ${field} ${line(value)}: there are ${names.map(line).join(", ")}.`;
    return null;
  }
  if (value === "none") return (own) => own === null;
  const range = /^(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)$/.exec(value);
  if (range) return (own) => own !== null && own >= Number(range[1]) && own <= Number(range[2]);
  const found = /^(<=|>=|<|>|)(-?\d+(?:\.\d+)?)$/.exec(value);
  if (!found) {
    where.problem = `${field} must be a number, a comparison such as >=2, a range such as 2..5, or none.`;
    return null;
  }
  const bound = Number(found[2]);
  const compare = {
    "<": (own) => own < bound,
    "<=": (own) => own <= bound,
    ">": (own) => own > bound,
    ">=": (own) => own >= bound,
    "": (own) => own === bound,
  }[found[1]];
  return (own) => own !== null && compare(own);
}

/**
 * Return the rollouts of some groups that meet all conditions, and for each facet how many have
 * each of its values if the conditions on the facet itself don't count.
 */
function matching(groups, tests, passes) {
  const found = [];
  const counts = Object.fromEntries(FACETS.map((field) => [field, new Map()]));
  for (const group of groups) {
    for (let each = data.first[group]; each < data.first[group + 1]; each += 1) {
      if (!passes.every((pass) => pass(each, group))) continue;
      const failed = tests.filter(([field, test]) => !test(FIELDS[field](each, group)));
      if (failed.length > 1) continue;
      if (!failed.length) found.push(each);
      for (const field of FACETS) {
        if (failed.length && failed[0][0] !== field) continue;
        const value = FIELDS[field](each, group);
        counts[field].set(value, (counts[field].get(value) ?? 0) + 1);
      }
    }
  }
  return { found, counts };
}

/** Show each facet's values with their counts, as boxes that add a condition or remove it. */
function showFacets(where, counts) {
  const place = byId("facets");
  const focused = place.contains(document.activeElement) && document.activeElement.dataset.key;
  for (const field of FACETS) {
    const chosen = where.values.get(field) ?? [];
    const known = [...counts[field]].map(([value, count]) => [String(value ?? "none"), count]);
    const missing = chosen.filter((value) => !counts[field].has(value) && field in NAMES);
    const values = [...known, ...missing.map((value) => [value, 0])].sort(([one], [other]) =>
      one.localeCompare(other, "en", { numeric: true }),
    );
    const facet = byId(`facet-${field}`);
    facet.hidden = values.length < 2 && !chosen.length;
    facet.lastElementChild.replaceChildren(
      ...values.map(([value, count]) => {
        const box = make("input", { type: "checkbox", "data-key": `${field} ${value}` });
        box.checked = chosen.includes(value);
        box.addEventListener("change", () => toggleValue(field, value));
        const name = make("bdi", {}, line(field === "status" ? words(value) : value));
        const label = make("label", {}, box, name, make("span", { class: "number soft" }, whole(count)));
        return make("li", {}, label);
      }),
    );
  }
  if (focused) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function toggleValue(field, value) {
  const where = parseWhere(state.where);
  const own = where.values.get(field) ?? [];
  const others = own.filter((each) => each !== value);
  where.values.set(field, others.length < own.length ? others : [...own, value]);
  change({ where: whereText(where) });
}
