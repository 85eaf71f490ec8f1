"""Gathers the results of a problem that are reported one by one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import islice
from statistics import median_low

from ..records import Recipe, recipe_key

logger = logging.getLogger(__name__)

MAX_AWAITED = 4096
"""Problems that may await their first result; beyond that the oldest is forgotten."""

MAX_PARTIAL = 1024
"""Groups that may be partly scored; beyond that the one without news for longest is closed."""


@dataclass(kw_only=True, slots=True)
class GatheredGroup:
    """The results of a problem so far; `completions` counts those whose scoring failed too."""

    recipe: Recipe
    completions: int = 0
    scored: int = 0
    solved: int = 0


class GroupGathering:
    """Gathers results by problem; they may come in any order, and from several processes.

    Args:
        size: completions of a group. None learns it from the first result. It changes if groups
            agree: most that were taken for whole got more, or most of those that stall got fewer.

    Attributes:
        incomplete: groups that were closed with fewer completions.

    Example:
        gathering = GroupGathering(8)
        gathering.assign(recipe)
        for group in gathering.report_result(recipe, completions=8, scored=8, solved=3):
            problems.report_result(group.recipe, solved=group.solved, scored=group.scored)
    """

    def __init__(self, size: int | None) -> None:
        self.incomplete = 0
        self._size = size or 0
        self._learns = size is None
        self._awaited: dict[str, Recipe] = {}
        self._most_awaited = 0  # problems that were handed out at once
        self._begun = 0  # groups since one became whole
        self._partial: dict[str, GatheredGroup] = {}  # the last one with news is last
        self._closed: dict[str, int] = {}

    @property
    def size(self) -> int | None:
        """Completions of a group; None until it is known."""
        return self._size or None

    @property
    def awaited(self) -> dict[str, Recipe]:
        """Problems whose group is not whole, by their keys, those partly scored first."""
        partial = {key: group.recipe for key, group in self._partial.items()}
        return {**partial, **self._awaited}

    def assign(self, recipe: Recipe) -> None:
        """Await the results of a problem that is handed out, for the first time or again."""
        key = recipe_key(recipe)
        self._forget(key)
        self._awaited[key] = recipe
        if len(self._awaited) > MAX_AWAITED:
            del self._awaited[next(iter(self._awaited))]
        self._most_awaited = max(self._most_awaited, len(self._awaited))

    def report_result(
        self,
        recipe: Recipe,
        *,
        completions: int,
        scored: int,
        solved: int,
    ) -> list[GatheredGroup]:
        """Add results; return the groups to record, if any. Other problems' are ignored."""
        key = recipe_key(recipe)
        group = self._partial.pop(key, None)
        if group is None and key in self._awaited:
            group = GatheredGroup(recipe=self._awaited.pop(key))
            self._begun += 1
        if group is None:
            if key in self._closed:  # more results of a group that was taken for whole
                self._closed[key] += completions
                if self._learns and len(self._closed) > 2:
                    self._size = max(self._size, median_low(self._closed.values()))
            return []
        group.completions += completions
        group.scored += scored
        group.solved += solved
        self._size = self._size or group.completions
        if group.completions >= self._size:
            self._begun = 0
            self._close(key, group.completions)
            return [group]
        self._partial[key] = group
        most = max(64, 2 * self._most_awaited) if self._learns else MAX_PARTIAL
        waiting = len(self._partial)
        stalls = min(self._begun, waiting) > most or waiting > MAX_PARTIAL
        return self._close_stalled() if stalls else []

    def _close_stalled(self) -> list[GatheredGroup]:
        """Close the group without news for longest; return what to record if a size is learned."""
        key = next(iter(self._partial))
        group = self._partial.pop(key)
        self.incomplete += 1
        if self._learns:
            longest = [group, *islice(self._partial.values(), 7)]
            self._size = median_low(each.completions for each in longest)
            whole = {k: g for k, g in self._partial.items() if g.completions >= self._size}
            for k, g in {key: group, **whole}.items():
                self._partial.pop(k, None)
                self._close(k, g.completions)
            self._begun = 0
            return [group, *whole.values()]
        if self.incomplete == 1:
            logger.warning(
                "group_size is %d, but a problem of %s got %d scores while %d others were scored: "
                "such groups are not counted",
                *(self._size, group.recipe.task, group.completions, MAX_PARTIAL),
            )
        return []

    def withdraw(self, recipe: Recipe) -> bool:
        """Await no more results of a problem; return False if its group is recorded already."""
        key = recipe_key(recipe)
        if key in self._closed:
            return False
        self._forget(key)
        return True

    def _close(self, key: str, completions: int) -> None:
        self._closed[key] = completions
        if len(self._closed) > MAX_PARTIAL:
            del self._closed[next(iter(self._closed))]

    def _forget(self, key: str) -> None:
        self._awaited.pop(key, None)
        self._partial.pop(key, None)
        self._closed.pop(key, None)
