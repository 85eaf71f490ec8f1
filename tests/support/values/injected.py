"""Groups of scores with 5 % of injected failures of ours, and GRPO's advantages without them."""

import random
from statistics import fmean, pstdev, stdev

GROUPS, GROUP_SIZE = 25, 8
UNSCORED = 10


def injected_scores() -> list[list[float | None]]:
    """Return the scores of each group; None is unscored."""
    rng = random.Random(0)
    scores: list[float | None] = [
        float(rng.random() < 0.5) for _ in range(GROUPS * GROUP_SIZE)
    ]
    for row in rng.sample(range(len(scores)), UNSCORED):
        scores[row] = None
    return [scores[n : n + GROUP_SIZE] for n in range(0, len(scores), GROUP_SIZE)]


def advantages(
    group: list[float | None], *, sample: bool = True, scaled: bool = True
) -> list[float]:
    """Return each score's distance from the mean of the scored ones, and 0 for the unscored.

    Args:
        sample: divide by the standard deviation of a sample, not by the population's.
        scaled: divide at all.
    """
    scored = [score for score in group if score is not None]
    mean = fmean(scored)
    spread = (stdev if sample else pstdev)(scored) if scaled else 1.0
    return [
        0.0 if score is None or not spread else (score - mean) / spread
        for score in group
    ]
