"""What is found out about the inference servers before the first rollout.

Each server gets small requests of the very kind that rollouts make. `findings` says what their
replies mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from ..errors import ConfigurationError
from ..util.outages import UnreachableError
from .errors import WAYS_OUT, heals
from .requests import Ask, Dialect, ReplyError, SamplingParams, read
from .servers import TokenClient

logger = logging.getLogger(__name__)

_NO_SUCH_PATH = (404, 405)
_NOT_THIS_WAY = (400, *_NO_SUCH_PATH, 422)
"""Refusals after which another dialect is tried."""

_REPLY_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
_LINE_EVERY = 10


async def agree(servers: Sequence[TokenClient], needs: Needs, seconds: float) -> bool:
    """Examine all servers and set the dialect that each is spoken to in.

    A server that is down takes the first other one's dialect: it may come back.

    Returns:
        Whether token ids and logprobs come from the servers.

    Raises:
        ConfigurationError: a server refuses, or can't give what the run needs.
        UnreachableError: none answered within that time.
    """
    results = await _examine_until_one_answers(servers, needs, seconds)
    found = [result for result in results if isinstance(result, Found)]
    for one in found:
        if said := objection(one, needs):
            raise ConfigurationError(said)
        logger.info("The inference server at %s %s", one.url, description(one))
        if said := doubt(one, needs):
            logger.warning("%s", said)
    dialects = [one.dialect for one in found if one.dialect is not None]
    if len(dialects) < len(found):
        return False
    for server, result in zip(servers, results, strict=True):
        spoken = result.dialect if isinstance(result, Found) else None
        server.dialect = spoken or dialects[0]
    return True


async def _examine_until_one_answers(
    servers: Sequence[TokenClient], needs: Needs, seconds: float
) -> list[Found | str]:
    """What each server has shown, or why it has not answered."""
    loop = asyncio.get_running_loop()
    give_up, attempt = loop.time() + seconds, 0
    while True:
        results = await asyncio.gather(*(_examine_or_say(server, needs) for server in servers))
        failures = [result for result in results if isinstance(result, str)]
        said = f"no answer of {'; '.join(failures)}"
        if len(failures) < len(results):
            if failures:
                logger.warning("Starting without them: %s", said)
            return results
        if loop.time() >= give_up:
            raise UnreachableError(f"{said}: look at the server's own log")
        if attempt % _LINE_EVERY == 0:
            left = give_up - loop.time()
            logger.warning("%s; trying for another %.0f s", said.capitalize(), left)
        attempt += 1
        await asyncio.sleep(_PAUSE_SECONDS)


async def _examine_or_say(server: TokenClient, needs: Needs) -> Found | str:
    """What the server has shown, or why it has not, where that may heal."""
    url = server.config.base_url
    try:
        return await asyncio.wait_for(examine(server, needs), _REPLY_SECONDS)
    except asyncio.TimeoutError:
        return f"the inference server at {url} (silent for {_REPLY_SECONDS:g} s)"
    except aiohttp.ClientResponseError as error:
        return f"the inference server at {url} (status {error.status}: {error.message})"
    except (aiohttp.ClientError, OSError) as error:
        return f"the inference server at {url} ({type(error).__name__}: {error})"


async def examine(server: TokenClient, needs: Needs) -> Found:
    """Ask a server and look at its replies.

    Raises:
        ConfigurationError: the server refuses, or its replies are of no use.
        aiohttp.ClientError, OSError: it may heal.
    """
    url = str(server.config.base_url)
    ask = replace(needs.ask, model=server.config.model_name)
    try:
        dialect, reply = await _first_dialect(server, ask)
        found = Found(url=url, dialect=dialect, context=await _context(server))
        if dialect is None:
            return replace(found, prompt_tokens=_prompt_tokens(reply))
        text_ids = await server.token_ids(needs.text)
        if text_ids is not None:
            found = replace(found, text_ids=tuple(text_ids))
            if not same_text(text_ids, needs.text_ids):
                return found
        read(dialect, reply, ask)
        return replace(found, raw=await _are_raw(server, dialect, reply, ask))
    except aiohttp.ClientResponseError as error:
        if heals(error):
            raise
        raise ConfigurationError(refusal(url, error.status, error.message)) from error
    except ReplyError as error:
        raise ConfigurationError(f"the inference server at {url} is of no use: {error}") from error


async def _first_dialect(server: TokenClient, ask: Ask) -> tuple[Dialect | None, Any]:
    """The first dialect that gets token ids, and its reply; no dialect where there is text alone.

    Raises:
        aiohttp.ClientResponseError: every dialect was refused; this refusal says most.
        ReplyError: there are no token ids, and they are needed.
    """
    refusals: list[aiohttp.ClientResponseError] = []
    reply = None
    for dialect in server.dialects:
        try:
            reply = await server.ask(dialect, ask)
        except aiohttp.ClientResponseError as error:
            if error.status not in _NOT_THIS_WAY:
                raise
            refusals.append(error)
        else:
            if _gives_tokens(dialect, reply):
                return dialect, reply
    if len(refusals) == len(server.dialects):
        telling = (error for error in reversed(refusals) if error.status not in _NO_SUCH_PATH)
        raise next(telling, refusals[0])
    if server.needs_tokens:
        raise ReplyError(
            "it returns no token ids; take a newer version of it, or --openai.server_type openai"
        )
    return None, reply


def _prompt_tokens(reply: Any) -> int | None:
    """How many tokens the server counts in the prompt; None where it doesn't tell."""
    try:
        return int(reply["usage"]["prompt_tokens"])
    except (KeyError, TypeError, ValueError):
        return None


def _gives_tokens(dialect: Dialect, reply: Any) -> bool:
    try:
        return dialect.gives_tokens(reply)
    except (AttributeError, IndexError, KeyError, TypeError):
        return False


async def _are_raw(server: TokenClient, dialect: Dialect, reply: Any, ask: Ask) -> bool | None:
    """The same request at temperature 2 shows it; None where no candidates come back."""
    warmer = await server.ask(dialect, replace(ask, temperature=2.0))
    try:
        return are_raw(dialect.best(reply), dialect.best(warmer))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


async def _context(server: TokenClient) -> int | None:
    """The context of our model, as vLLM and SGLang list it; None where a server doesn't tell."""
    try:
        models = (await server.request("GET", "/v1/models"))["data"]
        [length] = [m["max_model_len"] for m in models if m["id"] == server.config.model_name]
    except (aiohttp.ClientResponseError, KeyError, ReplyError, TypeError, ValueError):
        return None
    return length if isinstance(length, int) else None


_NOISE = 0.25
"""By what share of it a logprob differs between two equal requests at the most (bfloat16)."""

_CERTAIN = -1e-5
"""A logprob that is 0 but for rounding."""

_SHOWN_IDS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What a run needs of its servers.

    Attributes:
        ask: for two completions of one token at temperature 1, with the most probable one.
        text, text_ids: any text, and our token ids of it.
        max_length: tokens of prompt and completion.
        sampling: None where nothing will train on the completions.
    """

    ask: Ask
    text: str
    text_ids: tuple[int, ...]
    max_length: int
    sampling: SamplingParams | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What one server has shown.

    Attributes:
        dialect: None where the server gives text alone.
        text_ids: its token ids of the text; None where it doesn't tell.
        context: tokens of prompt and completion it takes; None where it doesn't tell.
        prompt_tokens: how many it counts in the prompt of the request; None where it doesn't tell.
        raw: whether logprobs are those before temperature and top_p; None where that can't be seen.
    """

    url: str
    dialect: Dialect | None
    text_ids: tuple[int, ...] | None = None
    context: int | None = None
    prompt_tokens: int | None = None
    raw: bool | None = None


def objection(found: Found, needs: Needs) -> str | None:
    """Why no run can begin with this server, and the way out; None where one can."""
    at, sampling = f"the inference server at {found.url}", needs.sampling
    if found.text_ids is not None and not same_text(found.text_ids, needs.text_ids):
        return (
            f"{at} has another tokenizer: its token ids of a text begin {_shown(found.text_ids)}, "
            f"ours {_shown(needs.text_ids)}; set --env.tokenizer_name to its model's tokenizer"
        )
    if found.context is not None and found.context < needs.max_length:
        return (
            f"{at} takes {found.context} tokens and max_token_length is {needs.max_length}: lower "
            "--env.max_token_length, or start the server with a longer context"
        )
    if found.dialect and found.raw and sampling and {sampling.temperature, sampling.top_p} != {1}:
        return (
            f"{at} gives raw logprobs, those before temperature and top_p, so that importance "
            f"ratios at temperature {sampling.temperature:g} and top_p {sampling.top_p:g} would be "
            f"wrong: {found.dialect.processed_by}, or set --env.temperature 1 --env.top_p 1"
        )
    return None


def doubt(found: Found, needs: Needs) -> str | None:
    """Why training may see other tokens than the model did; None where nothing speaks for it.

    No objection, since some endpoints count in tokens that aren't their model's.
    """
    counted, ours = found.prompt_tokens, len(needs.ask.prompt)
    if found.dialect or needs.sampling is None or counted in (None, ours):
        return None
    return (
        f"The inference server at {found.url} counts {counted} tokens in a prompt that has {ours} "
        "by tokenizer_name and its chat template: unless it is its way of counting, the trainer "
        "would see other tokens than the model; set --env.tokenizer_name to its model's tokenizer"
    )


def description(found: Found) -> str:
    """What the server gives, in words, for the log."""
    if found.dialect is None:
        return "gives text alone: tokens are encoded from it, and there are no logprobs"
    logprobs = {
        True: "raw (before temperature and top_p)",
        False: "of the distribution that is sampled",
        None: "of a kind that could not be found out",
    }
    return f"gives token ids through {found.dialect.name}; its logprobs are {logprobs[found.raw]}"


def refusal(url: str, status: int, words: str) -> str:
    """One sentence with the status, the server's own words and the way out."""
    otherwise = "check --openai.server_type and --openai.model_name"
    said = words.rstrip(".")
    return (
        f"the inference server at {url} refuses requests with status {status} ({said}): "
        f"{WAYS_OUT.get(status, otherwise)}"
    )


def same_text(theirs: Sequence[int], ours: Sequence[int]) -> bool:
    """Whether the ids are ours, perhaps after a token that begins a text."""
    return list(ours) in (list(theirs), list(theirs[1:]))


def are_raw(at_one: float, at_two: float) -> bool | None:
    """Whether the most probable token's logprobs at temperatures 1 and 2 are the same number.

    None where it is certain: they would be equal either way. A temperature of 2 multiplies any
    other token's: even the 0.01 of an all but certain one, since all others gain.

    Example:
        >>> are_raw(-0.7, -0.7), are_raw(-0.7, -2.9), are_raw(-0.01, -0.01), are_raw(0.0, 0.0)
        (True, False, True, None)
    """
    if min(at_one, at_two) > _CERTAIN:
        return None
    return abs(at_one - at_two) < _NOISE * abs(at_one)


def _shown(ids: Sequence[int]) -> str:
    return f"{list(ids[:_SHOWN_IDS])} of {len(ids)}"
