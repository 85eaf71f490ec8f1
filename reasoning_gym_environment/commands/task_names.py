"""Names of tasks in settings, checked without the library where its version is the known one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..problems.selection import require_names
from ..tasks.catalogue import select_tasks, task_weights
from ..tasks.shipped import shipped
from ..util.settings_text import PARSERS


def require_tasks(env: Mapping[str, Any]) -> None:
    """Refuse names of tasks and parameters that don't exist; another version is asked later.

    Args:
        env: values that can be read.

    Raises:
        UnknownTaskError: a name is neither a task nor a category.
        ConfigurationError: no task is left, or a parameter doesn't exist.
    """
    include, exclude, weights, parameters = (
        PARSERS[name](env.get(name) or "")
        for name in ("include_tasks", "exclude_tasks", "task_weights", "task_parameters")
    )
    offer = shipped()
    if offer is None:
        return
    tasks = select_tasks(offer.discovery, include=include, exclude=exclude)
    task_weights(tasks, weights)
    require_names(parameters, offer.ladders)
