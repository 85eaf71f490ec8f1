"""What separates a model's thought from its reply: one table, for every path of a completion.

A text's first marker decides to which row it belongs, so that a model that mentions another
family's marker changes nothing. A thought ends at the first closing marker, since models mention
the opening one while they think. What closes without having been opened was opened by the prompt,
and a thought that is never closed has no end: a truncated thought holds no answer.

OpenAI's harmony format (gpt-oss) names a channel before each message instead, and only the channel
`final` is the reply.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple


class Channel(NamedTuple):
    """How a family of models marks its thoughts, as text; with many, as special tokens too."""

    name: str
    opens: str
    closes: str


THINK = Channel("think", "<think>", "</think>")
"""Qwen3, DeepSeek, GLM, MiniMax and most others; it is matched in any letter case."""

CHANNELS = (
    THINK,  # the first, as the page's script expects, too
    Channel("exaone", "<thought>", "</thought>"),
    Channel("mistral", "[THINK]", "[/THINK]"),
    Channel("gemma", "<|channel>thought", "<channel|>"),
    Channel("seed", "<seed:think>", "</seed:think>"),
    Channel("cohere", "<|START_THINKING|>", "<|END_THINKING|>"),
    Channel("kimi", "◁think▷", "◁/think▷"),
    Channel("sky", "<|begin_of_thought|>", "<|end_of_thought|>"),
)


BOX_MARKERS = ("<|begin_of_box|>", "<|end_of_box|>")
"""GLM writes them around its final answer, in the tags or around them: they are no part of it."""


def parse_markers(text: str) -> Channel | None:
    """Read a pair of markers of one's own, such as `<a> </a>`; None for an empty text.

    Raises ValueError for anything but two different words.
    """
    if not text.strip():
        return None
    words = text.split()
    if len(words) != 2 or words[0] == words[1]:
        raise ValueError(
            f"must be what opens and what closes a thought, such as '<a> </a>', got {text!r}"
        )
    return Channel("own", *words)


HARMONY_CHANNEL = "<|channel|>"
HARMONY_MESSAGE = "<|message|>"
HARMONY_TURN = "<|start|>assistant"
HARMONY_TOKENS = (
    HARMONY_CHANNEL,
    HARMONY_MESSAGE,
    "<|start|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
)
HARMONY_END = re.compile(r"<\|(?:end|return|call|start)\|>")

SEARCHED_AT_ONCE = 2**16
"""Characters of a search, which holds the interpreter's lock."""


class Tag(NamedTuple):
    """The position of a marker in a text, and whether it opens or closes."""

    start: int
    end: int
    opens: bool


@functools.cache
def _pattern(opens: str, closes: str, *, any_case: bool) -> re.Pattern[str]:
    flags = re.ASCII | (re.IGNORECASE if any_case else 0)
    return re.compile(f"(?P<opens>{re.escape(opens)})|{re.escape(closes)}", flags)


def find_tags(
    text: str, opens: str, closes: str, *, any_case: bool = False
) -> list[Tag]:
    """Return the places of a pair of markers, in time linear in the length of the text."""
    pattern = _pattern(opens, closes, any_case=any_case)
    overlap = max(len(opens), len(closes)) - 1
    tags = []
    for begin in range(0, len(text), SEARCHED_AT_ONCE):
        end = begin + SEARCHED_AT_ONCE
        # A marker may begin before the end of the piece and end after it.
        for marker in pattern.finditer(text, begin, end + overlap):
            if marker.start() < end:
                is_opening = marker["opens"] is not None
                tags.append(Tag(marker.start(), marker.end(), opens=is_opening))
    return tags


def _first_place(text: str, channel: Channel) -> int:
    """Return where the first marker of a channel begins; -1 if there is none."""
    places = [text.find(channel.opens), text.find(channel.closes)]
    return min((place for place in places if place >= 0), default=-1)


def split_thought(text: str) -> tuple[str, str]:
    """Split a completion into its thought and the rest, both without markers, boxes included.

    Takes time linear in the length of the text.

    Example:
        >>> split_thought("hm</think>so: <answer>4</answer>")
        ('hm', 'so: <answer>4</answer>')
        >>> split_thought("[THINK]hm[/THINK]4"), split_thought("<|channel|>analysis<|message|>hm")
        (('hm', '4'), ('hm', ''))
    """
    think_tags = find_tags(text, THINK.opens, THINK.closes, any_case=True)
    first_place = think_tags[0].start if think_tags else len(text)
    harmony = text.find(HARMONY_CHANNEL)
    chosen = THINK
    for channel in CHANNELS[1:]:
        place = _first_place(text, channel)
        if 0 <= place < first_place:
            first_place = place
            chosen = channel
    if 0 <= harmony < first_place:
        text = in_think_tags(text)
        return _split_at(text, find_tags(text, THINK.opens, THINK.closes))
    if chosen is THINK:
        return _split_at(text, think_tags)
    return _split_at(text, find_tags(text, chosen.opens, chosen.closes))


def _split_at(text: str, tags: list[Tag]) -> tuple[str, str]:
    thought: list[str] = []
    outside: list[str] = []
    begin = 0
    thinking = bool(tags) and not tags[0].opens
    for tag in tags:
        (thought if thinking else outside).append(text[begin : tag.start])
        begin = tag.end
        thinking = tag.opens
    (thought if thinking else outside).append(text[begin:])
    # A newline between the pieces: what a thought separates must not join into a tag.
    rest = "\n".join(filter(None, outside))
    for marker in BOX_MARKERS:
        rest = rest.replace(marker, "")
    return "".join(thought), rest


def opened_thought(prompt: str) -> str:
    """Return the marker with which a prompt opens a thought, or "".

    It belongs before the completions of the prompt: without it, an answer in a thought that never
    ends would count.

    Example:
        >>> opened_thought("<|im_start|>assistant\\n<think>\\n")
        '<think>'
    """
    end = prompt.rstrip()
    for channel in CHANNELS:
        if end.endswith(channel.opens):
            return channel.opens
    of_harmony = re.search(r"<\|channel\|>\w+<\|message\|>$", end)
    return of_harmony[0] if of_harmony else ""


def in_think_tags(text: str) -> str:
    """Replace harmony's channels by think tags; return any other text unchanged.

    Example:
        >>> in_think_tags(in_channels("two and two", "<answer>4</answer>"))
        '<think>two and two</think><answer>4</answer>'
    """
    before, first_channel, channels = text.partition(HARMONY_CHANNEL)
    if not first_channel:
        return text
    parts = [before.removesuffix(HARMONY_TURN)]
    for message in channels.split(HARMONY_CHANNEL):
        header, _, content = message.partition(HARMONY_MESSAGE)
        body, *ended = HARMONY_END.split(content, maxsplit=1)
        if header.split()[:1] == ["final"]:
            parts.append(body)
            continue
        # A tag that the model mentions in its thought would end it.
        thought = re.sub("</?think>", "", body, flags=re.IGNORECASE)
        parts.append(THINK.opens + thought + (THINK.closes if ended else ""))
    return "".join(parts)


def in_channels(reasoning: str | None, content: str) -> str:
    """Join a thought and a reply in harmony's format, as the model wrote them.

    Example:
        >>> in_channels(None, "4")
        '<|channel|>final<|message|>4'
    """
    if content.startswith(HARMONY_CHANNEL):
        return content
    thought = ""
    reply = ""
    if reasoning:
        thought = f"{HARMONY_CHANNEL}analysis{HARMONY_MESSAGE}{reasoning}"
    if content or not reasoning:
        reply = f"{HARMONY_CHANNEL}final{HARMONY_MESSAGE}{content}"
    if thought and reply:
        return f"{thought}<|end|>{HARMONY_TURN}{reply}"
    return thought or reply


def join_reasoning(prompt: str, reasoning: str | None, content: str) -> str:
    """Return a completion as the model wrote it, from separate fields for thought and content.

    A thought without content stays open: the completion was truncated within it. A prompt that
    opens a thought says how the model closes it; else it is put in think tags.
    """
    if prompt.endswith(HARMONY_TURN):
        return in_channels(reasoning, content)
    if not reasoning:
        return content
    opened = opened_thought(prompt)
    channel = next(
        (candidate for candidate in CHANNELS if candidate.opens == opened), THINK
    )
    opening = "" if opened else channel.opens
    closing = f"{channel.closes}{content}" if content else ""
    return f"{opening}{reasoning}{closing}"
