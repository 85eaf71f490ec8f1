"""What checks of all categories share: an entry, and the kinds of faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...records import Fault, FaultKind

Entry = Mapping[str, Any]
"""An entry of the library: question, answer and metadata."""

Check = Callable[[Entry], Fault | None]
"""Returns what is wrong with an entry, or None."""

false_label = partial(Fault, FaultKind.FALSE_LABEL)

ambiguous = partial(Fault, FaultKind.AMBIGUOUS)

unanswerable = partial(Fault, FaultKind.UNANSWERABLE)
