"""All solvers and properties by task."""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    algebra,
    algorithmic,
    arithmetic,
    cognition,
    games,
    graphs,
    logic,
    puzzles,
    strings,
)
from .solution import Property, Solver

_MODULES = (
    algebra,
    algorithmic,
    arithmetic,
    cognition,
    games,
    graphs,
    logic,
    puzzles,
    strings,
)

SOLVERS: Mapping[str, Solver] = {
    task: solver for module in _MODULES for task, solver in module.SOLVERS.items()
}

PROPERTIES: Mapping[str, Property] = {
    task: checked for module in _MODULES for task, checked in module.PROPERTIES.items()
}
