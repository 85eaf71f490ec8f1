"""The tokenizer of a run: none at a chat endpoint, and with a chat template for a base model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from ..errors import ConfigurationError, did_you_mean
from ..inference.prompts import CHAT_TEMPLATES, build_messages, end_of_turn, render_prompt


def tokenizer_name(config: Any, server: Any) -> str:
    """Return the tokenizer's name or folder; empty if none is set and the server needs none."""
    default = "" if server.server_type == "openai" else server.model_name
    return str(config.tokenizer_name or default)


@contextmanager
def loaded_as(name: str, config: Any) -> Iterator[None]:
    """Let Atropos's constructor load the tokenizer of that name, which it does in any case.

    Without a name it loads a stand-in.

    Raises:
        ConfigurationError: the tokenizer can't be loaded.
    """
    try:
        with TemporaryDirectory() as folder:
            config.tokenizer_name = name or _stand_in(folder)
            yield
    except ConfigurationError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"tokenizer_name {name!r} (or the server's) can't be loaded: "
            f"{str(error).splitlines()[0]} Give a name on the Hugging Face hub or a folder."
        ) from error
    finally:
        config.tokenizer_name = name


def _stand_in(folder: str) -> str:
    """Save an empty tokenizer; return its folder."""
    empty = Tokenizer(WordLevel({"": 0}, unk_token=""))
    fast = PreTrainedTokenizerFast(tokenizer_object=empty)  # type: ignore[no-untyped-call]  # transformers ships no types
    fast.save_pretrained(folder)
    return folder


def chat_template_text(name_or_file: str) -> str:
    """Return the text of a built-in chat template or of a file; empty for the tokenizer's own.

    Raises:
        ConfigurationError: there is no such template.
    """
    if not name_or_file or name_or_file in CHAT_TEMPLATES:
        return CHAT_TEMPLATES.get(name_or_file, "")
    try:
        return Path(name_or_file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        hint = did_you_mean(name_or_file, CHAT_TEMPLATES, otherwise="name a file that exists")
        raise ConfigurationError(
            f"chat_template must be {', '.join(CHAT_TEMPLATES)} or a file with a Jinja template, "
            f"got {name_or_file!r} ({error}); {hint}"
        ) from error


def with_template(tokenizer: Any, config: Any, template: str, system_prompt: str) -> Any:
    """Return the tokenizer with its chat template or another one; None for a stand-in.

    Args:
        template: empty for the tokenizer's own.

    Raises:
        ConfigurationError: there is none, or it can't render a conversation.
    """
    if not config.tokenizer_name:
        return None
    tokenizer.chat_template = template or tokenizer.chat_template
    if not tokenizer.chat_template:
        raise ConfigurationError(
            f"the tokenizer {config.tokenizer_name} has no chat template (base models have none): "
            "set --env.chat_template to plain for the built-in one, or to a file with another"
        )
    try:
        end_of_turn(tokenizer)
        render_prompt(tokenizer, build_messages(system_prompt, "1 + 1?"))
    except (TemplateError, ValueError) as error:
        raise ConfigurationError(
            f"the chat template can't render a question with its system prompt ({error}): set "
            "--env.chat_template to another one, or --env.system_prompt '' where it takes none"
        ) from error
    return tokenizer
