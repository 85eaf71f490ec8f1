"""Gathers the results of a problem that are reported one by one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import islice

from ..records import Recipe, recipe_key

logger = logging.getLogger(__name__)

MAX_AWAITED = 4096
"""Problems that may await their first result; beyond that the oldest is forgotten."""

MAX_PARTIAL = 1024
"""Groups that may be partly scored; beyond that the one without news for longest is closed."""


MISMATCHES = 16
"""Groups of another size than expected that prove a wrong setting: a few may be exceptions."""


@dataclass(kw_only=True, slots=True)
class GatheredGroup:
    """The results of a problem so far.

    Attributes:
        number: of problems that were handed out before this one.
        completions: the number of results, with those whose scoring failed.
        handed_out_since: `number` of the first problem that was handed out after the last result.
    """

    recipe: Recipe
    number: int
    completions: int = 0
    scored: int = 0
    solved: int = 0
    handed_out_since: int = 0


class GroupGathering:
    """Gathers results by problem; they may come in any order, and from several processes.

    Args:
        size: completions of a group. Without it, results make no group, and problems wait until
            they are withdrawn.

    Attributes:
        size: as given; an integration may learn it later.
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
        self._handed_out = 0
        self._awaited: dict[str, GatheredGroup] = {}
        self._partial: dict[str, GatheredGroup] = {}  # the last one with news is last
        self._closed: dict[str, GatheredGroup] = {}
        self._any_whole = False
        self._too_large = 0  # groups
        self._warned = False

    @property
    def awaited(self) -> dict[str, Recipe]:
        """Problems whose group is not whole, by their keys, those partly scored first."""
        groups = {**self._partial, **self._awaited}
        return {key: group.recipe for key, group in groups.items()}

    def awaits(self, recipe: Recipe) -> bool:
        """Return whether a problem was handed out and its group is not whole."""
        key = recipe_key(recipe)
        return key in self._awaited or key in self._partial

    def is_recorded(self, recipe: Recipe) -> bool:
        """Return whether a problem's group became whole, of those that did lately."""
        return recipe_key(recipe) in self._closed

    def assign(self, recipe: Recipe) -> None:
        """Await the results of a problem that is handed out, for the first time or again."""
        key = recipe_key(recipe)
        self._forget(key)
        self._awaited[key] = GatheredGroup(recipe=recipe, number=self._handed_out)
        self._handed_out += 1
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
        group = self._partial.pop(key, None) or self._awaited.pop(key, None)
        if group is None:
            if key in self._closed:
                self._add_completions(self._closed[key], completions, self.size)
            return None
        self._add_completions(group, completions, self.size)
        group.scored += scored
        group.solved += solved
        group.handed_out_since = self._handed_out
        if group.completions >= self.size:
            self._any_whole = True
            self._close(key, group)
            return group
        self._partial[key] = group
        self._warn_if_too_small(group)
        if len(self._partial) > MAX_PARTIAL:
            self._drop_stalled()
        return None

    def _add_completions(
        self, group: GatheredGroup, completions: int, size: int
    ) -> None:
        """Count completions of a group, and warn if too many groups have too many."""
        was_too_large = group.completions > size
        group.completions += completions
        if group.completions > size and not was_too_large:
            self._too_large += 1
            if self._too_large == MISMATCHES:
                self._warn_of_size(group.completions)

    def _warn_if_too_small(self, newest: GatheredGroup) -> None:
        """Warn if no group becomes whole, although trainers go on to later problems.

        A group has stalled if a problem that was handed out after its last result has results: in
        whatever order a trainer scores, the first groups are whole before MISMATCHES have stalled.
        """
        if self._any_whole:
            return
        oldest = list(islice(self._partial.values(), MISMATCHES))
        if len(oldest) == MISMATCHES and all(
            group.handed_out_since <= newest.number for group in oldest
        ):
            self._warn_of_size(oldest[0].completions)

    def _warn_of_size(self, completions: int) -> None:
        if self._warned:
            return
        self._warned = True
        logger.warning(
            "group_size is %d, but %d problems got another number of scores, such as %d: set it "
            "to the completions of each problem",
            self.size,
            MISMATCHES,
            completions,
        )

    def _drop_stalled(self) -> None:
        """Drop the group without news for longest."""
        stalled = self._partial.pop(next(iter(self._partial)))
        self.incomplete += 1
        if self.incomplete == 1 and not self._warned:
            logger.warning(
                "group_size is %d, but a problem of %s got %d scores while %d others were scored: "
                "such groups are not counted",
                self.size,
                stalled.recipe.task,
                stalled.completions,
                MAX_PARTIAL,
            )

    def withdraw(self, recipe: Recipe) -> bool:
        """Await no more results of a problem; return whether any was awaited."""
        was_awaited = self.awaits(recipe)
        if was_awaited:
            self._forget(recipe_key(recipe))
        return was_awaited

    def _close(self, key: str, group: GatheredGroup) -> None:
        self._closed[key] = group
        if len(self._closed) > MAX_PARTIAL:
            del self._closed[next(iter(self._closed))]

    def _forget(self, key: str) -> None:
        self._awaited.pop(key, None)
        self._partial.pop(key, None)
        self._closed.pop(key, None)
