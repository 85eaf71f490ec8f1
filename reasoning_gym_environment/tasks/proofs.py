"""The proof of a module's tasks, as `prove` has left it beside the module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from ..util.modules import ModuleSource
from .facts import LIBRARY


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
        stored = json.loads(proof_file(module).read_bytes())
        versions, tasks = stored["versions"], stored["tasks"].items()
        if (versions[module.name], versions[LIBRARY]) != (digest, version(LIBRARY)):
            return Proof()
        return Proof(
            proved=frozenset(task for task, result in tasks if result["verdict"] == "proved"),
            stateless=frozenset(task for task, result in tasks if result["stateless"] is True),
            chance={
                t: float(result["chance"]["solved"]) for t, result in tasks if result["chance"]
            },
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return Proof()  # whatever is wrong with the file
