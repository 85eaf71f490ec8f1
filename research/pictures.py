"""The look of the drawings in docs/: legible on white and on black, the same file each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

GRAY = "#7d838c"
"""Of text and axes: a contrast of 3.8 on white and 5.0 on GitHub's black."""


def figure(columns: int, *, width: float, height: float = 4.0) -> tuple[Any, list[Any]]:
    """Return a figure without a background, and its axes side by side."""
    texts: Any = (
        "text.color",
        "axes.edgecolor",
        "axes.labelcolor",
        "xtick.color",
        "ytick.color",
    )
    plt.rcParams.update(dict.fromkeys(texts, GRAY))
    plt.rcParams.update({"svg.hashsalt": "reasoning-gym", "savefig.transparent": True})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    made, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained")
    return made, list(axes) if columns > 1 else [axes]


def legend_above(axes: Any) -> None:
    """Put a legend above the axes, where it covers no data."""
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    axes.legend(frameon=False, fontsize="small", ncols=2, **place)


def save(made: Any, path: Path) -> None:
    made.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
