"""A hint where nothing can be learned: no completion has an answer, or all of them break off."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import GroupResult, Status
from ..util.text import escape_control_characters
from .metrics import Statistics

GROUPS = 50
"""So many groups are looked at."""
NEARLY_ALL = 0.95
_EXAMPLES = 2
_EXAMPLE_LENGTH = 160

_NO_ANSWER = """\
{unanswered:.0%} of the completions of the first {groups} groups have no answer between <answer> \
and </answer> ({truncated:.0%} are truncated): nothing can be learned from them. The model wrote:
{examples}
Ways out: train it on demonstrations first (`export --format sft` makes them from rollouts of a \
model that answers); another system_prompt; another chat template, where this one opens a thought \
that the prompt asks for again (docs/inference.md); where answers stand in their tags in another \
form, answer_tolerance."""

_TRUNCATED = """\
{truncated:.0%} of the completions of the first {groups} groups are truncated at max_token_length: \
nothing can be learned from them. The model wrote:
{examples}
Ways out: a larger max_token_length, at the server too; a model that thinks less; for one that \
thinks by itself, system_prompt: direct."""


def hint(unanswered: float, truncated: float, examples: Sequence[str]) -> str | None:
    """Say why nothing can be learned, and the ways out; None where something can.

    Args:
        unanswered, truncated: shares of the completions, in [0, 1].
        examples: texts without an answer.
    """
    if max(unanswered, truncated) < NEARLY_ALL:
        return None
    return (_TRUNCATED if truncated >= NEARLY_ALL else _NO_ANSWER).format(
        unanswered=unanswered,
        truncated=truncated,
        groups=GROUPS,
        examples="\n".join(f"  {shortened(text)}" for text in examples),
    )


def shortened(text: str) -> str:
    """Give a text on one line that is safe to print: its beginning and its end.

    Example:
        >>> shortened("The answer\\nis 4.")
        'The answer is 4.'
    """
    line = escape_control_characters(" ".join(text.split()))
    half = _EXAMPLE_LENGTH // 2 - 1
    return line if len(line) <= _EXAMPLE_LENGTH else f"{line[:half]} … {line[-half + 1 :]}"


class Hints:
    """Keeps a text of each of two groups, and gives the hint when enough groups have come."""

    def __init__(self) -> None:
        self._groups = 0
        self._examples: list[str] = []

    def after(self, group: GroupResult, statistics: Statistics) -> str | None:
        """The hint after the last of the groups that are looked at, if there is one.

        Args:
            statistics: has counted this group and those before.
        """
        self._groups += 1
        unanswered = (a for a in group.attempts if a.verdict.status is Status.NO_ANSWER)
        example = next(unanswered, None)
        if example is not None and len(self._examples) < _EXAMPLES:
            self._examples.append(example.completion.text)
        if self._groups != GROUPS:
            return None
        share = statistics.total
        no_answer = share[f"status/{Status.NO_ANSWER.value}"].value
        return hint(no_answer, share["truncated"].value, self._examples)
