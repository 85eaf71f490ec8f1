"""The examples in docstrings are true."""

import doctest
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest
from pure_modules import PURE

FOLDER = Path(__file__).resolve().parents[1] / "reasoning_gym_environment"
WITH_EXAMPLES = [
    ".".join(path.relative_to(FOLDER).with_suffix("").parts)
    for path in sorted(FOLDER.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
MODULES = [
    importlib.import_module(f"reasoning_gym_environment.{name}")
    for name in dict.fromkeys([*PURE, *WITH_EXAMPLES])
]


@pytest.mark.parametrize(
    "module", MODULES, ids=lambda module: module.__name__.partition(".")[2]
)
def test_every_example_holds(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted == inspect.getsource(module).count(">>> ")
    assert results.failed == 0
