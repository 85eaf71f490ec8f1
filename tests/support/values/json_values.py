"""JSON values, other JSON in their places, for what reads JSON from outside."""

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import strategies as st

Path = tuple[Any, ...]

ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [2**53, -(2**63), 10**300, "\ud800", "", "nan", "__import__('os')"]
    )
    | st.floats()
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
"""What json.loads gives, and what nobody expects."""


STRANGE: list[Any] = [
    *(None, True, 0, -1, 0.5, 2**53, -(2**63), 10**300, float("nan"), float("inf")),
    *("", "\ud800", "nan", "9999-12-31T23:59:59-23:59", "../../etc", "x" * 1000),
    *([], {}, [[]], {"": []}, [None], {"solved_threshold": []}),
]
"""Values that JSON has, each of which some place of a row may not."""


def mutated(value: Any, random: Random) -> Any:
    """A copy that lacks something, or has a strange value in some place."""
    place = random.choice(list(places(value)))
    if random.random() < 0.2:
        return without(value, place)
    return with_value(value, place, random.choice(STRANGE))


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths to all that is in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inside:
        yield (*path, key)
        if isinstance(one, dict | list):
            yield from places(one, (*path, key))


def with_value(whole: Any, path: Path, value: Any) -> Any:
    """A copy that has another value in one place."""
    other = copy.deepcopy(whole)
    inside = other
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return other


def without(whole: Any, path: Path) -> Any:
    """A copy that lacks what is in one place."""
    other = copy.deepcopy(whole)
    inside = other
    for key in path[:-1]:
        inside = inside[key]
    del inside[path[-1]]
    return other
