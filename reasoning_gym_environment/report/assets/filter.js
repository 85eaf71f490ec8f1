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
    const [name, given] = term.split(/:(.*)/s);
    const field = Object.hasOwn(FIELDS, name.toLowerCase()) ? name.toLowerCase() : name;
    if (given === undefined || !/^[a-z]+$/.test(field)) where.words.push(term);
    else if (!Object.hasOwn(FIELDS, field)) {
      const fields = Object.keys(FIELDS);
      const hint = didYouMean(field, fields, `fields are ${fields.join(", ")}.`);
      where.problem = `Unknown field ${field}: ${hint} Quote the word to search for it.`;
    } else {
      const values = given.match(/"[^"]*"|[^,"]+/g) ?? [""];
      const known = where.values.get(field) ?? [];
      const named = values.map(unquoted);
      const stored = field === "status" ? named.map((value) => value.replaceAll(" ", "_")) : named;
      where.values.set(field, [...known, ...stored]);
    }
  }
  return where;
}

const CLOSE = 3; // letters of a name for each that may be wrong

/** Return the closest known name as a question, or the other hint if none is close. */
function didYouMean(name, known, otherwise) {
  const ranked = known
    .map((each) => [editDistance(name.toLowerCase(), each.toLowerCase()), each])
    .filter(([distance, each]) => CLOSE * distance <= Math.max(name.length, each.length))
    .sort(([one], [other]) => one - other);
  return ranked.length ? `did you mean ${line(ranked[0][1])}?` : otherwise;
}

/** Return how many letters have to be added, removed, replaced or swapped: Damerau's distance. */
function editDistance(one, other) {
  const rows = [Array.from({ length: other.length + 1 }, (_, column) => column)];
  for (let row = 1; row <= one.length; row += 1) {
    rows.push([row]);
    for (let column = 1; column <= other.length; column += 1) {
      const differs = Number(one[row - 1] !== other[column - 1]);
      const steps = [
        rows[row - 1][column] + 1,
        rows[row][column - 1] + 1,
        rows[row - 1][column - 1] + differs,
      ];
      const swapped = one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      if (row > 1 && column > 1 && swapped) steps.push(rows[row - 2][column - 2] + 1);
      rows[row].push(Math.min(...steps));
    }
  }
  return rows[one.length][other.length];
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
    const hint = didYouMean(value, names, `there are ${names.map(line).join(", ")}.`);
    where.problem = `Unknown ${field} ${line(value)}: ${hint}`;
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
