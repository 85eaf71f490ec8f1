"""Results of single completions, gathered until the group of their problem is whole."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..records import Recipe, recipe_key

logger = logging.getLogger(__name__)

MAX_AWAITED = 4096
"""Problems that may await their first result; beyond that the oldest is forgotten."""

MAX_PARTIAL = 1024
"""Groups that may be partly scored; beyond that the one without news for longest is closed."""

_MAX_CLOSED = 1024


@dataclass(kw_only=True, slots=True)
class GatheredGroup:
    """The results of a problem so far.

    Attributes:
        completions: their number, with those whose scoring failed.
        scored: completions that have a score.
        solved: completions that are right.
    """

    recipe: Recipe
    completions: int = 0
    scored: int = 0
    solved: int = 0


class GroupGathering:
    """Gathers results by problem; they may come in any order, and from several processes.

    Args:
        size: completions of a group. None learns it: from the first result, from more results of
            a problem whose group was taken for whole, and from groups that never become whole.

    Attributes:
        incomplete: groups that were closed with fewer completions.

    Example:
        gathering = GroupGathering(8)
        gathering.expect(recipe)
        for group in gathering.add(recipe, completions=8, scored=8, solved=3):
            problems.record(group.recipe, solved=group.solved, scored=group.scored)
    """

    def __init__(self, size: int | None) -> None:
        self.incomplete = 0
        self._size = size or 0
        self._learns = size is None
        self._awaited: dict[str, Recipe] = {}
        self._partial: dict[str, GatheredGroup] = {}  # the last one with news is last
        self._closed: dict[str, int] = {}

    @property
    def size(self) -> int | None:
        """Completions of a group; None until it is known."""
        return self._size or None

    def expect(self, recipe: Recipe) -> None:
        """Await the results of a problem that is handed out, for the first time or again."""
        key = recipe_key(recipe)
        self._forget(key)
        self._awaited[key] = recipe
        if len(self._awaited) > MAX_AWAITED:
            del self._awaited[next(iter(self._awaited))]

    def add(
        self, recipe: Recipe, *, completions: int, scored: int, solved: int
    ) -> list[GatheredGroup]:
        """Add results; return the groups to record, if any. Other problems' are ignored."""
        key = recipe_key(recipe)
        group = self._partial.pop(key, None)
        if group is None and key in self._awaited:
            group = GatheredGroup(recipe=self._awaited.pop(key))
        if group is None:
            self._learn_from_late(key, completions)
            return []
        group.completions += completions
        group.scored += scored
        group.solved += solved
        self._size = self._size or group.completions
        if group.completions >= self._size:
            self._close(key, group.completions)
            return [group]
        self._partial[key] = group
        return self._close_stalled()

    def _close_stalled(self) -> list[GatheredGroup]:
        """Close the group without news for longest if there are too many; return it if learning."""
        if len(self._partial) <= MAX_PARTIAL:
            return []
        key = next(iter(self._partial))
        group = self._partial.pop(key)
        self.incomplete += 1
        if not self._learns:
            if self.incomplete == 1:
                logger.warning(
                    "group_size is %d, but a problem of %s got %d scores while %d others were "
                    "scored: such groups are not counted",
                    *(self._size, group.recipe.task, group.completions, MAX_PARTIAL),
                )
            return []
        self._size = group.completions
        self._close(key, group.completions)
        return [group]

    def _learn_from_late(self, key: str, completions: int) -> None:
        """Raise the learned size if a group that was closed gets more results."""
        if key in self._closed:
            self._closed[key] += completions
            if self._learns:
                self._size = max(self._size, self._closed[key])

    def withdraw(self, recipe: Recipe) -> bool:
        """Await no more results of a problem; return False if its group is recorded already."""
        key = recipe_key(recipe)
        recorded = key in self._closed
        if not recorded:
            self._forget(key)
        return not recorded

    def _close(self, key: str, completions: int) -> None:
        self._closed[key] = completions
        if len(self._closed) > _MAX_CLOSED:
            del self._closed[next(iter(self._closed))]

    def _forget(self, key: str) -> None:
        self._awaited.pop(key, None)
        self._partial.pop(key, None)
        self._closed.pop(key, None)
