"""The examples in the docstrings of `core` are true."""

import doctest
import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

from reasoning_gym_environment import core

MODULES = [
    importlib.import_module(f"{core.__name__}.{found.name}")
    for found in pkgutil.iter_modules(core.__path__)
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_example_holds(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted == inspect.getsource(module).count(">>> ")
    assert results.failed == 0
