"""Finds answers that share one fault: no answer, no end, or one text for all problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ..records import Status
from ..scoring.extraction import AnswerFormat, has_untagged_box
from ..util.values import escape_control_characters

GROUPS = 50
"""Groups after which the warning is due."""

NEARLY_ALL = 0.95

_FAULTS = MappingProxyType(
    {
        "truncated": (
            "are truncated at max_token_length",
            "a larger max_token_length, on the server and the trainer too; a model that thinks "
            "less; for a model that thinks by itself, system_prompt: direct.",
        ),
        "filtered": (
            "are withheld by the server's content filter (finish_reason content_filter)",
            "a server or a setting of it without the filter; another system_prompt.",
        ),
        "empty": (
            "are empty",
            "look at a reply of the server itself: a parser of thoughts may return the text in a "
            "field of its own; another chat template; a larger max_token_length.",
        ),
        "boxed without tags": (
            "have their answer in a box and no answer tags",
            "--env.answer_format boxed, if it was trained to box; another system_prompt.",
        ),
        "unanswered": (
            "have no answer",  # see `_UNANSWERED`
            "train it on demonstrations first (`export --format sft` makes them from rollouts of a "
            "model that answers); another system_prompt; another chat template, if this one opens "
            "a thought that the prompt asks for again (docs/inference.md).",
        ),
    }
)
"""Why completions have no answer, the most specific first: what they are, and hints."""


_UNANSWERED: Mapping[AnswerFormat, str] = MappingProxyType(
    {
        "tags": "have no answer between <answer> and </answer>",
        "boxed": "have no answer in \\boxed{}",
        "tags-or-boxed": "have no answer between <answer> and </answer> or in \\boxed{}",
    }
)
"""What unanswered completions are, by where their answers would count."""


def find_faults(
    text: str,
    finish_reason: str,
    status: Status,
    answer_format: AnswerFormat,
) -> frozenset[str]:
    """Return what is wrong with a completion that could be wrong with all: names of `_FAULTS`."""
    is_truncated = finish_reason == "length"
    is_unanswered = status is Status.NO_ANSWER
    is_boxed = (
        answer_format == "tags"
        and is_unanswered
        and not is_truncated  # its text is long, and reading it would tell nothing new
        and has_untagged_box(text)
    )
    faults = {
        "truncated": is_truncated,
        "filtered": finish_reason == "content_filter",
        "empty": not text.strip(),
        "boxed without tags": is_boxed,
        "unanswered": is_unanswered,
    }
    return frozenset(name for name, is_faulty in faults.items() if is_faulty)


class AnswerCheck:
    """Counts completions without an answer, to warn if nearly all are."""

    def __init__(self, answer_format: AnswerFormat) -> None:
        self._format = answer_format
        self._total = 0
        self._faults: Counter[str] = Counter()
        self._examples: list[str] = []

    def add(self, completions: Iterable[tuple[str, str, Status]]) -> None:
        """Count one problem's completions (text, finish reason, status); keep an example."""
        example = None
        for text, finish_reason, status in completions:
            faults = find_faults(text, finish_reason, status, self._format)
            self.count(faults)
            if "unanswered" in faults and example is None and len(self._examples) < 2:
                example = excerpt(text) or "(nothing)"
                self._examples.append(example)

    def count(self, faults: frozenset[str]) -> None:
        """Count a completion by its faults."""
        self._total += 1
        self._faults.update(faults)

    def finding(self, subject: str) -> str | None:
        """Return which fault nearly all completions of a subject have; None if none has."""
        shares = self._shares()
        fault = self._common_fault()
        if fault is None:
            return None
        other_shares = [
            f"{s:.0%} {name}" for name, s in shares.items() if name != "unanswered"
        ]
        what = _FAULTS[fault][0]
        if fault == "unanswered":
            what = f"{_UNANSWERED[self._format]} ({', '.join(other_shares)})"
        return f"{shares[fault]:.0%} of the completions of {subject} {what}"

    def warning(self, subject: str, *, consequence: str) -> str | None:
        """Explain why a subject has no answers and what to do; None if there are some."""
        fault = self._common_fault()
        if fault is None:
            return None
        examples = "\n".join(f"  {example}" for example in self._examples)
        return (
            f"{self.finding(subject)}: {consequence}. The model wrote:\n{examples}\n"
            f"Ways out: {_FAULTS[fault][1]}"
        )

    def _common_fault(self) -> str | None:
        return next(
            (name for name, share in self._shares().items() if share >= NEARLY_ALL),
            None,
        )

    def _shares(self) -> dict[str, float]:
        return {name: self._faults[name] / max(1, self._total) for name in _FAULTS}


def excerpt(text: str) -> str:
    """Return the beginning and the end of a text on one line that is safe to print.

    Example:
        >>> excerpt("The answer\\nis 4.")
        'The answer is 4.'
    """
    line = escape_control_characters(" ".join(text.split()))
    return line if len(line) <= 160 else f"{line[:79]} … {line[-78:]}"
