"""Checks the state of a training stream that was stored, before anything is taken from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..tasks.recipes import shown

_MOST = 2**53


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One value: what it is called, and whether another is one."""

    name: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class ByName:
    """A JSON object with any keys, whose values all have one shape."""

    of: Any


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MOST


WHOLE = Kind(name="whole number from 0", holds=_whole)
HEIGHT = Kind(name="whole number from 1", holds=lambda value: _whole(value) and value > 0)
AMOUNT = Kind(name="number from 0", holds=_amount)
STREAK = Kind(name="whole number", holds=lambda value: type(value) is int and abs(value) <= _MOST)
SEED = Kind(name="whole number", holds=lambda value: type(value) is int)
TEXT = Kind(name="text", holds=lambda value: isinstance(value, str))
TRUTH = Kind(name="truth value", holds=lambda value: isinstance(value, bool))
LEVEL = Kind(name="level", holds=lambda value: value is None or _whole(value))
LIST = Kind(name="list", holds=lambda value: isinstance(value, list))

CAP = {"top_level": WHOLE, "height": HEIGHT}
STANDING = {
    "height": HEIGHT,
    "position": AMOUNT,
    "evidence": [(WHOLE, AMOUNT, AMOUNT)],
    "streak": STREAK,
    "groups": WHOLE,
    "stale": WHOLE,
    "moves": WHOLE,
}
SAMPLER = {
    "run_seed": SEED,
    "replica": TEXT,
    "draw": WHOLE,
    "levels": {"caps": ByName(of=CAP), "tasks": ByName(of=STANDING)},
    "signal": [(TEXT, LEVEL, AMOUNT, AMOUNT, WHOLE)],
}
STATE = {
    "sampler": SAMPLER,
    "ahead": LIST,
    "max_token_length": WHOLE,
    "prompt_room": [(TEXT, WHOLE, TRUTH, WHOLE)],
}
MAY_LACK = frozenset({"levels", "caps", "tasks", "signal", "max_token_length"})


def require_state(state: Any) -> None:
    """Check a stored stream's state, apart from the recipes that were drawn ahead.

    Raises:
        ValueError: it is none; the message names the value that can't be.
    """
    _require("the stream's state", state, STATE)
    draw = state["sampler"]["draw"]
    for task, *_, since in state["sampler"].get("signal", []):
        if since > draw:
            raise ValueError(f"signal of {shown(task)} is of draw {since}, after draw {draw}")


def _require(name: str, value: Any, shape: Any) -> None:
    match shape:
        case Kind():
            if not shape.holds(value):
                raise ValueError(f"{name} is {shown(value)}, which is no {shape.name}")
        case ByName():
            for key, one in _object(name, value).items():
                _require(shown(key), one, shape.of)
        case dict():
            _require_record(name, _object(name, value), shape)
        case list():
            _require(name, value, LIST)
            for one in value:
                _require(f"a part of {name}", one, shape[0])
        case tuple():
            _require(name, value, LIST)
            if len(value) != len(shape):
                raise ValueError(f"{name} is {shown(value)}, which has not {len(shape)} values")
            for one, kind in zip(value, shape, strict=True):
                _require(name, one, kind)


def _require_record(name: str, value: Mapping[str, Any], shape: Mapping[str, Any]) -> None:
    for key, kind in shape.items():
        if key in value:
            _require(key, value[key], kind)
        elif key not in MAY_LACK:
            raise ValueError(f"{name} lacks {key}")


def _object(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {shown(value)}, which is no JSON object")
    return value
