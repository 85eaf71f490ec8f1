"""Solvers of tasks: graphs."""

from __future__ import annotations

from collections.abc import Mapping

from .solution import Property, Solver

SOLVERS: Mapping[str, Solver] = {}

PROPERTIES: Mapping[str, Property] = {}
