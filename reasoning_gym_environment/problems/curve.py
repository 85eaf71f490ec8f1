"""A task's solve probability by level, fitted to evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

Evidence = Mapping[int, tuple[float, float]]
"""Level to decayed counts (solved, answered)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """The solved share as a logistic function of the level.

    Attributes:
        middle: the position of the middle of the ladder.
        log_odds: of a right answer there.
        slope: by which the log-odds fall per level; above 0.
    """

    middle: float
    log_odds: float
    slope: float

    def at_level(self, level: float) -> float:
        """Return the share solved at a level."""
        return _logistic(self.log_odds + self.slope * (self.middle - level))

    def at(self, position: float) -> float:
        """Return the share solved at a position, where neighboring levels mix."""
        lower = int(position)
        upper_share = position - lower
        lower_solved = self.at_level(lower)
        upper_solved = self.at_level(lower + 1)
        return (1 - upper_share) * lower_solved + upper_share * upper_solved

    def position(self, solved_share: float, top: int) -> float:
        """Return the position in [0, top] where this share is solved, or the nearer end."""
        crossing = self.middle + (self.log_odds - _log_odds(solved_share)) / self.slope
        if not 0 <= crossing < top:
            return float(min(max(crossing, 0), top))
        lower = math.floor(crossing)
        above = self.at_level(lower)
        below = self.at_level(lower + 1)
        return lower + (above - solved_share) / (above - below)


PRIOR_SLOPE = 2.0
PRIOR_FALL = 6.0
"""Log-odds by which the prior falls from level to level, and over a tall ladder at the most."""

NEWTON_STEPS = 12
"""The fit has converged before, also where all answers are right."""

LONGEST_STEP = 3.0
"""Log-odds of a step."""

MOST_LOG_ODDS = 50.0
"""Beyond them `exp` would overflow, and the share is 0 or 1 anyway."""


def fit_curve(evidence: Evidence, height: int, target: float) -> Curve:
    """Fit a logistic regression with a prior, by Newton's method with bounded steps.

    The prior expects the target share somewhere on the ladder, and log-odds that fall by 2 from
    level to level, or by 6 over a tall ladder. Both are wide: a few groups outweigh them.
    Bounded steps can't overshoot if all answers are right, or all wrong.

    Args:
        height: the number of levels of the ladder, at least 2.
        target: in (0, 1).
    """
    middle = (height - 1) / 2
    prior_log_odds = _log_odds(target)
    prior_slope = min(PRIOR_SLOPE, PRIOR_FALL / (height - 1))
    log_odds_precision = 1 / ((middle * prior_slope) ** 2 + 1)
    slope_precision = 1 / (prior_slope / 2) ** 2
    log_odds = prior_log_odds
    slope = prior_slope
    for _ in range(NEWTON_STEPS):
        gradient = log_odds_precision * (prior_log_odds - log_odds)
        slope_gradient = slope_precision * (prior_slope - slope)
        curvature = log_odds_precision
        mixed = 0.0
        slope_curvature = slope_precision
        for level, (solved, answered) in evidence.items():
            ease = middle - level
            share = _logistic(log_odds + slope * ease)
            residual = solved - answered * share
            information = answered * share * (1 - share)
            gradient += residual
            slope_gradient += residual * ease
            curvature += information
            mixed += information * ease
            slope_curvature += information * ease * ease
        determinant = curvature * slope_curvature - mixed * mixed
        step = (gradient * slope_curvature - slope_gradient * mixed) / determinant
        slope_step = (curvature * slope_gradient - mixed * gradient) / determinant
        longest = max(abs(step) / LONGEST_STEP, abs(slope_step) / prior_slope)
        damping = max(1.0, longest)
        log_odds += step / damping
        # A curve that rises would send a task up for failing.
        slope = max(prior_slope / 5, slope + slope_step / damping)
    return Curve(middle=middle, log_odds=log_odds, slope=slope)


def _logistic(log_odds: float) -> float:
    bounded = max(-MOST_LOG_ODDS, min(MOST_LOG_ODDS, log_odds))
    return 1 / (1 + math.exp(-bounded))


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))
