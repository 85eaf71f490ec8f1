"""Which tasks there are, and which of them a run uses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ..errors import ConfigurationError, did_you_mean
from .facts import KNOWN_TASKS, NOT_A_TASK, PAYS_ANY_ANSWER


class Discovery(NamedTuple):
    """What the library offers: category by name, why a name can't be built, and a warning."""

    categories: dict[str, str]
    failures: dict[str, str]
    warning: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskInfo:
    """One registered name. `reason` says why it is not used; empty when it is."""

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


def category_of(module: str) -> str:
    """Read a category off a module's path: the library's layout gives it.

    Example:
        >>> category_of("reasoning_gym.games.sudoku")
        'games'
    """
    return module.split(".")[1]


def known_categories() -> dict[str, str]:
    """Turn the built-in list round: category by task name."""
    return {name: category for category, names in KNOWN_TASKS.items() for name in names}


def read_registry() -> dict[str, str]:
    """Read the category of every dataset the installed library registers, by name."""
    from reasoning_gym.factory import DATASETS  # heavy: only worker processes come here

    return {name: category_of(dataset.__module__) for name, (dataset, _) in DATASETS.items()}


def discover(
    build: Callable[[str], object],
    registry: Callable[[], dict[str, str]] = read_registry,
    *,
    proven: Collection[str] = (),
) -> Discovery:
    """List the library's tasks and try to build each at its default configuration.

    The built-in list takes over where the registry can't be read.

    Args:
        proven: names that are known to build; trying them all takes a second.
    """
    warning = None
    try:
        categories = registry()
    except (ImportError, AttributeError, LookupError, TypeError, ValueError) as error:
        categories = known_categories()
        warning = (
            f"reasoning-gym's registry can't be read ({type(error).__name__}: {error}); "
            f"using the built-in list of {len(categories)} known tasks"
        )
    failures = {}
    for name in sorted(categories.keys() - NOT_A_TASK.keys() - set(proven)):
        try:
            build(name)
        except Exception as error:  # noqa: BLE001 - any dataset may raise anything: it is reported, not hidden
            failures[name] = f"can't be built: {type(error).__name__}: {error}"
    return Discovery(categories, failures, warning)


def require_known(
    names: Iterable[str], known: Collection[str], setting: str, *, what: str = "task or category"
) -> None:
    """Refuse unknown names; the UnknownTaskError has the setting, the name and the closest ones."""
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, otherwise="see the `tasks` command")
            raise UnknownTaskError(f"{setting}: {name!r} is no {what}; {hint}")


def _exclusion_reason(
    name: str, category: str, discovery: Discovery, include: Sequence[str], exclude: Sequence[str]
) -> str:
    if name in NOT_A_TASK:
        return NOT_A_TASK[name]
    if name in discovery.failures:
        return discovery.failures[name]
    if name in exclude or category in exclude:
        return "excluded by exclude_tasks"
    if include and name not in include and category not in include:
        return "not among include_tasks"
    if name in PAYS_ANY_ANSWER and name not in include:
        return PAYS_ANY_ANSWER[name] + "; include it by name to use it all the same"
    return ""


def select_tasks(
    discovery: Discovery, *, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[TaskInfo]:
    """Decide for every registered name whether it is used.

    Args:
        include: task and category names; empty means all.
        exclude: task and category names, which win over `include`.

    Raises:
        UnknownTaskError: a name is neither a task nor a category.
    """
    known = discovery.categories.keys() | set(discovery.categories.values())
    require_known(include, known, "include_tasks")
    require_known(exclude, known, "exclude_tasks")
    return [
        TaskInfo(
            name=name,
            category=category,
            reason=_exclusion_reason(name, category, discovery, include, exclude),
        )
        for name, category in sorted(discovery.categories.items())
    ]


def task_weights(tasks: Sequence[TaskInfo], configured: Mapping[str, float]) -> dict[str, float]:
    """Weigh each used task: by its own weight, else its category's, else 1.

    Raises:
        UnknownTaskError: a configured name is neither a task nor a category.
        ConfigurationError: no used task has a weight above 0.
    """
    known = {t.name for t in tasks} | {t.category for t in tasks}
    require_known(configured, known, "task_weights")
    weights = {
        task.name: configured.get(task.name, configured.get(task.category, 1.0))
        for task in tasks
        if task.used
    }
    if not any(weight > 0 for weight in weights.values()):
        raise ConfigurationError(
            "no task is left to draw from: check include_tasks, exclude_tasks and task_weights"
        )
    return weights
