"""The single-answer rule: exactly one `<answer>…</answer>` outside the thought.

The thought is `<think>…</think>`; everything up to a first `</think>` that nothing opened
(chat templates that open it in the prompt); and everything after a `<think>` that is never
closed (a truncated thought holds no answer).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from ..records import Status

_THINK = re.compile(r"<(?P<slash>/?)think>", re.IGNORECASE | re.ASCII)
_ANSWER = re.compile(r"<(?P<slash>/?)answer>", re.IGNORECASE | re.ASCII)


class Extraction(NamedTuple):
    """The answer, or None and the status that says why."""

    answer: str | None
    failure: Status | None


class _Tag(NamedTuple):
    """The position of a tag in a text, and whether it opens or closes."""

    start: int
    end: int
    opens: bool


def _tags(kind: re.Pattern[str], text: str) -> list[_Tag]:
    return [_Tag(tag.start(), tag.end(), opens=not tag["slash"]) for tag in kind.finditer(text)]


def split_thought(text: str) -> tuple[str, str]:
    """Split a completion into its thought and the rest, both without think tags.

    A thought ends at the first closing tag: models mention the opening one while they think.
    Takes time linear in the length of the text.

    Example:
        >>> split_thought("hm</think>so: <answer>4</answer>")
        ('hm', 'so: <answer>4</answer>')
    """
    tags = _tags(_THINK, text)
    starts_in_thought = bool(tags) and not tags[0].opens
    thought: list[str] = []
    outside: list[str] = []
    begin, thinking = 0, starts_in_thought
    for tag in tags:
        (thought if thinking else outside).append(text[begin : tag.start])
        begin, thinking = tag.end, tag.opens
    (thought if thinking else outside).append(text[begin:])
    # A newline between the pieces: what a thought separates must not join into a tag.
    return "".join(thought), "\n".join(filter(None, outside))


def extract_answer(text: str) -> Extraction:
    """Return the one answer of a completion.

    Tags count in any letter case. A tag beside a complete answer counts as several answers:
    another one begins there.

    Example:
        >>> extract_answer("<think>easy</think><answer> 4 </answer>").answer
        '4'
    """
    _, outside = split_thought(text)
    tags = _tags(_ANSWER, outside)
    answers = [
        outside[opening.end : closing.start].strip()
        for opening, closing in pairwise(tags)
        if opening.opens and not closing.opens
    ]
    if not answers:
        return Extraction(None, Status.NO_ANSWER)
    if len(tags) > 2:
        return Extraction(None, Status.SEVERAL_ANSWERS)
    [answer] = answers
    return Extraction(answer, None) if answer else Extraction(None, Status.NO_ANSWER)
