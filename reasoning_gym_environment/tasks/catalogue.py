"""The library's tasks: discovery, a snapshot of one version, selection, and entries from outside.

`make docs` writes `library_snapshot.json`, which lists the tasks and ladders of one version of
reasoning-gym, so that they are known without importing it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

from ..errors import ConfigurationError, did_you_mean
from ..util.values import describe_error
from .facts import (
    NOT_A_TASK,
    ONLY_IF_NAMED,
    UNTRUSTED_ENTRIES,
    known_categories,
    stored_snapshot,
)
from .ladders import TaskLadder
from .library import require_whole

NOT_INCLUDED = "not among include_tasks"

MOST_NAMED = 5
"""Tasks that are named where they are left out for one reason; more are counted."""


class Discovery(NamedTuple):
    """The library's tasks: category by name, build failures by name, and a warning."""

    categories: dict[str, str]
    failures: dict[str, str]
    warning: str | None


class LibrarySnapshot(NamedTuple):
    """The tasks of one version of reasoning-gym, and the ladder of each by name."""

    discovery: Discovery
    ladders: dict[str, TaskLadder]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskInfo:
    """One registered name. `reason` says why it is not used; empty if it is."""

    name: str
    category: str
    reason: str = ""

    @property
    def used(self) -> bool:
        return not self.reason

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "used": self.used}


class UnknownTaskError(ConfigurationError):
    """A configured name is neither a task nor a category."""


def bundled_snapshot() -> LibrarySnapshot | None:
    """Return the snapshot, or None if it describes another version than the installed one."""
    content = stored_snapshot()
    if content["version"] != version("reasoning-gym"):
        return None
    ladders = {
        task: TaskLadder(
            **{
                **row,
                "levels": tuple(row["levels"]),
                "parameters": tuple(row["parameters"]),
            }
        )
        for task, row in content["ladders"].items()
    }
    return LibrarySnapshot(
        Discovery(content["categories"], content["failures"], None), ladders
    )


def proven_tasks() -> frozenset[str]:
    """Return the snapshot's tasks that build; empty if another version is installed."""
    snapshot = bundled_snapshot()
    if snapshot is None:
        return frozenset()
    return frozenset(
        snapshot.discovery.categories.keys() - snapshot.discovery.failures.keys()
    )


def read_registry() -> dict[str, str]:
    """Return the category of every dataset that the installed library registers, by name.

    The category is the second part of the module's path, as in `reasoning_gym.games.sudoku`.
    Raises what a module of the library raised at the import.
    """
    require_whole()
    from reasoning_gym.factory import DATASETS  # heavy: only worker processes call this

    return {
        name: dataset.__module__.split(".")[1]
        for name, (dataset, _) in DATASETS.items()
    }


def discover(
    build: Callable[[str], object],
    registry: Callable[[], dict[str, str]] = read_registry,
    *,
    proven: Collection[str] = (),
) -> Discovery:
    """List the library's tasks and try to build each that is not `proven`: all take a second.

    If the registry can't be read, tries each task of the snapshot.
    """
    reason = ""
    try:
        categories = registry()
    except Exception as error:  # noqa: BLE001 - a broken library may raise anything: it is reported
        reason = describe_error(error)
        categories = known_categories()
        proven = ()
    failures = {}
    for name in sorted(categories.keys() - NOT_A_TASK.keys() - set(proven)):
        try:
            build(name)
        except UnknownTaskError:
            failures[name] = "reasoning-gym did not load it"
        except Exception as error:  # noqa: BLE001 - any dataset may raise anything: it is reported, not hidden
            failures[name] = f"can't be built: {describe_error(error)}"
    warning = None
    if reason:
        warning = (
            f"The tasks of reasoning-gym can't be listed ({reason}): of {len(categories)} known "
            f"tasks, the {len(categories) - len(failures)} that load are used"
        )
    return Discovery(categories, failures, warning)


def require_known(
    names: Iterable[str],
    known_names: Collection[str],
    setting: str,
    *,
    what: str = "task or category",
) -> None:
    """Raise UnknownTaskError for the first unknown name, with the setting and close matches."""
    for name in names:
        if name not in known_names:
            hint = did_you_mean(name, known_names, otherwise="see the `tasks` command")
            raise UnknownTaskError(
                f"{setting}: unknown {what} {name!r}; {hint} (a task of your own needs its module "
                "in task_modules)"
            )


def _exclusion_reason(
    name: str,
    category: str,
    discovery: Discovery,
    include: Sequence[str],
    exclude: Sequence[str],
) -> str:
    if include and name not in include and category not in include:
        return NOT_INCLUDED
    if name in NOT_A_TASK:
        return NOT_A_TASK[name]
    if name in discovery.failures:
        return discovery.failures[name]
    if name in exclude or category in exclude:
        return "excluded by exclude_tasks"
    if name in ONLY_IF_NAMED and name not in include:
        return ONLY_IF_NAMED[name] + "; to use it anyway, include it by name"
    return ""


def select_tasks(
    discovery: Discovery, *, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[TaskInfo]:
    """Decide for every registered name whether it is used; raises UnknownTaskError.

    Both lists have task and category names. `exclude` wins; an empty `include` means all.
    """
    names = discovery.categories.keys() | set(discovery.categories.values())
    require_known(include, names, "include_tasks")
    require_known(exclude, names, "exclude_tasks")
    return [
        TaskInfo(
            name=name,
            category=category,
            reason=_exclusion_reason(name, category, discovery, include, exclude),
        )
        for name, category in sorted(discovery.categories.items())
    ]


def count_used(tasks: Sequence[TaskInfo]) -> str:
    """Say how many of the tasks are used; registered names that are no tasks don't count."""
    counted = [task for task in tasks if task.name not in NOT_A_TASK]
    used = sum(task.used for task in counted)
    return f"{used} of {len(counted)} tasks are used"


def describe_left_out(tasks: Sequence[TaskInfo]) -> str:
    """Say which tasks are left out and why; of many with one reason, how many.

    Example:
        >>> tasks = [TaskInfo(name="gcd", category="arithmetic", reason="it is too easy")]
        >>> describe_left_out(tasks)
        '; left out: gcd, it is too easy'
    """
    names_by_reason = defaultdict[str, list[str]](list)
    for task in tasks:
        if not task.used and task.name not in NOT_A_TASK:
            names_by_reason[task.reason].append(task.name)
    parts = []
    for reason, names in names_by_reason.items():
        many = len(names) > MOST_NAMED
        named = f"{len(names)} tasks" if many else ", ".join(names)
        parts.append(f"; left out: {named}, {reason}")
    return "".join(parts)


def task_weights(
    tasks: Sequence[TaskInfo], configured: Mapping[str, float]
) -> dict[str, float]:
    """Return each used task's weight: its own if configured, else its category's, else 1.

    Raises UnknownTaskError, and ConfigurationError if no used task has a weight above 0.
    """
    names = {t.name for t in tasks} | {t.category for t in tasks}
    require_known(configured, names, "task_weights")
    weights = {
        task.name: configured.get(task.name, configured.get(task.category, 1.0))
        for task in tasks
        if task.used
    }
    if not any(weight > 0 for weight in weights.values()):
        reasons = (t.reason for t in tasks if t.reason != NOT_INCLUDED)
        why = "" if weights else f" ({'; '.join(dict.fromkeys(reasons))})"
        settings = "include_tasks, exclude_tasks and task_weights"
        raise ConfigurationError(f"no task has a weight above 0: check {settings}{why}")
    return weights


def restore_json_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Restore an entry that went through JSON, which turns tuples into lists.

    `tests/service/test_entries.py` proves for every task that the verdicts are then the same.

    Args:
        entry: `question` and `answer`, both texts, and `metadata` with `source_dataset`.

    Raises:
        ValueError: the entry can't be scored; the message says why, and what to do.
    """
    metadata = entry["metadata"]
    task = metadata.get("source_dataset")
    if not isinstance(task, str) or task not in known_categories():
        hint = did_you_mean(
            str(task)[:50], known_categories(), otherwise="see the `tasks` command"
        )
        raise ValueError(
            f"metadata.source_dataset must be a task of reasoning-gym, got {task!r:.50}; {hint}"
        )
    hint = "send the recipe of a problem made by this package instead"
    if task in UNTRUSTED_ENTRIES:
        raise ValueError(
            f"entries of {task} are not scored: {UNTRUSTED_ENTRIES[task]}; {hint}"
        )
    if entry["answer"] is None:
        raise ValueError(
            f"answer is null, so this {task} entry can't be checked; {hint}"
        )

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    # The field that a verifier reads and JSON changes.
    fields = {
        "advanced_geometry": "ortho",
        "arc_agi": "output",
        "complex_arithmetic": "result",
        "knight_swap": "solution",
        "rearc": "output",
    }
    name = fields.get(task)
    if name in metadata:
        value = metadata[name]
        restored = tuples(value)
        is_list = task == "knight_swap" and isinstance(value, list)
        metadata = {**metadata, name: list(restored) if is_list else restored}
    return {
        "question": entry["question"],
        "answer": entry["answer"],
        "metadata": dict(metadata),
    }
