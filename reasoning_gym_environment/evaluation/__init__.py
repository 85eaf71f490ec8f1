"""The fixed evaluation set: its plan, a run, its results on disk, metrics, and comparisons.

Chance floors come from `tasks`; `report` makes pages of the results.
"""

__all__ = ["comparison", "estimators", "metrics", "plan", "run", "store"]
