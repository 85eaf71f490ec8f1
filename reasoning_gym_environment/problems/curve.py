"""The share of answers solved as a logistic curve over a ladder, fitted to aged results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

STEP = 2.0
"""Log-odds between neighbouring levels that a short ladder is expected to have."""

SPAN = 6.0
"""Log-odds that a tall ladder is expected to span in all."""

Evidence = Mapping[int, tuple[float, float]]
"""Level to (solved, answered); aged counts, so not whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Solved shares over a ladder.

    Attributes:
        middle: the middle of the ladder, as a level.
        log_odds: of an answer to be right there.
        slope: by how much they fall from a level to the next; above 0.
    """

    middle: float
    log_odds: float
    slope: float

    def at_level(self, level: float) -> float:
        """Read off the share solved at a level."""
        return _logistic(self.log_odds + self.slope * (self.middle - level))

    def at(self, position: float) -> float:
        """Read off the share solved at a position, where neighbouring levels mix."""
        lower = int(position)
        share = position - lower
        return (1 - share) * self.at_level(lower) + share * self.at_level(lower + 1)

    def position(self, solved_share: float, top: int) -> float:
        """Find where this share is solved: in [0, top], the nearer end if nowhere."""
        crossing = self.middle + (self.log_odds - _log_odds(solved_share)) / self.slope
        if not 0 <= crossing < top:
            return float(min(max(crossing, 0), top))
        lower = math.floor(crossing)
        above, below = self.at_level(lower), self.at_level(lower + 1)
        return lower + (above - solved_share) / (above - below)


def fit_curve(evidence: Evidence, height: int, target: float) -> Curve:
    """Fit the most probable curve: a logistic regression with a prior.

    The prior expects the target share somewhere on the ladder and the slopes of STEP and SPAN;
    both are wide, so a handful of groups outweighs them. Newton's method, with steps bounded
    so that it can't overshoot where every answer is right or every one wrong.

    Args:
        height: how many levels the ladder has, at least 2.
        target: in (0, 1).
    """
    middle = (height - 1) / 2
    prior_log_odds, prior_slope = _log_odds(target), min(STEP, SPAN / (height - 1))
    log_odds_precision = 1 / ((middle * prior_slope) ** 2 + 1)
    slope_precision = 1 / (prior_slope / 2) ** 2
    log_odds, slope = prior_log_odds, prior_slope
    for _ in range(12):
        gradient = log_odds_precision * (prior_log_odds - log_odds)
        slope_gradient = slope_precision * (prior_slope - slope)
        curvature, mixed, slope_curvature = log_odds_precision, 0.0, slope_precision
        for level, (solved, answered) in evidence.items():
            ease = middle - level
            share = _logistic(log_odds + slope * ease)
            residual, information = solved - answered * share, answered * share * (1 - share)
            gradient += residual
            slope_gradient += residual * ease
            curvature += information
            mixed += information * ease
            slope_curvature += information * ease * ease
        determinant = curvature * slope_curvature - mixed * mixed
        step = (gradient * slope_curvature - slope_gradient * mixed) / determinant
        slope_step = (curvature * slope_gradient - mixed * gradient) / determinant
        damping = max(1.0, abs(step) / 3, abs(slope_step) / prior_slope)
        log_odds += step / damping
        slope = max(prior_slope / 5, slope + slope_step / damping)
    return Curve(middle=middle, log_odds=log_odds, slope=slope)


def _logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, log_odds))))


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))
