// Estimates with their 95 % intervals: the formulas of `evaluation/estimators.py`, which names the
// sources.

const NORMAL_QUANTILE = 1.959964;
const NEARLY_NORMAL = 1000;
const ROUNDING = 1e-9;
const EXACT_UP_TO = 100;
const GRAIN = 5040;
const MIN_ITEMS = 6;

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Return P(|T| < t) of Student's distribution. */
function within(t, freedom) {
  const angle = Math.atan(t / Math.sqrt(freedom));
  const odd = freedom % 2;
  let term = odd ? Math.cos(angle) : 1;
  let total = 0;
  for (let step = 2 + odd; step <= freedom; step += 2) {
    total += term;
    term *= (Math.cos(angle) ** 2 * (step - 1)) / step;
  }
  return odd ? (2 / Math.PI) * (angle + Math.sin(angle) * total) : Math.sin(angle) * total;
}

const quantiles = new Map();

/** Return the 97.5 % point of Student's distribution. */
function studentQuantile(freedom) {
  if (freedom >= NEARLY_NORMAL) return NORMAL_QUANTILE;
  if (!quantiles.has(freedom)) {
    let [low, high] = [NORMAL_QUANTILE, 13];
    while (high - low > 1e-9) {
      const middle = (low + high) / 2;
      if (within(middle, freedom) < 0.95) low = middle;
      else high = middle;
    }
    quantiles.set(freedom, high);
  }
  return quantiles.get(freedom);
}

/** Return Wilson's interval of a mean in [0, 1] with any standard error. */
function wilson(mean, error, freedom, least) {
  let trials = least;
  if (error !== null && error > ROUNDING) {
    const reduction = (NORMAL_QUANTILE / studentQuantile(freedom)) ** 2;
    trials = Math.max(least, ((mean * (1 - mean)) / error ** 2) * reduction);
  }
  const scale = 1 + NORMAL_QUANTILE ** 2 / trials;
  const center = (mean + NORMAL_QUANTILE ** 2 / (2 * trials)) / scale;
  const variance =
    Math.max(0, mean * (1 - mean)) / trials + NORMAL_QUANTILE ** 2 / (4 * trials ** 2);
  const spread = (NORMAL_QUANTILE / scale) * Math.sqrt(variance);
  return { low: Math.max(0, center - spread), high: Math.min(1, center + spread) };
}

/** Return the mean of clustered values in [0, 1]: `[number of values, their sum]` of each item. */
const share = (clusters) => macroShare([clusters]);

/** Return the mean of the tasks' means, each task with the same weight. */
function macroShare(tasks) {
  const { mean, error, freedom } = overTasks(tasks);
  const shares = tasks.map((clusters) => {
    const sizes = clusters.map(([size]) => size);
    return sum(sizes.map((size) => size * size)) / sum(sizes) ** 2;
  });
  return { value: mean, error, ...wilson(mean, error, freedom, tasks.length ** 2 / sum(shares)) };
}

/** Return the mean of the tasks' means, its standard error and degrees of freedom. */
function overTasks(tasks) {
  const own = tasks.map(meanOfTask);
  const mean = sum(own.map((task) => task.mean)) / own.length;
  const freedom = sum(own.map((task) => task.items)) - own.length;
  const known = own.filter((task) => task.variance !== null);
  if (!known.length && own.length === 1) return { mean, error: null, freedom };
  const single = known.length
    ? sum(known.map((task) => task.variance * task.items)) / known.length
    : sum(own.map((task) => (task.mean - mean) ** 2)) / (own.length - 1);
  const error = Math.sqrt(sum(own.map((task) => task.variance ?? single))) / own.length;
  return { mean, error, freedom: freedom || own.length - 1 };
}

function meanOfTask(clusters) {
  const [items, values] = [clusters.length, sum(clusters.map(([size]) => size))];
  const mean = sum(clusters.map(([, total]) => total)) / values;
  const squares = sum(clusters.map(([size, total]) => (total - mean * size) ** 2));
  const variance = items > 1 ? (squares * items) / (items - 1) / values ** 2 : null;
  return { items, mean, variance };
}

/** Return the mean of one difference per item, of several tasks the mean of their means. */
function meanDifference(...tasks) {
  const { mean, error, freedom } = overTasks(tasks.map((own) => own.map((each) => [1, each])));
  if (error === null) return { value: mean, error, low: -1, high: 1 };
  const items = sum(tasks.map((own) => own.length));
  const spread = studentQuantile(freedom) * Math.max(error, 1 / items);
  return { value: mean, error, low: Math.max(-1, mean - spread), high: Math.min(1, mean + spread) };
}

/** Return the complementary error function of x ≥ 0, to 1.2e-7: Numerical Recipes' fit. */
function erfc(x) {
  const t = 1 / (1 + x / 2);
  const terms = [
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398,
    1.48851587, -0.82215223, 0.17087277,
  ];
  const fit = terms.reduceRight((total, term) => total * t + term, 0);
  return t * Math.exp(-x * x + fit);
}

/** Return the p-value of the two-sided paired randomization test. */
function signFlipP(differences) {
  const steps = differences.map((each) => Math.round(each * GRAIN)).filter(Boolean);
  const total = Math.abs(sum(steps));
  const sizes = steps.map(Math.abs);
  if (sizes.length > EXACT_UP_TO) {
    return erfc(total / Math.sqrt(2 * sum(sizes.map((size) => size * size))));
  }
  let chances = new Map([[0, 1]]);
  for (const size of sizes) {
    const flipped = new Map();
    for (const [reached, chance] of chances) {
      flipped.set(reached + size, (flipped.get(reached + size) ?? 0) + chance / 2);
      flipped.set(reached - size, (flipped.get(reached - size) ?? 0) + chance / 2);
    }
    chances = flipped;
  }
  const extreme = [...chances].filter(([reached]) => Math.abs(reached) >= total);
  return Math.min(1, sum(extreme.map(([, chance]) => chance)));
}

/** Return the names that are significant at a false discovery rate of 5 %: Benjamini-Hochberg. */
function discoveries(pValues, rate = 0.05) {
  const ranked = [...pValues].sort((one, other) => one[1] - other[1]);
  const passing = ranked.map(([, p], rank) =>
    p <= (rate * (rank + 1)) / ranked.length ? rank + 1 : 0,
  );
  return new Set(ranked.slice(0, Math.max(0, ...passing)).map(([name]) => name));
}
