"""Modules with a user's own tasks, which register datasets as the library's own do, and the proof
of these that `prove` has left beside the module.

The event loop's process finds them. It neither imports one, nor unpickles anything that comes from
a worker that did.
"""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import all_suffixes
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import ConfigurationError, WorkerStartError
from ..records import Recipe
from ..util.files import read_regular
from ..util.modules import ModuleSource, find_module, import_module
from ..util.values import convert, describe_origin, shorten
from .facts import LIBRARY, known_categories
from .ladders import TaskLadder, build_ladders
from .recipes import require_valid_recipe

logger = logging.getLogger(__name__)


class Declaration(Struct):
    """What an own task says of itself, as arguments of `task` or attributes of its class.

    Attributes:
        verifier: whether it has one of its own.
        solve: whether it can answer a question by another way than the label was made.
        tolerance: how far from the label, relative to it, its verifier takes a number for right.
        waive: why findings of its proof are right as they are, by their names.
    """

    verifier: bool = True
    solve: bool = False
    tolerance: float = 0.0
    waive: dict[str, str] = msgspec.field(default_factory=dict)


class ModuleTasks(Struct):
    """What a worker process says of the module that it imported.

    Attributes:
        digest: of the module's package, or of its file and what that imports from its folder.
        threads: how many threads run after its import.
        devices: whether its import opened a GPU.
        categories: of its tasks, by name.
        failures: by task, why it can't be built.
        ladders: of the tasks that can.
        declarations: what each of these tasks says of itself.
    """

    digest: str
    threads: int
    devices: bool
    categories: dict[str, str]
    failures: dict[str, str]
    ladders: dict[str, TaskLadder]
    declarations: dict[str, Declaration]


def find_modules(entries: Sequence[str | Path]) -> list[ModuleSource]:
    """Find the modules of `task_modules`; ConfigurationError for one that can't be used."""
    modules: dict[str, ModuleSource] = {}
    library = known_categories()
    for entry in entries:
        if not isinstance(entry, str | Path):
            raise ConfigurationError(
                f"task_modules must be text or paths, got {shorten(entry)}"
            )
        text = str(entry.absolute() if isinstance(entry, Path) else entry)
        module = find_module(text, "task_modules")
        name_owner = (
            modules[module.name].shown
            if module.name in modules
            else "one of reasoning-gym"
        )
        if module.name in {*modules, *library, *library.values(), "reasoning_gym"}:
            raise ConfigurationError(
                f"task_modules: {module.shown} has the name of a module, task or category, "
                f"{name_owner}: rename it, or leave it out"
            )
        modules[module.name] = module
    return list(modules.values())


def load_module(source: ModuleSource) -> ModuleTasks:
    """Import a module and build its tasks; WorkerStartError if it can't be used at all."""
    # Heavy: only workers come here.
    from reasoning_gym.factory import DATASETS, create_dataset

    before = dict(DATASETS)
    name_taken = "task {} of {} has the name of one of {}: rename it"
    try:
        module = import_module(source)
    except WorkerStartError as error:
        for name, (dataset, _) in DATASETS.items():
            if f"'{name}' is already registered" in str(error):
                message = name_taken.format(name, source.shown, dataset.__module__)
                raise WorkerStartError(message) from error
        raise
    for name, registered in before.items():
        if DATASETS.get(name) != registered:
            raise WorkerStartError(
                name_taken.format(name, source.shown, registered[0].__module__)
            )
    datasets = {
        name: dataset for name, (dataset, _) in DATASETS.items() if name not in before
    }
    if not datasets or module.__file__ is None:
        raise WorkerStartError(
            f"{source.shown} registers no task: put @task(levels=8) before a function of its own, "
            "or call reasoning_gym.factory.register_dataset"
        )
    threads = len([*Path("/proc/self/task").glob("*")])
    opened = [str(link.resolve()) for link in Path("/proc/self/fd").glob("*")]
    module_tasks = ModuleTasks(
        digest=_digest(module),
        threads=threads,
        devices=any(path.startswith("/dev/nvidia") for path in opened),
        categories={},
        failures={},
        ladders={},
        declarations={},
    )
    for name, dataset in datasets.items():
        declared = getattr(dataset, "category", None)
        category = module_tasks.categories[name] = (
            declared if isinstance(declared, str) else source.name
        )
        if not re.fullmatch(
            r"(\w[\w.-]{0,99}) (\w[\w.-]{0,99})", f"{name} {category}", re.ASCII
        ):
            raise WorkerStartError(
                f"{source.shown}: a task's name and category must be at most 100 letters, digits "
                f"and _.-, got {name!r:.110} and {category!r:.110}"
            )
        try:
            create_dataset(name, seed=0, size=1)
            [ladder] = build_ladders([name]).values()
            for level in ladder.levels:
                require_valid_recipe(Recipe(task=name, seed=0, parameters=level))
            module_tasks.declarations[name] = _declaration(dataset)
            module_tasks.ladders[name] = ladder
        except Exception as error:  # noqa: BLE001 - any dataset may raise anything: it is reported
            module_tasks.failures[name] = f"can't be built: {describe_origin(error)}"
    return module_tasks


def _declaration(dataset: Any) -> Declaration:
    """Return what a task's class says of itself; raise ValueError if that can't be."""
    from reasoning_gym.dataset import ProceduralDataset

    compares_texts = dataset.score_answer is ProceduralDataset.score_answer
    return convert(
        {
            "verifier": getattr(dataset, "checks_labels", not compares_texts),
            "solve": hasattr(dataset, "solve"),
            "tolerance": getattr(dataset, "tolerance", 0.0),
            "waive": getattr(dataset, "waive", {}),
        },
        Declaration,
    )


def _digest(module: ModuleType) -> str:
    """Return a hash of a module's package, or of its file and what that imports from its folder.

    Of files beyond 64 MiB in all, only names and sizes count.
    """
    top = sys.modules[module.__name__.partition(".")[0]]
    file = Path(top.__file__ or str(module.__file__))
    folder = file.parent
    if hasattr(top, "__path__"):
        files = {path for path in folder.rglob("*") if path.is_file()}
    else:
        alone = folder.name in ("site-packages", "dist-packages")
        files = {file} if alone else _with_imports(file)
    content = hashlib.sha256()
    bytes_left = 64 * 2**20
    for path in sorted(files):
        name = path.relative_to(folder)
        size = path.stat().st_size
        if re.search(r"/__pycache__/|/\.|\.proof\.json$", f"/{name}"):
            continue
        content.update(f"{name} {size}\n".encode())
        if size <= bytes_left:
            content.update(path.read_bytes())
            bytes_left -= size
    return f"sha256:{content.hexdigest()[:16]}"


def _with_imports(file: Path) -> set[Path]:
    """Return a file and what it imports from its folder, in functions as well."""
    files = set[Path]()
    ahead = [file]
    while ahead:
        files.add(path := ahead.pop())
        nodes: list[ast.AST] = []
        # It is compiled, or nothing can import it.
        with suppress(SyntaxError, ValueError):
            nodes = [*ast.walk(ast.parse(path.read_bytes()))]
        imported = [
            (0, name.name)
            for n in nodes
            if isinstance(n, ast.Import)
            for name in n.names
        ]
        for n in nodes:
            if isinstance(n, ast.ImportFrom):
                imported += [
                    (n.level, f"{n.module or ''}.{name.name}") for name in n.names
                ]
        for level, name in imported:
            start = [file.parent, *path.parents][level]
            for place in accumulate(
                filter(None, name.split(".")), Path.joinpath, initial=start
            ):
                stems = place, place / "__init__"
                paths = [
                    Path(f"{stem}{suffix}")
                    for stem in stems
                    for suffix in all_suffixes()
                ]
                ahead += [f for f in paths if file.parent in f.parents and f.is_file()]
        ahead = [path for path in ahead if path not in files]
    return files


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """The proved tasks of a module, those that keep no state, and what constants solve of each."""

    proved: frozenset[str] = frozenset()
    stateless: frozenset[str] = frozenset()
    chance: Mapping[str, float] = field(default_factory=dict)


def proof_file(module: ModuleSource) -> Path:
    """Return where the proof of a module is: beside its path, else where the program runs."""
    if module.shown == module.name:
        return Path(module.folder, f"{module.name}.proof.json")
    path = Path(module.shown)
    path = path.parent if path.name == "__init__.py" else path
    return path.with_name(f"{path.stem}.proof.json")


def read_proof(module: ModuleSource, digest: str) -> Proof:
    """Return the proof of a module with this digest; nothing is proved without a file of it."""
    try:
        stored = json.loads(read_regular(proof_file(module)))
        versions = stored["versions"]
        tasks = stored["tasks"].items()
        if (versions[module.name], versions[LIBRARY]) != (digest, version(LIBRARY)):
            return Proof()
        return Proof(
            proved=frozenset(
                task for task, result in tasks if result["verdict"] == "proved"
            ),
            stateless=frozenset(
                task for task, result in tasks if result["stateless"] is True
            ),
            chance={
                task: _share(result["chance"]["solved"])
                for task, result in tasks
                if result["chance"]
            },
        )
    except FileNotFoundError:
        return Proof()
    except (
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        reason = f"{type(error).__name__}: {error}"
        logger.warning("%s is not a proof: %s", proof_file(module), shorten(reason))
        return Proof()


def _share(value: Any) -> float:
    share = float(value)
    if not 0 <= share <= 1:
        raise ValueError(f"a share must be from 0 to 1, got {value!r:.40}")
    return share
