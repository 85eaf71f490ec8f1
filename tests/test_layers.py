"""Layers are folders, and imports go one way: core <- tasks <- runtime <- environment <- cli.

Imports are read from the source, so those inside functions and under TYPE_CHECKING count too.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from reasoning_gym_environment.cli import COMMANDS

PACKAGE = "reasoning_gym_environment"
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / PACKAGE

BELOW = {
    "core": {"core"},
    "tasks": {"core", "tasks"},
    "runtime": {"core", "tasks", "runtime"},
    "environment": {"core", "tasks", "runtime", "environment"},
    "demo": {"core", "tasks", "runtime", "environment", "demo"},
    "cli": {"core", "tasks", "runtime", "environment", "demo", "cli"},
}
"""Layer to the layers it may import; the modules directly in the package are the environment."""

FOLDERS = ("core", "tasks", "runtime", "demo", "commands")
COMMAND_LINE = ("cli", "commands", "__main__")


def module_name(path: Path) -> str:
    """`reasoning_gym_environment.core.records`; a package is named by its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(FOLDER.rglob("*.py"))}


def layer(module: str) -> str:
    below_package = module.split(".")[1:2]
    if not below_package:
        return "environment"
    if below_package[0] in COMMAND_LINE:
        return "cli"
    return below_package[0] if below_package[0] in FOLDERS else "environment"


def imported(source: str, module: str, *, is_package: bool) -> set[str]:
    """Absolute names of all that a module imports.

    `from a import b` gives `a.b` where that is a module of ours, else `a`.
    """
    home = module.split(".") if is_package else module.split(".")[:-1]
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = home[: len(home) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names}
            names |= {name if name in SOURCES else base for name in inner}
    return names


IMPORTS = {
    module: imported(
        path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py"
    )
    for module, path in SOURCES.items()
}


def top_levels(module: str) -> set[str]:
    """The top-level packages a module imports, our own left out."""
    return {name.partition(".")[0] for name in IMPORTS[module]} - {PACKAGE}


def of_layers(*layers: str) -> list[str]:
    return [module for module in SOURCES if layer(module) in layers]


def test_imports_are_found_wherever_they_stand() -> None:
    source = (
        "import a.b\nfrom . import records, __doc__\nfrom ..tasks.facts import X\n"
        "def f():\n    from c.d import e\nif TYPE_CHECKING:\n    from .errors import Y\n"
    )
    assert imported(source, f"{PACKAGE}.core.new", is_package=False) == {
        "a.b",
        "c.d",
        f"{PACKAGE}.core",
        f"{PACKAGE}.core.records",
        f"{PACKAGE}.core.errors",
        f"{PACKAGE}.tasks.facts",
    }
    assert imported("from .core import records", PACKAGE, is_package=True) == {
        f"{PACKAGE}.core.records"
    }


def test_every_folder_is_a_layer() -> None:
    assert set(FOLDERS) == {path.parent.name for path in FOLDER.glob("*/__init__.py")}
    assert {layer(module) for module in SOURCES} == BELOW.keys()


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_imports_from_its_own_layer_or_from_those_below(module: str) -> None:
    ours = {name for name in IMPORTS[module] if name.partition(".")[0] == PACKAGE}
    above = {name for name in ours if layer(name) not in BELOW[layer(module)]}
    assert not above


@pytest.mark.parametrize("module", of_layers("core"))
def test_core_imports_only_the_standard_library(module: str) -> None:
    assert top_levels(module) <= sys.stdlib_module_names


@pytest.mark.parametrize("module", of_layers("core", "tasks", "runtime"))
def test_atropos_and_transformers_are_known_to_the_environment_alone(module: str) -> None:
    assert not top_levels(module) & {"atroposlib", "transformers"}


def test_only_tasks_knows_reasoning_gym() -> None:
    users = {layer(module) for module in SOURCES if "reasoning_gym" in top_levels(module)}
    assert users == {"tasks"}


@pytest.mark.parametrize("module", SOURCES)
def test_no_module_brings_reasoning_gym_along(module: str) -> None:
    """Its import is slow and prints: only what worker processes call imports it."""
    path = SOURCES[module]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = imported(ast.unparse(tree), module, is_package=path.name == "__init__.py")
    assert "reasoning_gym" not in {name.partition(".")[0] for name in names}


def test_only_the_command_line_starts_the_demo() -> None:
    users = {module for module in SOURCES for name in IMPORTS[module] if layer(name) == "demo"}
    assert {layer(module) for module in users} == {"demo"}
    assert [module for module in COMMANDS.values() if module and "demo" in module] == ["demo.run"]


def test_every_command_has_a_module() -> None:
    assert {f"{PACKAGE}.{module}" for module in COMMANDS.values() if module} <= SOURCES.keys()


def test_imports_by_text_stay_where_they_are_needed() -> None:
    """What is imported by a computed name escapes the other tests here."""
    users = {module for module in SOURCES if "importlib" in IMPORTS[module]}
    assert users == {PACKAGE, f"{PACKAGE}.cli", f"{PACKAGE}.{PACKAGE}"}
    assert not [m for m, path in SOURCES.items() if "__import__(" in path.read_text("utf-8")]


def test_no_module_hides_one_of_the_standard_library() -> None:
    """The package folder is first on `sys.path` when the environment is started by path."""
    assert not {path.stem for path in FOLDER.iterdir()} & sys.stdlib_module_names


def test_core_can_be_imported_where_nothing_is_installed() -> None:
    script = (
        "import importlib, sys; sys.path.append(sys.argv[1])\n"
        "for name in sys.argv[2:]: importlib.import_module(name)\n"
        "print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    )
    alone = [sys.executable, "-I", "-S", "-B", "-c", script]
    done = subprocess.run(
        [*alone, str(ROOT), *of_layers("core")], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) - {"__main__"} == {PACKAGE}
