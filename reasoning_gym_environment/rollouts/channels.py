"""Thoughts in channels (OpenAI's harmony format, gpt-oss), where other templates use think tags.

Such a model writes `<|channel|>analysis<|message|>thought<|end|><|start|>assistant<|channel|>final
<|message|>reply<|return|>`. Training sees just that; all else reads it with think tags.
"""

from __future__ import annotations

import re

TURN = "<|start|>assistant"
CHANNEL = "<|channel|>"
_MESSAGE = "<|message|>"
_END = re.compile(r"<\|(?:end|return|call|start)\|>")


def in_channels(reasoning: str | None, content: str) -> str:
    """Write a thought and a reply as the model did, where the server has taken them apart.

    Example:
        >>> in_channels(None, "4")
        '<|channel|>final<|message|>4'
    """
    if content.startswith(CHANNEL):
        return content
    thought = f"{CHANNEL}analysis{_MESSAGE}{reasoning}" if reasoning else ""
    reply = f"{CHANNEL}final{_MESSAGE}{content}" if content or not reasoning else ""
    return f"{thought}<|end|>{TURN}{reply}" if thought and reply else thought or reply


def in_tags(text: str) -> str:
    """Write a completion in channels with think tags; any other text stays as it is.

    Linear in the length of the text.

    Example:
        >>> in_tags(in_channels("two and two", "<answer>4</answer>"))
        '<think>two and two</think><answer>4</answer>'
    """
    if not text.startswith(CHANNEL):
        return text
    return "".join(_message_in_tags(message) for message in text.split(CHANNEL)[1:])


def _message_in_tags(message: str) -> str:
    header, _, rest = message.partition(_MESSAGE)
    body, *ended = _END.split(rest, maxsplit=1)
    if header.split()[:1] == ["final"]:
        return body
    return f"<think>{body}</think>" if ended else f"<think>{body}"
