"""Statistics of a run of NeMo Gym, which its agents ask a resource server for at the end."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TASK_INDEX = "_ng_task_index"
"""The key of NeMo Gym's responses that says which row of its file a rollout is of."""

LARGEST = 2**53
"""Larger numbers are left out: sums of them may overflow."""

_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "max": max,
    "min": min,
    "median": statistics.median,
}


def aggregate_metrics(responses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the statistics of a run's responses, for all rollouts and for each row.

    Names are those of NeMo Gym's own servers. A masked response has no valid reward, so it only
    counts in `coverage/…`, which is there if one is masked.

    Example:
        >>> responses = [{"reward": 1.0}, {"reward": 0.0, "mask_sample": True}]
        >>> aggregate_metrics(responses)["key_metrics"]["mean/reward"]
        1.0
    """
    if not responses:
        return _reply({}, [])
    by_task: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for response in responses:
        if not response.get("mask_sample"):
            by_task[_task(response)].append(response)
    measured = [response for group in by_task.values() for response in group]
    metrics = {**_statistics(measured), **_coverage(responses, measured)}
    groups = [
        {**_statistics(group), "num_rollouts": len(group), TASK_INDEX: task}
        for task, group in by_task.items()
    ]
    return _reply(metrics, groups)


def _task(response: Mapping[str, Any]) -> int:
    """Return the index of a response's row; without one, all are of the same row."""
    index = response.get(TASK_INDEX)
    return index if isinstance(index, int) else 0


def _reply(metrics: dict[str, Any], groups: list[dict[str, Any]]) -> dict[str, Any]:
    headline = ("mean/", "coverage/")
    return {
        "agent_metrics": metrics,
        "key_metrics": {
            name: value for name, value in metrics.items() if name.startswith(headline)
        },
        "group_level_metrics": groups,
    }


def _statistics(responses: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the statistics of every number in the responses."""
    values_by_name: dict[str, list[float]] = defaultdict(list)
    for response in responses:
        for name, value in response.items():
            if name == "mask_sample" or name.startswith("_"):
                continue
            if isinstance(value, int | float) and abs(value) <= LARGEST:
                values_by_name[name].append(float(value))
    return {
        f"{statistic}/{name}": compute(values)
        for name, values in values_by_name.items()
        for statistic, compute in _STATISTICS.items()
    }


def _coverage(
    responses: Sequence[Mapping[str, Any]], measured: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Return how many rollouts and rows the statistics are of; nothing if they are of all."""
    masked = len(responses) - len(measured)
    if not masked:
        return {}
    tasks = {*map(_task, responses)}
    measured_tasks = {*map(_task, measured)}
    return {
        "coverage/measured_rollouts": len(measured),
        "coverage/masked_rollouts": masked,
        "coverage/measured_tasks": len(measured_tasks),
        "coverage/fully_masked_tasks": len(tasks - measured_tasks),
    }
