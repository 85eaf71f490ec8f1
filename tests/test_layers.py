"""Folders are subjects, and imports go one way, along ORDER.

Imports are read from the source, so those inside functions and under TYPE_CHECKING count too.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from pure_modules import PURE

from reasoning_gym_environment.cli import COMMANDS, SERVING

PACKAGE = "reasoning_gym_environment"
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / PACKAGE

ORDER = (
    ("errors", "records", "util"),
    ("tasks",),
    ("scoring",),
    ("sandbox",),
    ("problems",),
    ("storage",),
    ("gym",),
    ("service",),
    ("inference",),
    ("rollouts",),
    ("integrations",),
    ("evaluation",),
    ("report", "proof"),
    ("settings",),
    ("atropos",),
    ("reasoning_gym_environment",),
    ("demo",),
    ("commands", "cli", "__main__", ""),
)
"""What a place may import stands before it, or is the place itself; "" is the package's own file.

`util` is the exception among equals: it may import `errors`."""

PLACE = {name: number for number, names in enumerate(ORDER) for name in names}
SPEAK_ATROPOS = {"atropos", "reasoning_gym_environment", "demo"}


def module_name(path: Path) -> str:
    """`reasoning_gym_environment.scoring.grading`; a package is named by its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(FOLDER.rglob("*.py"))}


def place(module: str) -> str:
    """The folder or top-level module that a module belongs to."""
    return [*module.split("."), ""][1]


def may_import(importer: str, imported_place: str) -> bool:
    if importer == imported_place or (importer, imported_place) == ("util", "errors"):
        return True
    at_the_end = PLACE[importer] == PLACE[imported_place] == len(ORDER) - 1
    return PLACE[imported_place] < PLACE[importer] or at_the_end


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


@cache
def imports() -> dict[str, set[str]]:
    """What each module imports."""
    return {
        module: imported(
            path.read_text("utf-8"), module, is_package=path.name == "__init__.py"
        )
        for module, path in SOURCES.items()
    }


def top_levels(module: str) -> set[str]:
    """The top-level packages a module imports, our own left out."""
    return {name.partition(".")[0] for name in imports()[module]} - {PACKAGE}


def test_imports_are_found_wherever_they_stand() -> None:
    source = (
        "import a.b\nfrom . import grading, __doc__\nfrom ..tasks.facts import X\n"
        "def f():\n    from c.d import e\nif TYPE_CHECKING:\n    from ..errors import Y\n"
    )
    ours = {
        f"{PACKAGE}.{name}"
        for name in ("scoring", "scoring.grading", "errors", "tasks.facts")
    }
    assert (
        imported(source, f"{PACKAGE}.scoring.new", is_package=False)
        == {"a.b", "c.d"} | ours
    )
    alone = imported("from .scoring import grading", PACKAGE, is_package=True)
    assert alone == {f"{PACKAGE}.scoring.grading"}


def test_every_folder_and_module_has_its_place() -> None:
    assert {place(module) for module in SOURCES} == PLACE.keys()


def test_a_module_imports_from_its_own_place_or_from_those_before() -> None:
    above = {
        (module, name)
        for module, names in imports().items()
        for name in names
        if name.partition(".")[0] == PACKAGE
        and not may_import(place(module), place(name))
    }
    assert not above


def test_pure_modules_import_only_the_standard_library() -> None:
    assert not {
        m for m in PURE if not top_levels(f"{PACKAGE}.{m}") <= sys.stdlib_module_names
    }


def test_atropos_is_imported_in_few_packages() -> None:
    users = {m for m in SOURCES if top_levels(m) & {"atroposlib", "wandb"}}
    assert {place(module) for module in users} <= SPEAK_ATROPOS


def test_private_modules_are_imported_by_their_own_package_alone() -> None:
    outside = {
        (module, name)
        for module, names in imports().items()
        for name in names
        if "._" in name and not f"{module}.".startswith(f"{name.partition('._')[0]}.")
    }
    assert not outside


def test_only_tasks_and_guards_know_reasoning_gym() -> None:
    users = {module for module in SOURCES if "reasoning_gym" in top_levels(module)}
    assert {place(module) for module in users} == {"tasks", "scoring"}
    scoring = [module for module in users if place(module) == "scoring"]
    assert all(module.startswith(f"{PACKAGE}.scoring.guards.") for module in scoring)


def test_no_module_imports_reasoning_gym_at_its_top() -> None:
    """The import is slow and prints: only functions that worker processes call do it."""
    for module, path in SOURCES.items():
        if "reasoning_gym" not in top_levels(module):
            continue  # it imports it nowhere
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tree.body = [
            node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = imported(
            ast.unparse(tree), module, is_package=path.name == "__init__.py"
        )
        assert "reasoning_gym" not in {name.partition(".")[0] for name in names}, module


def test_only_the_command_line_starts_the_demo() -> None:
    users = {
        module
        for module in SOURCES
        for name in imports()[module]
        if place(name) == "demo"
    }
    outside = {module for module in users if place(module) != "demo"}
    assert outside == {"reasoning_gym_environment.commands.demo"}


def test_every_command_has_a_module() -> None:
    modules = COMMANDS.keys() - SERVING.keys()
    assert {f"{PACKAGE}.commands.{module}" for module in modules} <= SOURCES.keys()


def test_imports_by_text_stay_where_they_are_needed() -> None:
    """What is imported by a computed name escapes the other tests here."""
    users = {module for module in SOURCES if "importlib" in imports()[module]}
    assert (
        users
        == {
            PACKAGE,
            f"{PACKAGE}.cli",
            f"{PACKAGE}.{PACKAGE}",
            f"{PACKAGE}.sandbox._verifier_host",  # what a user's verifiers import
            f"{PACKAGE}.tasks.library",  # the library's modules, where it can't be imported whole
            f"{PACKAGE}.util.modules",  # a function of the user, by its path
        }
    )
    assert not [
        m for m, path in SOURCES.items() if "__import__(" in path.read_text("utf-8")
    ]


def test_every_package_that_is_imported_is_declared() -> None:
    declared = {*re.findall(r'"([\w-]+)[\[><=]', (ROOT / "pyproject.toml").read_text())}
    named = {"yaml": "pyyaml", "cellpylib": "reasoning-gym", "omegaconf": "verl"}
    named |= {"pydantic_core": "pydantic"}
    named |= {"skyrl_gym": "skyrl-gym"}
    used = {
        name for module in SOURCES for name in top_levels(module)
    } - sys.stdlib_module_names
    used.remove("tinker_cookbook")  # no extra: what it requires is not published
    assert {named.get(name, name.replace("_", "-")) for name in used} <= declared


def test_no_module_hides_one_of_the_standard_library() -> None:
    """The package folder is first on `sys.path` when the environment is started by path."""
    assert not {path.stem for path in FOLDER.iterdir()} & sys.stdlib_module_names


@pytest.mark.processes
def test_pure_modules_can_be_imported_where_nothing_is_installed() -> None:
    script = (
        "import importlib, sys; sys.path.append(sys.argv[1])\n"
        "for name in sys.argv[2:]: importlib.import_module(name)\n"
        "print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    )
    alone = [sys.executable, "-I", "-S", "-B", "-c", script]
    modules = [f"{PACKAGE}.{name}" for name in PURE]
    done = subprocess.run(
        [*alone, str(ROOT), *modules], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) - {"__main__"} == {PACKAGE}
