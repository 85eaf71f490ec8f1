"""What the audit may find without it being news: task, kind of finding, and the reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..scoring.guards import ACCEPTED
from ..tasks.facts import PAYS_ANY_ANSWER
from .probes import DEGENERATE, Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """Why a finding is no news.

    Attributes:
        levels: where it is known; None is everywhere.
    """

    reason: str
    levels: Collection[int | None] | None = None


def explanation(
    known: Mapping[str, Mapping[str, Known]], task: str, kind: str, level: int | None
) -> str:
    """Say why a finding is no news; empty when it is."""
    entry = known.get(task, {}).get(kind)
    if entry is None or (entry.levels is not None and level not in entry.levels):
        return ""
    return entry.reason


_NO_ORACLE = "Several answers are right, and the entry names none."
_SHARE = "The right answer with words beside it that are no other answer: its share of the length."
_REST = "The answer is right and complete; what follows isn't looked at."
_FIRST = "The first answer counts and the others are ignored: listing more gains nothing."
_UNEVALUATED = "Some oracles hold an unevaluated Integral."

_NO_ORACLE_TASKS = ("boxnet", "graph_color", "rubiks_cube", "rush_hour")
_CONTAINED_TASKS = (
    *("acre", "arc_1d", "list_functions", "manipulate_matrix", "number_filtering"),
    *("rotate_matrix", "string_splitting", "string_synthesis", "word_sequence_reversal"),
)
_GRIDS = ("kakurasu", "mini_sudoku", "sudoku", "survo")
_CONSTANT, _OTHER = Kind.CONSTANT.value, Kind.OTHER.value
_SEVERAL, _APPENDED = Kind.LISTING.value, Kind.APPENDED.value


def _accepted(task: str, *kinds: str) -> dict[str, Known]:
    """Say what the guards leave as it is, in the words of their table."""
    return dict.fromkeys(kinds, Known(reason=f"Accepted: {ACCEPTED[task]}."))


VERIFIERS: Mapping[str, Mapping[str, Known]] = MappingProxyType(
    {task: {"no oracle": Known(reason=_NO_ORACLE)} for task in _NO_ORACLE_TASKS}
    | {task: {_APPENDED: Known(reason=_SHARE)} for task in _CONTAINED_TASKS}
    | {task: {_APPENDED: Known(reason=_REST)} for task in _GRIDS}
    | {
        "advanced_geometry": {_SEVERAL: Known(reason=_FIRST)},
        "futoshiki": {_APPENDED: Known(reason=_REST), _SEVERAL: Known(reason=_FIRST)},
        "gsm_symbolic": {
            _APPENDED: Known(reason=_REST),
            _SEVERAL: Known(reason=_FIRST),
            "oracle": Known(reason="The oracle is wrong on one item in 65.", levels={None}),
        },
        "intermediate_integration": {"generation": Known(reason=_UNEVALUATED)},
        "knights_knaves": {_APPENDED: Known(reason=_REST)},
        "largest_island": _accepted("largest_island", _CONSTANT),
        "polynomial_equations": {
            **_accepted("polynomial_equations", _CONSTANT, _OTHER),
            _SEVERAL: Known(reason="A solution too many costs a part of the score."),
        },
        "power_function": _accepted("power_function", _CONSTANT),
        "propositional_logic": {
            "no oracle": Known(reason=_NO_ORACLE),
            **_accepted("propositional_logic", _CONSTANT),
        },
        "quantum_lock": _accepted("quantum_lock", _APPENDED),
        "rectangle_count": _accepted("rectangle_count", _CONSTANT, _OTHER),
        "sokoban": _accepted("sokoban", _APPENDED, _SEVERAL),
        "time_intervals": {_APPENDED: Known(reason=_REST), _SEVERAL: Known(reason=_FIRST)},
        "word_sorting": {_APPENDED: Known(reason="Words too many cost their share.")},
    }
)
"""What the verifiers pay for, with the environment's screen and guards before them."""


def known_findings() -> dict[str, Mapping[str, Known]]:
    """Join `VERIFIERS` and every degenerate answer to the tasks that pay any."""
    pays_any = {
        task: {kind.value: Known(reason=reason) for kind in DEGENERATE}
        for task, reason in PAYS_ANY_ANSWER.items()
    }
    return {**VERIFIERS, **pays_any}
