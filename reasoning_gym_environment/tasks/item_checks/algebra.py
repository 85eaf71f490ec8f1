"""Checks of items of the category algebra."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from ...records import Fault
from .faults import Entry, false_label, unanswerable


def complex_arithmetic(entry: Entry) -> Fault | None:
    """Find products of more digits than a float has."""
    number = r"\((\S+) ([-+]) (\S+)i\)"
    match = re.search(f": {number} \u00d7 {number}$", entry["question"])
    if not match:
        return None
    a = int(float(match[1]))
    b = int(float(match[2] + match[3]))
    c = int(float(match[4]))
    d = int(float(match[5] + match[6]))
    real = a * c - b * d
    imaginary = a * d + b * c
    if abs(real) < 2**53 and abs(imaginary) < 2**53:
        return None
    label = complex(entry["answer"].replace(" ", "").replace("i", "j"))
    if (int(label.real), int(label.imag)) == (real, imaginary):
        return None
    return false_label(f"right: {real} + {imaginary}i, unrounded")


def polynomial_equations(entry: Entry) -> Fault | None:
    """Find roots that the label lacks: the polynomial changes its sign more often than it says."""
    coefficients: Counter[int] = Counter()
    polynomial = entry["metadata"]["polynomial_expr"].replace(" ", "")
    term = r"([+-]?)(\d*)(?:\*?([a-z])(?:\*\*(\d+))?)?"
    for sign, number, variable, power in re.findall(term, polynomial):
        if number or variable:
            degree = int(power or 1) if variable else 0
            coefficients[degree] += int(f"{sign}{number or 1}")
    highest = max((degree for degree, c in coefficients.items() if c), default=0)
    if not highest:
        return None
    bound = 1 + max(abs(c / coefficients[highest]) for c in coefficients.values())
    xs = [bound * (step / 200 - 1) for step in range(401)]
    values = [sum(c * x**degree for degree, c in coefficients.items()) for x in xs]
    signs = [value > 0 for value in values if value]
    changes = sum(before != after for before, after in pairwise(signs))
    labeled_roots = entry["metadata"]["real_solutions"]
    if changes <= len(set(labeled_roots)):
        return None
    return false_label(f"{changes} real solutions, not {len(labeled_roots)}")


def simple_equations(entry: Entry) -> Fault | None:
    metadata = entry["metadata"]
    if metadata["variable"] in metadata["equation"]:
        return None
    return unanswerable(
        f"every {metadata['variable']} satisfies {metadata['equation']}"
    )
