"""Which problems are asked again when their group was lost."""

from __future__ import annotations

from collections import Counter

from ..records import Recipe

MOST_AGAIN = 3
"""So often a problem is asked again."""


class Chances:
    """Counts how often each problem's group was lost.

    Example:
        >>> chances, recipe = Chances(), Recipe(task="gcd", seed=2)
        >>> for _ in range(4):
        ...     print(chances.again(recipe))
        True
        True
        True
        False
    """

    def __init__(self) -> None:
        self._lost: Counter[tuple[str, int]] = Counter()

    def came(self, recipe: Recipe) -> None:
        """Note that its group came, and forget it."""
        self._lost.pop((recipe.task, recipe.seed), None)

    def again(self, recipe: Recipe) -> bool:
        """Whether a problem whose group was lost may be asked again; if not, it is forgotten."""
        self._lost[recipe.task, recipe.seed] += 1
        if self._lost[recipe.task, recipe.seed] <= MOST_AGAIN:
            return True
        self.came(recipe)
        return False
