"""A user's own modules: found without importing them, and imported in worker processes."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ConfigurationError, WorkerStartError
from .values import describe_origin, shorten


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleSource:
    """Where worker processes import a module from.

    Attributes:
        name: as `import` takes it.
        shown: how the user named it: by its name, or else the path of its file.
        search_path: what `sys.path` begins with.
        folder: the working directory.
    """

    name: str
    shown: str
    search_path: Sequence[str]
    folder: str


def is_path(entry: str) -> bool:
    """Return whether a module is named by its path."""
    return entry.endswith(".py") or os.sep in entry


def named_in_file(file: Path, entry: Any) -> Any:
    """Return a module that a file of settings names, with its path if that is relative to it."""
    if not isinstance(entry, str) or not is_path(entry):
        return entry
    return str(file.parent.resolve() / Path(entry.strip()).expanduser())


def find_module(entry: str, setting: str) -> ModuleSource:
    """Find a module by its importable name or its path; nothing of it is imported here.

    A name is found as the running program finds it, but not along `PYTHONPATH`, which other
    processes of a run may lack. Raises ConfigurationError with the setting and what to write.
    """
    name = entry
    shown_name = entry
    search_path = [place or str(Path.cwd()) for place in sys.path]
    if entry in ("__main__", "__mp_main__"):
        raise ConfigurationError(
            f"{setting}: {entry} is the running program or notebook, which worker processes cannot "
            "import: put it into a module of its own and name that, such as ./my_module.py"
        )
    if is_path(entry):
        path = Path(entry).expanduser()
        # A path of `__init__.py` names its package.
        path = path.parent.resolve() if path.name == "__init__.py" else path
        name = path.stem
        root = path.parent.resolve()
        path = root / path.name / "__init__.py" if path.is_dir() else root / path.name
        if path.suffix != ".py" or not path.is_file():
            raise ConfigurationError(
                f"{setting}: {entry}: there is no Python file {path}"
            )
        while (root / "__init__.py").is_file():
            name = f"{root.name}.{name}"
            root = root.parent
        shown_name = str(path)
        search_path = [str(root), *search_path]
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(
            f"{setting} must be modules that Python can import, by name such as my_module or path "
            f"such as ./my_module.py, got {shorten(entry)}"
        )
    if shown_name == name:
        _require_importable(name, setting)
    return ModuleSource(
        name=name,
        shown=shown_name,
        search_path=search_path,
        folder=str(Path.cwd()),
    )


def _require_importable(name: str, setting: str) -> None:
    """Raise ConfigurationError unless the module's top level is found, and not by `PYTHONPATH`."""
    spec = None
    with suppress(ValueError):  # a module that somebody made by hand
        # Finding a top-level name imports nothing.
        spec = importlib.util.find_spec(name.partition(".")[0])
    place = (
        [*(spec.submodule_search_locations or []), spec.origin or ""][0] if spec else ""
    )
    path = (Path(place).parent if spec else Path()).joinpath(*name.split("."))
    path = path if path.is_dir() else Path(f"{path}.py")
    if spec is None:
        hint = f"write ./{path}" if path.exists() else "install it, or write its path"
        raise ConfigurationError(f"{setting}: there is no module {name}: {hint}")
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    is_installed = place.startswith((sys.prefix, sys.base_prefix))
    if (
        Path(place).parent in map(Path.absolute, map(Path, inherited))
        and not is_installed
    ):
        raise ConfigurationError(
            f"{setting}: {name} is found by PYTHONPATH, which worker processes do not inherit: "
            f"write its path, {path}"
        )


def import_module(source: ModuleSource) -> ModuleType:
    """Import a module; raise WorkerStartError with the reason if that fails."""
    sys.path[:] = [
        *source.search_path,
        *(p for p in sys.path if p not in source.search_path),
    ]
    try:
        os.chdir(source.folder)
        module = importlib.import_module(source.name)
    except BaseException as error:
        raise WorkerStartError(
            f"cannot import {source.shown}: {describe_origin(error)}"
        ) from error
    if source.shown not in (source.name, module.__file__):
        raise WorkerStartError(
            f"{source.shown} is named like {module.__file__}: rename it"
        )
    return module
