"""The import of reasoning-gym, in worker processes: whole, or the modules that can be imported."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

from ..errors import WorkerStartError
from ..util.values import describe_error
from .facts import LIBRARY, stored_snapshot

_PACKAGE = "reasoning_gym"

_failure: Exception | None = None


def import_library() -> None:
    """Import reasoning-gym; if one of its modules can't be imported, import the others.

    Raises:
        WorkerStartError: its registry can't be imported.
    """
    global _failure
    try:
        import_module(_PACKAGE)
    except Exception as error:  # noqa: BLE001 - any of its modules may raise anything
        _failure = error
        spec = find_spec(_PACKAGE)
        for folder in (spec and spec.submodule_search_locations) or ():
            _import_parts(_PACKAGE, folder)
    try:
        from reasoning_gym.factory import (  # noqa: F401 - workers use all three
            CURRICULA,
            DATASETS,
            create_dataset,
        )
    except ImportError as error:
        raise WorkerStartError(
            f"no task of {LIBRARY} loads ({describe_error(_failure or error)}): {way_out()}"
        ) from error


def require_whole() -> None:
    """Raise what a module of reasoning-gym raised at the import; do nothing if none did."""
    if _failure is not None:
        raise _failure


def way_out() -> str:
    """Return what to do where tasks of the library don't load."""
    return (
        f"install the tested version, pip install {LIBRARY}=={stored_snapshot()['version']}, "
        "and what it needs"
    )


def _import_parts(package: str, folder: str) -> None:
    """Import each module below a package whose own code fails, without that code."""
    bare = ModuleType(package)
    bare.__path__ = [folder]
    sys.modules[package] = bare
    for module in iter_modules(bare.__path__):
        name = f"{package}.{module.name}"
        try:
            import_module(name)
        except Exception:  # noqa: BLE001 - it may raise anything; its tasks are missing
            if module.ispkg:
                _import_parts(name, f"{folder}/{module.name}")
