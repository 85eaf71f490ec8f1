"""The examples in docstrings are true."""

import doctest
import importlib
import inspect
from types import ModuleType

import pytest
from pure_modules import PURE

MODULES = [importlib.import_module(f"reasoning_gym_environment.{name}") for name in PURE]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.partition(".")[2])
def test_every_example_holds(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted == inspect.getsource(module).count(">>> ")
    assert results.failed == 0
