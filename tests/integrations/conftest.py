"""Tests that import a framework are collected where it is installed."""

from importlib.util import find_spec

FRAMEWORKS = ("openenv",)

collect_ignore = [f"test_{name}.py" for name in FRAMEWORKS if find_spec(name) is None]
