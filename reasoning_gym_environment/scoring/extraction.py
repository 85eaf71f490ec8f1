"""The single-answer rule: exactly one `<answer>…</answer>` outside the thought.

The thought is `<think>…</think>`; everything up to a first `</think>` that nothing opened
(chat templates that open it in the prompt); and everything after a `<think>` that is never
closed (a truncated thought holds no answer).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..records import Status

_TAG = re.compile(r"<(/?)(think|answer)>", re.IGNORECASE | re.ASCII)


class Extraction(NamedTuple):
    """The answer, or None and the status that says why there is none."""

    answer: str | None
    failure: Status | None


def split_thought(text: str) -> tuple[str, str]:
    """Split a completion into its thought and the rest, both without think tags.

    A thought ends at the first closing tag: models mention the opening one while they think.
    Linear in the length of the text.

    Example:
        >>> split_thought("hm</think>so: <answer>4</answer>")
        ('hm', 'so: <answer>4</answer>')
    """
    tags = [tag for tag in _TAG.finditer(text) if tag[2].lower() == "think"]
    thought: list[str] = []
    rest: list[str] = []
    position, thinking = 0, bool(tags and tags[0][1])
    for tag in tags:
        (thought if thinking else rest).append(text[position : tag.start()])
        position, thinking = tag.end(), not tag[1]
    (thought if thinking else rest).append(text[position:])
    # A newline between the pieces: what a thought parts must not join into a tag.
    return "".join(thought), "\n".join(filter(None, rest))


def extract_answer(text: str) -> Extraction:
    """Find the one answer of a completion.

    Tags count in any case. A tag beside a complete answer makes several: another answer was
    begun there.

    Example:
        >>> extract_answer("<think>easy</think><answer> 4 </answer>").answer
        '4'
    """
    _, rest = split_thought(text)
    tags = [tag for tag in _TAG.finditer(rest) if tag[2].lower() == "answer"]
    order = "".join(tag[1] or "<" for tag in tags)
    if "</" not in order:
        return Extraction(None, Status.NO_ANSWER)
    if order != "</":
        return Extraction(None, Status.SEVERAL_ANSWERS)
    answer = rest[tags[0].end() : tags[1].start()].strip()
    return Extraction(answer, None) if answer else Extraction(None, Status.NO_ANSWER)
