"""What servers are asked before anything else starts: their key, models and context."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from ..errors import ConfigurationError
from ..util.command_line import KEY_VARIABLE
from ..util.concurrency import gather_or_cancel
from ..util.outages import UnreachableError
from .errors import MODEL_HINT, ReplyError, describe, hint_for, refusal
from .servers import ServerClient

logger = logging.getLogger(__name__)

EARLY_SECONDS = 3.0
"""How long the first answers may take. The negotiation waits for a server that takes longer."""

SHOWN_MODELS = 10
"""Names of models in a message, of the hundreds that some endpoints have."""


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


async def require_served(configs: Sequence[Any], *, length_limit: int) -> None:
    """Check each server's key, model and context; one that does not answer at once is left out.

    Args:
        length_limit: tokens of prompt and completion.

    Raises:
        ConfigurationError: the server wants another key, has another model or a shorter context,
            or a named variable is unset.
    """
    servers = [ServerClient(config) for config in configs if config.base_url]
    try:
        await gather_or_cancel(_require(server, length_limit) for server in servers)
    finally:
        await gather_or_cancel(server.close() for server in servers)


async def _require(server: ServerClient, length_limit: int) -> None:
    try:
        await asyncio.wait_for(_check(server, length_limit), EARLY_SECONDS)
    except (aiohttp.ClientConnectionError, asyncio.TimeoutError, OSError) as error:
        # The negotiation waits for it.
        logger.warning(
            "The inference server at %s does not answer yet: %s",
            server.config.base_url,
            describe(error),
        )
    except (aiohttp.ClientError, ReplyError, UnreachableError):
        return  # the negotiation says what is wrong with it


async def _check(server: ServerClient, length_limit: int) -> None:
    can_chat = await _require_key(server)
    models = await listed_models(server)
    name = server.config.model_name
    if models and name not in models and can_chat:
        await _require_model(server, models)
    why = context_blocker(server.config.base_url, models.get(name), length_limit)
    if why:
        raise ConfigurationError(why)


async def _require_key(server: ServerClient) -> bool:
    """Return whether a server has chat completions, as an empty request to them shows.

    Raises ConfigurationError for a key that is missing or wrong.
    """
    try:
        await server.json("POST", "/v1/chat/completions", {})
    except aiohttp.ClientResponseError as error:
        if error.status != HTTPStatus.UNAUTHORIZED:
            # Some look for the model first, which the request does not name.
            return error.status != HTTPStatus.NOT_FOUND or hint_for(error) == MODEL_HINT
        if server.has_key:
            raise refusal(server.config.base_url, error) from None
        # Only this type reads the variable.
        is_chat = server.is_chat
        name = KEY_VARIABLE if is_chat else "--openai.api_key_var"
        raise ConfigurationError(
            f"the inference server at {server.config.base_url} wants an API key (401): set "
            f"{name} or --openai.api_key to one that it accepts"
        ) from None
    return True


async def _require_model(server: ServerClient, models: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if a server refuses a model that it does not list.

    Some endpoints have more names than they list.
    """
    name = server.config.model_name
    body = {
        "model": name,
        "messages": [{"role": "user", "content": "1"}],
        "max_tokens": 1,
    }
    try:
        await server.json("POST", "/v1/chat/completions", body)
    except aiohttp.ClientResponseError as error:
        is_of_model = error.status == HTTPStatus.NOT_FOUND or (
            error.status in (400, 422) and name in error.message
        )
        if not is_of_model:
            raise
        raise ConfigurationError(
            f"the inference server at {server.config.base_url} has no model {name!r} (status "
            f"{error.status}: {error.message.rstrip('.')}): set "
            f"--openai.model_name to {shown_models(name, models)}"
        ) from None


async def listed_models(server: ServerClient) -> dict[str, int | None]:
    """Return the models that a server lists, each with its context as far as that is known."""
    try:
        listed = msgspec.convert(await server.json("GET", "/v1/models"), _Models)
    except (aiohttp.ClientResponseError, ReplyError, msgspec.ValidationError):
        return {}
    return {model.id: model.max_model_len for model in listed.data}


def shown_models(name: str, models: Mapping[str, Any]) -> str:
    """Return the names of models for a message, only those close to a name where there are many.

    Example:
        >>> shown_models("quen", {"qwen": None, "llama": None})
        'one that it lists: qwen, llama'
    """
    shown = list(models)
    if len(shown) > SHOWN_MODELS:
        shown = get_close_matches(name, shown, SHOWN_MODELS) or shown[:SHOWN_MODELS]
    more = len(models) - len(shown)
    rest = f" and {more} more at /v1/models" if more else ""
    return f"one that it lists: {', '.join(shown)}{rest}"


def context_blocker(url: str, context: int | None, length_limit: int) -> str | None:
    """Return why a run can't start with a server's context; None if it can, or none is known."""
    if context is None or context >= length_limit:
        return None
    return (
        f"the inference server at {url} takes {context} tokens and max_token_length is "
        f"{length_limit}: lower --env.max_token_length, or start the server with a longer context"
    )
