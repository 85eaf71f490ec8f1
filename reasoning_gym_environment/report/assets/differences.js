// Figures of parts of a run and their differences: the formulas of `rollouts/differences.py` and
// `rollouts/figures.py`, which explain them and name their sources.

const TENTHS_FROM = 100;
const INTERVAL_GROUPS = 20;
const COVERED = 0.5;
const COMPARISONS = 3;

const MEASURES = [
  { name: "solved", label: "Solved", better: 1, marked: "level", percent: true },
  { name: "reward", label: "Reward", better: 1, marked: "level" },
  { name: "missing", label: "Answers missing", better: -1, marked: "whole", percent: true },
  { name: "truncated", label: "Truncated", better: -1, marked: "whole", percent: true },
  { name: "signal", label: "Groups with signal", better: 1, percent: true },
  { name: "length", label: "Length in tokens", better: 0, whole: true },
  { name: "unscored", label: "Unscored", better: -1, marked: "whole", percent: true },
  { name: "level", label: "Level", better: 1 },
];
const MARKED = MEASURES.filter(({ marked }) => marked);

/** Return number, sum and sum of squares of groups' values, by pair of task and level. */
function sumsOf(groups, values, cells) {
  const sums = new Map();
  for (const group of groups) {
    const value = values[group];
    if (value === null) continue;
    const own = sums.get(cells[group]);
    if (!own) sums.set(cells[group], [1, value, value * value]);
    else {
      own[0] += 1;
      own[1] += value;
      own[2] += value * value;
    }
  }
  return sums;
}

/** Return the sums of all pairs as one; without values, of none. */
function mergedSums(sums) {
  const all = [0, 0, 0];
  for (const own of sums.values()) own.forEach((value, place) => (all[place] += value));
  return new Map(all[0] ? [["", all]] : []);
}

const countOf = (sums) => [...sums.values()].reduce((total, [count]) => total + count, 0);

function meanOf(sums) {
  const [all] = mergedSums(sums).values();
  return all ? all[1] / all[0] : null;
}

/** Return the variance of groups around the mean of their pair, and its degrees of freedom. */
function varianceWithin(sums) {
  let [squares, freedom] = [0, 0];
  for (const [count, total, square] of sums.values()) {
    squares += square - total ** 2 / count;
    freedom += count - 1;
  }
  return [Math.max(0, squares) / Math.max(1, freedom), freedom];
}

/** Return a difference with its interval and its normal deviate. */
function differenceOf(value, parts, compared, covered) {
  const groups = compared.reduce((total, count) => total + count, 0);
  const total = parts.reduce((all, [variance]) => all + variance, 0);
  const least = 1 / groups;
  const isLeast = total <= least ** 2;
  const error = isLeast ? least : Math.sqrt(total);
  const freedom = isLeast
    ? parts.reduce((all, [, own]) => all + own, 0)
    : total ** 2 / parts.reduce((all, [variance, own]) => all + variance ** 2 / own, 0);
  const spread = studentsT(NORMAL_QUANTILE, freedom) * error;
  const known = Math.min(...compared) >= INTERVAL_GROUPS;
  return {
    ...{ value, covered, deviate: normalDeviate(value / error, freedom) },
    ...{ low: known ? value - spread : null, high: known ? value + spread : null },
  };
}

/** Return the weighted mean of the pairs' differences; null where nothing can be compared. */
function difference(later, earlier) {
  const common = [...later.keys()].filter((cell) => earlier.has(cell));
  const windows = [later, earlier].map((sums) => ({ sums, within: varianceWithin(sums) }));
  if (!common.length || windows.some(({ within: [, freedom] }) => !freedom)) return null;
  let [weights, gaps] = [0, 0];
  const shares = [0, 0];
  const compared = [0, 0];
  for (const cell of common) {
    const [one, other] = [later.get(cell), earlier.get(cell)];
    const weight = (one[0] * other[0]) / (one[0] + other[0]);
    weights += weight;
    gaps += weight * (one[1] / one[0] - other[1] / other[0]);
    [one, other].forEach(([count], side) => {
      shares[side] += weight ** 2 / count;
      compared[side] += count;
    });
  }
  const parts = windows.map(({ within: [variance, freedom] }, side) => [
    (variance * shares[side]) / weights ** 2,
    freedom,
  ]);
  const all = countOf(later) + countOf(earlier);
  return differenceOf(gaps / weights, parts, compared, (compared[0] + compared[1]) / all);
}

/** Return the mean of merged sums less a target; null without a variance. */
function toTarget(sums, target) {
  const [variance, freedom] = varianceWithin(sums);
  if (!freedom) return null;
  const count = countOf(sums);
  return differenceOf(meanOf(sums) - target, [[variance / count, freedom]], [count], 1);
}

function normalDeviate(t, freedom) {
  const shrunk = (8 * freedom + 1) / (8 * freedom + 3);
  return Math.sign(t) * shrunk * Math.sqrt(freedom * Math.log1p((t * t) / freedom));
}

function studentsT(deviate, freedom) {
  const stretched = (deviate * (8 * freedom + 3)) / (8 * freedom + 1);
  return Math.sqrt(freedom * Math.expm1(stretched ** 2 / freedom));
}

/** Return a deviate less what is due to having looked at so many of which it is the largest. */
function correctedDeviate(deviate, looks) {
  const square = Math.sign(deviate) * deviate * deviate - 2 * Math.log(looks);
  return Math.sign(square) * Math.sqrt(Math.abs(square));
}

const deviateForWorse = ({ better }, found) => {
  if (!found) return 0;
  return better ? -better * found.deviate : Math.abs(found.deviate);
};

/** Return the deviate for the worse of one comparison, as a whole and at the same level. */
function worstOf(measure, whole, level, looks) {
  const sides = measure.better ? 1 : 2;
  const of = (found) => correctedDeviate(deviateForWorse(measure, found), looks * sides);
  return level && level.covered >= COVERED ? of(level) : Math.max(of(level), of(whole));
}

function isBeyond(measure, found, looks, size) {
  if (!found || found.low === null) return false;
  const deviate = correctedDeviate(deviateForWorse(measure, found), looks);
  return deviate > NORMAL_QUANTILE && -measure.better * found.value >= size;
}

/** Return a measure's row from the sums of its parts, the earliest first; null without values. */
function figureOf(measure, parts, { rows, size, target = null }) {
  const merged = parts.map(mergedSums);
  const means = merged.map(meanOf);
  const known = means.filter((mean) => mean !== null);
  if (!known.length) return null;
  const last = parts.length - 1;
  const whole = merged.slice(0, last).map((part) => difference(merged[last], part));
  // At the same level, levels are the same.
  const levels = measure.name === "level";
  const level = parts.slice(0, last).map((part) => (levels ? null : difference(parts[last], part)));
  const looks = whole.map((_, place) =>
    place === 0 || place === last - 1 ? COMPARISONS : COMPARISONS * last,
  );
  const ranked = looks.map((own, place) => worstOf(measure, whole[place], level[place], own));
  const counted = measure.marked === "level" ? level : whole;
  const isWorse =
    Boolean(measure.marked) &&
    counted.some((found, place) => isBeyond(measure, found, looks[place] * rows, size));
  const own = measure.name === "solved" ? target : null;
  const gaps = own === null ? [] : merged.slice(-2).map((part) => toTarget(part, own));
  const staysBelow = gaps.length > 0 && gaps.every((gap) => isBeyond(measure, gap, rows, size));
  const furthest = (differences) => {
    if (!measure.better) return null;
    const ranked = differences.filter(Boolean);
    ranked.sort((one, other) => deviateForWorse(measure, other) - deviateForWorse(measure, one));
    return ranked[0] ?? null;
  };
  return {
    ...{ measure, groups: merged.reduce((all, part) => all + countOf(part), 0) },
    ...{ last: means[last], before: means[last - 1], first: means[0] },
    best: measure.better ? (measure.better > 0 ? Math.max(...known) : Math.min(...known)) : null,
    whole: { before: whole[last - 1], first: whole[0], best: furthest(whole) },
    level: { before: level[last - 1], first: level[0], best: furthest(level) },
    ...{ target: own, toTarget: gaps.at(-1) ?? null },
    ...{ worst: Math.max(...ranked), marked: isWorse || staysBelow },
  };
}

/** Return the tenths of a series of groups, or its thirds. */
function partsOfSeries(groups) {
  const number = groups.length >= TENTHS_FROM ? 10 : 3;
  const end = (part) => Math.floor((part * groups.length) / number);
  return Array.from({ length: number }, (_, part) => groups.slice(end(part), end(part + 1)));
}

/** Return the rows of parts of a series, the worst first. `values` are by measure and group. */
function figuresOfParts(parts, values, cells, limits) {
  return MEASURES.map((measure) =>
    figureOf(
      measure,
      parts.map((groups) => sumsOf(groups, values[measure.name], cells)),
      limits,
    ),
  )
    .filter(Boolean)
    .sort((one, other) => other.worst - one.worst);
}

/** Rounds of fitting means of parts and of pairs in turn. */
const FIT_ROUNDS = 30;

/**
 * Return each part's mean at the same level; null without values.
 *
 * The mean of a pair of task and level, and that of a part, add up to a group's value: both are
 * fitted by least squares, in turn.
 */
function standardisedMeans(parts, values, cells) {
  const numbers = new Map(); // of the pairs
  const rows = []; // of each group: its part, its pair, its value
  parts.forEach((groups, part) => {
    for (const group of groups) {
      if (values[group] === null) continue;
      if (!numbers.has(cells[group])) numbers.set(cells[group], numbers.size);
      rows.push([part, numbers.get(cells[group]), values[group]]);
    }
  });
  const countBy = (column, size) => {
    const counts = new Float64Array(size);
    for (const row of rows) counts[row[column]] += 1;
    return counts;
  };
  const counts = [countBy(0, parts.length), countBy(1, numbers.size)];
  const means = [new Float64Array(parts.length), new Float64Array(numbers.size)];
  const fit = (column) => {
    const other = 1 - column;
    const own = means[column].fill(0);
    for (const row of rows) own[row[column]] += row[2] - means[other][row[other]];
    own.forEach((total, place) => (own[place] = total / Math.max(1, counts[column][place])));
  };
  for (let round = 0; round < FIT_ROUNDS; round += 1) [1, 0].forEach(fit);
  let shift = 0; // so that the parts' mean is that of all values
  for (const [part, , value] of rows) shift += (value - means[0][part]) / rows.length;
  return parts.map((_, part) => (counts[0][part] ? means[0][part] + shift : null));
}

/** The share of tasks that noise alone ranks beyond NORMAL_QUANTILE. */
const BY_NOISE = 0.025;

/** Return by how much a task's worst figure stands out among its measures. */
const worstOfTask = (figures) => correctedDeviate(figures[0].worst, MEASURES.length);
