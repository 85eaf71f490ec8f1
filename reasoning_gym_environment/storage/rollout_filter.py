"""Which stored rollouts are wanted."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..records import Status
from .rows import StoredRollout

_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
_CONDITION = re.compile(r"\s*(<=|>=|<|>|=)\s*(\d+(?:\.\d*)?|\.\d+)\s*")


def parse_condition(text: str) -> Callable[[float], bool]:
    """A test of a score, from `<0.5`, `>=1` or `=0`; raises ValueError on anything else.

    Example:
        >>> parse_condition("<0.5")(0.25)
        True
    """
    found = _CONDITION.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no comparison such as '<0.5', '>=1' or '=0'")
    compare, bound = _COMPARISONS[found[1]], float(found[2])
    return lambda score: bool(compare(score, bound))


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutFilter:
    """Attributes:
    tasks, statuses: wanted ones; empty is all.
    score: a test of the reward; None is any.
    """

    tasks: Collection[str] = ()
    statuses: Collection[Status] = ()
    score: Callable[[float], bool] | None = None

    def wants(self, task: str, rollout: StoredRollout) -> bool:
        return (
            (not self.tasks or task in self.tasks)
            and (not self.statuses or rollout.status in self.statuses)
            and (self.score is None or self.score(rollout.score))
        )
