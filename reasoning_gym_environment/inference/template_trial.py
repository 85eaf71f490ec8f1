"""The trial of a chat template: it renders a prompt once, before a run does so for each problem."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from jinja2 import TemplateError

from ..errors import ConfigurationError
from ..util.values import describe_error, replace_surrogates
from .prompts import Tokenizer, build_messages, end_of_turn, render_prompt

TRIAL_SECONDS = 5.0
"""Of processor time for two conversations; real templates take milliseconds."""

COMPILED = ("<template>", "<unknown>")
"""File names that Jinja gives templates in tracebacks."""


def require_working_template(
    tokenizer: Tokenizer, system_prompt: str, *, seconds: float = TRIAL_SECONDS
) -> None:
    """Render a question with the tokenizer's chat template.

    Raises:
        ConfigurationError: the template fails, takes too long, or writes what no tokenizer reads.
    """
    try:
        with _processor_deadline(seconds):
            text = render_prompt(tokenizer, build_messages(system_prompt, "1 + 1?"))
            if replace_surrogates(text)[1]:
                raise ValueError("it writes lone surrogates, which no tokenizer reads")
            end_of_turn(tokenizer)
    except Exception as error:
        raise ConfigurationError(
            f"the chat template can't render a question with its system prompt"
            f"{_line_of(error)} ({_reason(error)}): set --env.chat_template to another one, or "
            "--env.system_prompt '' where it takes none"
        ) from error


@contextmanager
def _processor_deadline(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block's Python code once this thread has worked for so long.

    A thread can't be stopped, and a signal reaches the main thread alone; tracing works in any.
    """
    end = time.thread_time() + seconds

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if time.thread_time() > end:
            raise TimeoutError(f"it takes more than {seconds:g} s")
        # Lines are traced in templates alone: a loop may call nothing.
        return trace if frame.f_code.co_filename in COMPILED else None

    tracing_before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(tracing_before)


def _line_of(error: Exception) -> str:
    """Return in which line of the template an error was raised; empty if none is known."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in COMPILED:
            return f", in line {frame.lineno}"
    return ""


def _reason(error: Exception) -> str:
    # The text of other errors needs their name.
    is_sentence = isinstance(error, TemplateError | ValueError | TimeoutError)
    return str(error) if is_sentence else describe_error(error)
