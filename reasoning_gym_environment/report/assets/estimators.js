// Estimates of what the filters leave, which no server computes: the formulas of
// `evaluation/estimators.py`, which names the sources.

const NORMAL_QUANTILE = 1.959964;
const NEARLY_NORMAL = 1000;
const ROUNDING = 1e-9;

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
function share(clusters) {
  const { items, mean, variance } = clusteredMean(clusters);
  const error = variance === null ? null : Math.sqrt(variance);
  const sizes = clusters.map(([size]) => size);
  const least = sum(sizes) ** 2 / sum(sizes.map((size) => size * size));
  return { value: mean, error, ...wilson(mean, error, items - 1, least) };
}

/** Return a mean and its variance, clustered by item; null for a single item. */
function clusteredMean(clusters) {
  const [items, values] = [clusters.length, sum(clusters.map(([size]) => size))];
  const mean = sum(clusters.map(([, total]) => total)) / values;
  const squares = sum(clusters.map(([size, total]) => (total - mean * size) ** 2));
  const variance = items > 1 ? (squares * items) / (items - 1) / values ** 2 : null;
  return { items, mean, variance };
}
