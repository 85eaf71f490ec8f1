"""Checks of recipes, which come from outside: in rows, checkpoints and settings.

The library was written for honest parameters: some of its tasks evaluate theirs. A recipe is
first checked for its shape, which any process can do, then against what its task is known to
take, which needs the library: see `known_values`.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..records import Recipe

SYMBOL_PARAMETERS = frozenset({"symbols", "variables"})
"""Names of variables in expressions that sympy evaluates."""

WORD_PARAMETERS = frozenset(
    {"colour_list", "female_names", "male_names", "static_font", "static_word"}
)
"""Words that go into a question, or name a font in a list; every other text is one of a few."""

REACH = 100
"""So many times the largest number that is known for a parameter may be set."""

_SYMBOL = re.compile(r"[A-Za-z][0-9]{0,3}")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")

_SEEDS = 2**53
_MOST_LEVELS = 1000
_MOST_VALUES = 1000
_DEEPEST = 4
_LONGEST = 100

_repr = reprlib.Repr()
_repr.maxlevel = 2
_repr.maxstring = _repr.maxother = 50


def shown(value: object) -> str:
    """Write a value of any size in few characters.

    Example:
        >>> shown(10**300), shown([1, 2]), shown("a" * 80)[:9]
        ('a number of 997 bits', '[1, 2]', "'aaaaaaaa")
    """
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    try:
        return _repr.repr(value)[:100]
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a list with a huge number"


def leaves(value: Any) -> Iterator[tuple[int, Any]]:
    """Walk through lists, in order: every value that is no list, with its depth.

    Raises:
        ValueError: there are too many, or lists in lists too deep; a list may hold itself.
    """
    ahead = [(0, value)]
    seen = 0
    while ahead:
        depth, value = ahead.pop()
        seen += 1
        if seen + len(ahead) > _MOST_VALUES:
            raise ValueError(f"has more than {_MOST_VALUES} values")
        if not isinstance(value, list | tuple):
            yield depth, value
            continue
        if depth == _DEEPEST or len(value) > _MOST_VALUES:
            raise ValueError("is nested too deep, or too long")
        ahead += [(depth + 1, inner) for inner in reversed(value)]


def _whole(value: object, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def _level(level: object) -> bool:
    """A number below so many; stored ones may have a decimal point."""
    if isinstance(level, bool) or not isinstance(level, int | float):
        return False
    return 0 <= level < _MOST_LEVELS


def require_sound(recipe: Recipe) -> None:
    """Check what holds of every recipe: small, shallow, plain JSON.

    Raises:
        ValueError: it is none; the message names the field and its value.
    """
    task, seed, level, parameters = recipe.task, recipe.seed, recipe.level, recipe.parameters
    if not isinstance(task, str) or len(task) > _LONGEST:
        raise ValueError(f"its task is {shown(task)}")
    if not _whole(seed, _SEEDS):
        raise ValueError(f"its seed is {shown(seed)}, which is no number in [0, 2**53)")
    if level is not None and not _level(level):
        raise ValueError(f"its level is {shown(level)}, which is no number below {_MOST_LEVELS}")
    if not isinstance(parameters, Mapping) or len(parameters) > _LONGEST:
        raise ValueError(f"its parameters are {shown(parameters)}")
    for name, value in parameters.items():
        if not isinstance(name, str) or len(name) > _LONGEST:
            raise ValueError(f"it has a parameter {shown(name)}")
        require_plain(name, value)


def require_plain(name: str, value: Any) -> None:
    """Refuse a parameter's value that is no small JSON; raises ValueError, which says why."""
    try:
        for _, leaf in leaves(value):
            _require_plain_leaf(leaf)
    except ValueError as error:
        raise ValueError(f"{shown(name)} {error}: {shown(value)}") from None


def _require_plain_leaf(leaf: Any) -> None:
    match leaf:
        case bool() | None:
            pass
        case int() | float():
            if not abs(leaf) <= _SEEDS:  # NaN compares with nothing
                raise ValueError("has a number that is not finite or beyond 2**53")
        case str():
            if len(leaf) > _LONGEST:
                raise ValueError(f"has a text of more than {_LONGEST} characters")
        case _:
            raise ValueError("is no number, text, truth value or list of them")


def read_recipe(data: Any) -> Recipe:
    """Read a recipe that was stored; raises ValueError, which says what is wrong with it."""
    if not isinstance(data, Mapping):
        raise ValueError(f"a recipe is {shown(data)}")
    try:
        recipe = Recipe.from_json(data)
    except TypeError as error:
        raise ValueError(f"a recipe has other fields: {error}") from None
    require_sound(recipe)
    return recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of a parameter, from values that it is known to take.

    Attributes:
        kinds: types of its values, in whatever lists; a float's may be whole.
        depths: how many lists they lie in.
        most: the largest number, without its sign; at least 1.
    """

    kinds: frozenset[type]
    depths: frozenset[int]
    texts: frozenset[str]
    most: float

    @classmethod
    def of(cls, values: Sequence[Any]) -> Known:
        """Gather what these values have; other than JSON has teaches nothing."""
        found = [leaf for value in values for leaf in leaves(value)]
        numbers = [abs(leaf) for _, leaf in found if isinstance(leaf, int | float)]
        empty = [1 for value in values if isinstance(value, list | tuple) and not value]
        return cls(
            kinds=frozenset(_kind(leaf) for _, leaf in found),
            depths=frozenset([*(depth for depth, _ in found), *empty]),
            texts=frozenset(str.__str__(leaf) for _, leaf in found if isinstance(leaf, str)),
            most=max([1, *numbers]),
        )


def require_known(parameters: Mapping[str, Any], known: Mapping[str, Known]) -> None:
    """Refuse parameters that a task is not known to take.

    Args:
        known: by the name of every parameter of the task.

    Raises:
        TypeError: the task has no parameter of that name.
        ValueError: a value is of another kind, too large, or a text that is none of those known.
    """
    for name, value in parameters.items():
        if name not in known:
            raise TypeError(f"there is no parameter {shown(name)}")
        require_plain(name, value)
        for depth, leaf in leaves(value):
            if refusal := _refusal(name, depth, leaf, known[name]):
                raise ValueError(f"{name} can't be {shown(value)}: {refusal}")


def _kind(leaf: Any) -> type:
    """Give a value's type; a member of an enumeration of texts is one of them."""
    return str if isinstance(leaf, str) else type(leaf)


def _refusal(name: str, depth: int, leaf: Any, known: Known) -> str:
    """Say why a value, in so many lists, may not be set; empty when it may."""
    kind = _kind(leaf)
    if depth not in known.depths or (leaf is None and depth):
        return "it is, or holds, a list where none belongs, or is none where one does"
    if kind not in known.kinds and not (kind is int and float in known.kinds):
        kinds = ", ".join(sorted(k.__name__ for k in known.kinds if k in _PLAIN))
        return f"its kind is {kinds}" if kinds else "it can't be written in a recipe"
    if isinstance(leaf, str):
        return _refusal_of_text(name, leaf, known.texts)
    if leaf is not None and abs(leaf) > REACH * known.most:
        return f"at most {REACH * known.most:g} is tried"
    return ""


_PLAIN = (bool, int, float, str)


def _refusal_of_text(name: str, text: str, texts: frozenset[str]) -> str:
    if name in SYMBOL_PARAMETERS:
        return "" if _SYMBOL.fullmatch(text) else "a symbol is a letter, with digits behind it"
    if name in WORD_PARAMETERS:
        return (
            ""
            if _WORD.fullmatch(text)
            else "a word is a letter, with letters, digits or _ behind it"
        )
    return "" if text in texts else f"its texts are {shown(sorted(texts))}"
