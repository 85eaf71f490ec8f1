"""Gathers the results of a problem that are reported one by one."""

from __future__ import annotations

import logging
from dataclasses import dataclass

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
        size: completions of a group. Without it, results make no group, and problems wait until
            they are withdrawn.

    Attributes:
        incomplete: groups that were closed with fewer completions.

    Example:
        gathering = GroupGathering(8)
        gathering.assign(recipe)
        group = gathering.report_result(recipe, completions=8, scored=8, solved=3)
        if group is not None:
            problems.report_result(group.recipe, solved=group.solved, scored=group.scored)
    """

    def __init__(self, size: int | None) -> None:
        self.incomplete = 0
        self.size = size
        self._awaited: dict[str, Recipe] = {}
        self._partial: dict[str, GatheredGroup] = {}  # the last one with news is last
        self._closed: dict[str, None] = {}

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

    def report_result(
        self,
        recipe: Recipe,
        *,
        completions: int,
        scored: int,
        solved: int,
    ) -> GatheredGroup | None:
        """Add results; return the group if it is whole now. Other problems' are ignored."""
        if self.size is None:
            return None
        key = recipe_key(recipe)
        group = self._partial.pop(key, None)
        if group is None and key in self._awaited:
            group = GatheredGroup(recipe=self._awaited.pop(key))
        if group is None:
            return None
        group.completions += completions
        group.scored += scored
        group.solved += solved
        if group.completions >= self.size:
            self._close(key)
            return group
        self._partial[key] = group
        if len(self._partial) > MAX_PARTIAL:
            self._drop_stalled()
        return None

    def _drop_stalled(self) -> None:
        """Drop the group without news for longest."""
        stalled = self._partial.pop(next(iter(self._partial)))
        self.incomplete += 1
        if self.incomplete == 1:
            logger.warning(
                "group_size is %d, but a problem of %s got %d scores while %d others were scored: "
                "such groups are not counted",
                self.size,
                stalled.recipe.task,
                stalled.completions,
                MAX_PARTIAL,
            )

    def withdraw(self, recipe: Recipe) -> bool:
        """Await no more results of a problem; return False if its group is recorded already."""
        key = recipe_key(recipe)
        if key in self._closed:
            return False
        self._forget(key)
        return True

    def _close(self, key: str) -> None:
        self._closed[key] = None
        if len(self._closed) > MAX_PARTIAL:
            del self._closed[next(iter(self._closed))]

    def _forget(self, key: str) -> None:
        self._awaited.pop(key, None)
        self._partial.pop(key, None)
        self._closed.pop(key, None)
