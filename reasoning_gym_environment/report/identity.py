"""What a stored group belongs to: its split, its run or evaluation, its category."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import PurePath

from ..evaluation.store import PARTIAL_SAMPLES, SAMPLES
from ..storage.rows import StoredGroup
from ..tasks.facts import known_categories

TRAINING = "training"
EVALUATION = "evaluation"

RUN_NAME_LENGTH = 8
"""Characters of a run's id in its name."""

IDENTIFIER_BYTES = 5
"""Ten hexadecimal digits: short enough for an address. `GroupIndex` numbers those that collide."""


def split_of(group: StoredGroup) -> str:
    """Return "training" or "evaluation", by the recipe's seed."""
    return EVALUATION if group.recipe.is_evaluation else TRAINING


def category_of(group: StoredGroup) -> str:
    """Return the category of a group's task, or the module of a user's own."""
    return known_categories().get(group.task, group.source or "other")


def run_of(group: StoredGroup) -> tuple[str, str]:
    """Return the key and the name of the run, or of the evaluation."""
    if split_of(group) == TRAINING:
        return group.run, training_name(group.run)
    folder = str(group.file or "")
    for name in (SAMPLES, PARTIAL_SAMPLES):
        if folder.endswith(name):
            folder = folder[: -len(f"/{name}")]
            break
    last_folders = "/".join(PurePath(folder).parts[-2:])
    return folder or EVALUATION, last_folders or EVALUATION


def training_name(run: str) -> str:
    """Return a run's name on the page; a row may have no run."""
    return f"run {run[:RUN_NAME_LENGTH]}" if run else "training"


def group_id(group: StoredGroup) -> str:
    """Return an identifier that is the same in every file of the group's run."""
    run, _ = run_of(group)
    identity = f"{run}\0{group.item_key}\0{group.time}\0{group.number}"
    # Rows may hold lone surrogates, which UTF-8 can't encode.
    encoded = identity.encode("utf-8", "surrogatepass")
    return blake2b(encoded, digest_size=IDENTIFIER_BYTES).hexdigest()
