"""The modules that hold for themselves: they import the standard library alone."""

PURE = [
    "errors",
    "records",
    "evaluation.estimators",
    "scoring.extraction",
    "scoring.grading",
    "scoring.notation",
    "tasks.recipes",
    "util.concurrency",
    "util.log_throttle",
    "util.outages",
    "util.retries",
    "sandbox._protocol",
]
"""Below the package. A bare interpreter imports them: see `test_layers.py`."""
