"""A curriculum's state as the numbers that are logged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any


def curriculum_metrics(stats: Mapping[str, Any], categories: Mapping[str, str]) -> dict[str, float]:
    """`curriculum/*`, with the level of each task and the mean difficulty of each category.

    Args:
        stats: as `ReasoningGymEnv.get_curriculum_stats` gives them, in curriculum mode.
        categories: category by task.

    Returns:
        Levels count from 0; complexities and difficulties are in [0, 1].
    """
    details: Mapping[str, Mapping[str, Any]] = stats["task_details"]
    movable = {task: one["difficulty"] for task, one in details.items() if one["height"] > 1}
    shares = {
        task: one["solved_share"]
        for task, one in details.items()
        if one["solved_share"] is not None
    }
    by_category: defaultdict[str, list[float]] = defaultdict(list)
    for task, difficulty in movable.items():
        by_category[categories[task]].append(difficulty)
    summary = {
        "total_tasks_tracked": stats["total_tasks_tracked"],
        "tasks_with_adjustments": stats["tasks_with_adjustments"],
        "target_accuracy": stats["target_accuracy"],
        "avg_complexity": stats["average_complexity"],
        "min_complexity": min(movable.values(), default=0.0),
        "max_complexity": max(movable.values(), default=0.0),
        **({"avg_recent_accuracy": sum(shares.values()) / len(shares)} if shares else {}),
        **{f"category/{name}": sum(them) / len(them) for name, them in by_category.items()},
        **{f"task/{task}/level": one["level"] for task, one in details.items()},
        **{f"task/{task}/difficulty": difficulty for task, difficulty in movable.items()},
        **{f"task/{task}/recent_accuracy": share for task, share in shares.items()},
    }
    return {f"curriculum/{name}": float(value) for name, value in summary.items()}
