"""The answer of a completion, and the same without formatting.

By default, a completion must have exactly one `<answer>…</answer>` outside the thought, which
`channels` tells from the reply. In the format `boxed`, the last `\\boxed{…}` there is the answer.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Literal, NamedTuple

from ..records import Fault, FaultKind, Status
from .channels import Tag, find_tags, split_thought

_PAIRED = re.compile(r"\*{1,3}|__|\$\$?")
_OPERATOR = re.compile(r"(?<=[\w)])\*{1,2}(?=[\w(-])")
"""What isn't the end of bold or italic text, as in `**x**2 + 1**`."""
_FENCE = re.compile(r"```(?:[\w+-]*\n)?")
_LEAD = re.compile(
    r"\*\*WORDS\s*:\s*\*\*|\*\*WORDS\*\*\s*:|WORDS\s*:|WORDS\s+is\b\s*:?".replace(
        "WORDS", r"(?:the\s+)?(?:final\s+)?(?:answer|result)"
    ),
    re.IGNORECASE,
)
"""What introduces an answer, such as `The final answer is:`."""
_BULLET = re.compile(r"[•‣◦*]\s+")
_BRACED = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\{")

_ANSWER = ("<answer>", "</answer>")

_BRACE = re.compile(r"\\\\?boxed\s*\{|\\.|\{|\}", re.DOTALL)
"""A box that opens, what is escaped, or a brace: `\\{` groups nothing in LaTeX.

Where text was escaped, a box has two backslashes. Every alternative begins with a character, which
lets a search skip prose fifty times as fast as it does with named groups.
"""

AnswerFormat = Literal["tags", "boxed", "tags-or-boxed"]
"""Where the answer of a completion stands; in `tags-or-boxed`, boxes count unless a tag opens."""


class Extraction(NamedTuple):
    """The answer, or None with the status and the detail that say why."""

    answer: str | None
    failure: Status | None = None
    detail: str = ""


def shortest_reply(answer: str, answer_format: AnswerFormat = "tags") -> str:
    r"""Return the shortest completion that gives an answer.

    Example:
        >>> shortest_reply("4"), shortest_reply("4", "boxed")
        ('<answer>4</answer>', '\\boxed{4}')
    """
    if answer_format == "boxed":
        return rf"\boxed{{{answer}}}"
    return f"<answer>{answer}</answer>"


def as_completion(answer: str, answer_format: AnswerFormat = "tags") -> str:
    """Return a completion for a bare answer, without its thought; it may be a completion already.

    Example:
        >>> as_completion("<think>2 + 2</think>4")
        '<answer>4</answer>'
    """
    _, outside = split_thought(answer)
    has_tag = answer_format != "boxed" and "<answer>" in answer.lower()
    has_box = answer_format != "tags" and _has_box(outside)
    if has_tag or has_box:
        return answer
    return shortest_reply(outside, answer_format)


def extract_answer(text: str, answer_format: AnswerFormat = "tags") -> Extraction:
    r"""Return the one answer of a completion.

    Tags count in any letter case. A tag beside a complete answer counts as several answers:
    another one begins there. Of boxes, the last one counts.

    Example:
        >>> extract_answer("<think>easy</think><answer> 4 </answer>").answer
        '4'
        >>> extract_answer(r"It is $\boxed{3}$, no, $\boxed{\frac{1}{2}}$.", "boxed").answer
        '\\frac{1}{2}'
    """
    _, outside = split_thought(text)
    tags = find_tags(outside, *_ANSWER, any_case=True)
    if answer_format == "tags" or (
        answer_format == "tags-or-boxed" and any(tag.opens for tag in tags)
    ):
        return _between_tags(text, outside, tags)
    return _in_last_box(text, outside)


def _between_tags(text: str, outside: str, tags: Sequence[Tag]) -> Extraction:
    """Return the one answer between tags of a text, whose part outside of thoughts is known."""
    answers = [
        outside[opening.end : closing.start].strip()
        for opening, closing in pairwise(tags)
        if opening.opens and not closing.opens
    ]
    if not answers:
        return Extraction(None, Status.NO_ANSWER, _why_none(text, outside, tags))
    if len(tags) > 2:
        detail = f"{len(tags)} answer tags outside the thought instead of one <answer>…</answer>"
        return Extraction(None, Status.SEVERAL_ANSWERS, detail)
    [answer] = answers
    if not answer:
        return Extraction(None, Status.NO_ANSWER, "nothing between the answer tags")
    return Extraction(answer)


def _in_last_box(text: str, outside: str) -> Extraction:
    """Return the answer in the last box of a text, whose part outside of thoughts is known."""
    content = last_box(outside)
    if content is None:
        return Extraction(None, Status.NO_ANSWER, _why_no_box(text, outside))
    answer = content.strip()
    if not answer:
        return Extraction(None, Status.NO_ANSWER, "nothing in the last box")
    # Verifiers and guards may rely on it: no answer has tags.
    if find_tags(answer, *_ANSWER, any_case=True):
        return Extraction(None, Status.NO_ANSWER, "an answer tag in the last box")
    return Extraction(answer)


def has_untagged_box(text: str) -> bool:
    r"""Return whether a completion that has no answer in tags has one in a box.

    Example:
        >>> has_untagged_box(r"It is \boxed{4}."), has_untagged_box(r"<answer>\boxed{4}")
        (True, False)
    """
    if "\\boxed" not in text:
        return False
    return extract_answer(text, "tags-or-boxed").answer is not None


def last_box(text: str) -> str | None:
    r"""Return what the last `\boxed{…}` holds; None without one, or if it isn't closed.

    Of boxes in each other, the outermost counts. Takes time linear in the length of the text.

    Example:
        >>> last_box(r"\boxed{3} or \boxed {\text{four}}"), last_box(r"\boxed{3} or \boxed{4")
        ('\\text{four}', None)
    """
    content: slice | None = None
    # Where the content of each open box begins; None of other braces.
    open_braces: list[int | None] = []
    for brace in _BRACE.finditer(text):
        if _opens_box(brace):
            open_braces.append(brace.end())
            content = None  # this box is the last one now
        elif brace[0] == "{":
            open_braces.append(None)
        elif brace[0] == "}" and open_braces:
            begin = open_braces.pop()
            if begin is not None:
                content = slice(begin, brace.start())
    return None if content is None else text[content]


def label_fault(
    label: str | None, answer_format: AnswerFormat = "tags"
) -> Fault | None:
    """Return why no completion can give a label as its answer; None if one can.

    Blanks around a label are left to its verifier.

    Example:
        >>> label_fault("a</think>b").kind.value, label_fault("12 ")
        ('unanswerable', None)
    """
    if label is None:
        return None
    reply = shortest_reply(label, answer_format)
    extraction = extract_answer(reply, answer_format)
    if extraction.answer == label.strip():
        return None
    why = (
        extraction.detail or f"a part is read as its answer, {extraction.answer!r:.40}"
    )
    return Fault(FaultKind.UNANSWERABLE, f"the label can't be given: {why}")


def _why_none(text: str, outside: str, tags: Sequence[Tag]) -> str:
    """Return why a text has no complete answer outside its thought."""
    if not text.strip():
        return "the completion is empty"
    if tags:
        return "an answer tag without its pair"
    if not find_tags(text, *_ANSWER, any_case=True):
        return "no <answer>…</answer>"
    return "the answer tags are in the thought" + (
        "" if outside else ", which never ends"
    )


def _why_no_box(text: str, outside: str) -> str:
    """Return why a text has no complete box outside its thought."""
    if not text.strip():
        return "the completion is empty"
    if _has_box(outside):
        return "the last box is never closed"
    if not _has_box(text):
        return r"no \boxed{…}"
    return "the boxes are in the thought" + ("" if outside else ", which never ends")


def _has_box(text: str) -> bool:
    """Return whether a box opens in a text."""
    return any(map(_opens_box, _BRACE.finditer(text)))


def _opens_box(brace: re.Match[str]) -> bool:
    """Return whether a match is a box: the others have one character or two."""
    return brace.end() - brace.start() > 2


def strip_formatting(answer: str) -> str:
    r"""Remove the formatting around an answer; never return an empty one.

    Removes one mark after the other until nothing changes, in time linear in the length.

    Example:
        >>> strip_formatting(r"The answer is **$\boxed{42}$**.")
        '42'
        >>> strip_formatting("**a** and **b**")
        '**a** and **b**'
    """
    innermost = deque(_spans(answer), maxlen=1)
    return answer[slice(*innermost[0])] if innermost else answer


_MOST_MARKS = 8
"""Outermost marks that are taken off one by one."""


def less_formatted(answer: str) -> list[str]:
    """Return the answer without its outermost mark, without the next one too, and so on.

    The last one is `strip_formatting`'s; of many marks, some of those in between are left out.

    Example:
        >>> less_formatted("**Yes.**")
        ['Yes.', 'Yes']
    """
    texts = [answer[slice(*span)] for span in islice(_spans(answer), _MOST_MARKS)]
    if len(texts) < _MOST_MARKS:
        return texts
    return [*texts, strip_formatting(answer)]


def _spans(answer: str) -> Iterator[tuple[int, int]]:
    """Yield the span within the outermost mark, within the next one, and so on."""
    closings = _closing_braces(answer) if _BRACED.search(answer) else {}
    span = _trimmed(answer, 0, len(answer))
    while (inner := _inside(answer, *span, closings)) != span:
        yield (span := inner)


def _inside(
    text: str,
    begin: int,
    end: int,
    closings: dict[int, int],
) -> tuple[int, int]:
    """Return the span within its outermost mark, or the span itself if that leaves nothing."""
    inner = begin, end
    lead = _LEAD.match(text, begin, end) or _BULLET.match(text, begin, end)
    if lead:
        inner = lead.end(), end
    elif fence := _FENCE.match(text, begin, end):
        inner = _between(text, begin, end, fence[0], "```")
    elif mark := _PAIRED.match(text, begin, end):
        inner = _between(text, begin, end, mark[0], mark[0])
    elif text.startswith(("\\(", "\\["), begin, end):
        closing = "\\)" if text[begin + 1] == "(" else "\\]"
        inner = _between(text, begin, end, text[begin : begin + 2], closing)
    elif (braced := _BRACED.match(text, begin, end)) and closings.get(
        braced.end() - 1
    ) == end - 1:
        inner = braced.end(), end - 1
    # A full stop after a word. (So none follows another, which keeps it linear.)
    if inner == (begin, end) and re.fullmatch(
        r"[^\s.]\.", text[max(begin, end - 2) : end]
    ):
        inner = begin, end - 1
    inner = _trimmed(text, *inner)
    return inner if inner[0] < inner[1] else (begin, end)


def _between(
    text: str,
    begin: int,
    end: int,
    opening: str,
    closing: str,
) -> tuple[int, int]:
    """Return the span between two marks if the first closing one ends the text."""
    start = begin + len(opening)
    stop = text.find(closing, start, end)
    while operator := _OPERATOR.match(text, stop, end):
        stop = text.find(closing, operator.end(), end)
    return (start, stop) if stop == end - len(closing) else (begin, end)


def _trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end


def _closing_braces(text: str) -> dict[int, int]:
    """Return where each opening brace is closed."""
    closings: dict[int, int] = {}
    open_braces: list[int] = []
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            open_braces.append(brace.start())
        elif open_braces:
            closings[open_braces.pop()] = brace.start()
    return closings
