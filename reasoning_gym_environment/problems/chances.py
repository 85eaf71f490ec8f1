"""Which problems are asked again when their group was lost."""

from __future__ import annotations

from collections import Counter

from ..records import Recipe

MOST_AGAIN = 3
"""So often a problem is asked again."""


class Chances:
    """Counts how often each problem was asked in vain.

    Example:
        >>> chances, recipe = Chances(), Recipe(task="gcd", seed=2)
        >>> for _ in range(4):
        ...     chances.ask(recipe)
        ...     print(chances.again(recipe))
        True
        True
        True
        False
    """

    def __init__(self) -> None:
        self._asked: Counter[tuple[str, int]] = Counter()

    def ask(self, recipe: Recipe) -> None:
        """Note that a problem is asked."""
        self._asked[recipe.task, recipe.seed] += 1

    def came(self, recipe: Recipe) -> None:
        """Note that its group came, and forget it."""
        self._asked.pop((recipe.task, recipe.seed), None)

    def again(self, recipe: Recipe) -> bool:
        """Whether a problem whose group was lost may be asked again; if not, it is forgotten."""
        if self._asked[recipe.task, recipe.seed] <= MOST_AGAIN:
            return True
        self.came(recipe)
        return False
