"""The modules that hold for themselves: they import the standard library alone."""

PURE = [
    "errors",
    "records",
    "evaluation.estimators",
    "problems.levels",
    "problems.seeds",
    "rollouts.metrics",
    "scoring.extraction",
    "scoring.rewards",
    "tasks.recipes",
    "util.grouping",
    "util.concurrency",
    "util.outages",
    "util.retry",
    "util.text",
    "sandbox._protocol",
]
"""Below the package. A bare interpreter imports them: see `test_layers.py`."""
