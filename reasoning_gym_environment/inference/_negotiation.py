"""Negotiation with the inference servers before the first rollout.

Each server gets small requests of the kind that rollouts send. Its replies show its capabilities,
which are compared with what the run requires.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import aiohttp

from ..errors import ConfigurationError
from ..util.log_throttle import LOG_PAUSES, THROTTLE, Reminders
from ..util.outages import UnreachableError, logging_wait
from ..util.retries import Retry, RetryPolicy
from .dialects import (
    ChatText,
    Dialect,
    GenerationRequest,
    SamplingParams,
    TextSample,
    parse,
)
from .early_check import context_blocker, listed_models, shown_models
from .errors import (
    MODEL_HINT,
    SEPARATE_THOUGHT,
    ReplyError,
    describe,
    hint_for,
    is_transient,
    refusal,
)
from .servers import PROBE_SECONDS, ServerClient

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)

PROBE_TEXT = "Sort 3, 14 and 159: x = [3, 14, 159]\n\té 日本 🎉 <think></think>"
"""A text that tokenizers encode differently: digits, white space, accents, emoji, tags."""

_REFUSED_PARAMETERS = (400, 422)
_UNEXPECTED_SHAPE = (AttributeError, LookupError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirements:
    """What a run requires of its servers.

    Attributes:
        request: for two completions of one token at temperature 1, with one candidate.
        text_ids: our token ids of `PROBE_TEXT`; None without a tokenizer.
        length_limit: tokens of prompt and completion.
        sampling: None if nothing will train on the completions.
        evaluation: None if there are no evaluations.
        serves: whether completions go to a trainer at once.
    """

    request: GenerationRequest
    text_ids: tuple[int, ...] | None
    length_limit: int
    sampling: SamplingParams | None
    evaluation: SamplingParams | None = None
    serves: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """Capabilities of one server; None for what it does not report.

    Attributes:
        dialect: a ChatText if the server returns only text.
        text_ids: its token ids of `PROBE_TEXT`.
        context: the most tokens of prompt and completion.
        prompt_tokens: the server's token count of the request's prompt.
        raw: whether logprobs are those before temperature and top_p.
        samples: the texts that were requested.
    """

    url: str
    dialect: Dialect | ChatText
    text_ids: tuple[int, ...] | None = None
    context: int | None = None
    prompt_tokens: int | None = None
    raw: bool | None = None
    samples: Sequence[TextSample] = ()

    def __str__(self) -> str:
        form = self.dialect
        if not isinstance(form, ChatText):
            logprobs = {
                True: "raw (before temperature and top_p)",
                False: "of the sampled distribution",
                None: "of a kind that could not be determined",
            }[self.raw]
            return f"returns token ids through {form.name}; its logprobs are {logprobs}"
        parts = ["returns only text: no token ids and no logprobs"]
        if form.limit != "max_tokens":
            parts.append(f"{form.limit} takes the place of max_tokens")
        if "n" in form.left_out:
            parts.append(
                "each completion is a request of its own, since it takes no n above 1"
            )
        names = sorted(form.left_out - {"n"})
        if names:
            parts.append(f"it refuses {' and '.join(names)}")
        return "; ".join(parts)


async def negotiate(
    servers: Sequence[ServerClient], requirements: Requirements, seconds: float
) -> None:
    """Probe all servers and set each one's dialect.

    A server that is down may come back, so it gets its type's. If one server returns only text,
    text is requested of all. Raises ConfigurationError if one doesn't meet the requirements, and
    UnreachableError if none answers in time.
    """
    retry = Retry(RetryPolicy(seconds=seconds))
    reminders = Reminders(LOG_PAUSES)
    # Of several servers, one may work while another limits the rate.
    patience = seconds if len(servers) > 1 else math.inf
    while True:
        probes = (
            _probe_or_explain(server, requirements, patience) for server in servers
        )
        with logging_wait("the first replies of the inference server"):
            results = await asyncio.gather(*probes)
        failures = [result for result in results if isinstance(result, str)]
        outage = f"no answer from {'; '.join(failures)}"
        if len(failures) < len(results):
            break
        seconds_left = retry.seconds_left
        if seconds_left > 0 and reminders.is_due():
            logger.info(
                "The start waits: %s; trying for another %.0f s", outage, seconds_left
            )
        if not await retry.wait():
            raise UnreachableError(
                f"{outage}: start it, set --openai.base_url to its address, or check its own log"
            )
    if failures:
        logger.warning("Starting without some servers: %s", outage)
    answering = [result for result in results if isinstance(result, Capabilities)]
    for capabilities in answering:
        why = blocker(capabilities, requirements)
        if why:
            raise ConfigurationError(why)
        loses_tokens = requirements.serves and isinstance(
            capabilities.dialect, ChatText
        )
        level = logging.WARNING if loses_tokens else logging.INFO
        logger.log(
            level, "The inference server at %s %s", capabilities.url, capabilities
        )
        why = warning(capabilities, requirements)
        if why:
            logger.warning("%s", why)
    dialects = [capabilities.dialect for capabilities in answering]
    texts = [dialect for dialect in dialects if isinstance(dialect, ChatText)]
    for server, result in zip(servers, results, strict=True):
        dialect = result.dialect if isinstance(result, Capabilities) else None
        if texts and not isinstance(dialect, ChatText):
            dialect = server.text if dialect else texts[0]
        server.dialect = dialect or server.tokens


async def _probe_or_explain(
    server: ServerClient, requirements: Requirements, patience: float
) -> Capabilities | str:
    """Return the server's capabilities, or describe a transient failure."""
    try:
        with server.rate_limit.waiting_at_most(patience):
            return await probe(server, requirements)
    except asyncio.TimeoutError:
        why = f"silent for {PROBE_SECONDS:g} s"
    except aiohttp.ClientResponseError as error:
        why = f"status {error.status}: {error.message}"
    except (aiohttp.ClientError, OSError, UnreachableError) as error:
        why = describe(error)
    return f"the inference server at {server.config.base_url} ({why})"


async def probe(server: ServerClient, requirements: Requirements) -> Capabilities:
    """Return a server's capabilities; raises ClientError or OSError for what may be transient.

    Raises ConfigurationError if it refuses, its replies are unusable, or it has no valid TLS.
    """
    url = str(server.config.base_url)
    request = replace(requirements.request, model=server.config.model_name)
    try:
        dialect, body = await _first_dialect(server, request, requirements)
        capabilities = Capabilities(
            url=url,
            dialect=dialect,
            context=(await listed_models(server)).get(server.config.model_name),
        )
        if isinstance(dialect, ChatText):
            samples = dialect.samples(body, request)
            if len(samples) == 1:  # two were requested
                dialect = dialect.without("n")
            capabilities = replace(capabilities, dialect=dialect, samples=samples)
            with suppress(*_UNEXPECTED_SHAPE):
                counted = int(parse(body, "a chat")["usage"]["prompt_tokens"])
                capabilities = replace(capabilities, prompt_tokens=counted)
            return capabilities
        text_ids = await server.token_ids(PROBE_TEXT)
        if text_ids is not None:
            capabilities = replace(capabilities, text_ids=tuple(text_ids))
            if not _has_same_ids(capabilities, requirements):
                return capabilities
        dialect.samples(body, request)
        warmer = await server.probe(dialect, replace(request, temperature=2.0))
        replies = [parse(reply, dialect.path) for reply in (body, warmer)]
        with suppress(*_UNEXPECTED_SHAPE):  # it has no candidates
            capabilities = replace(
                capabilities, raw=are_raw(*map(dialect.top_logprob, replies))
            )
        return capabilities
    except aiohttp.ClientResponseError as error:
        if is_transient(error):
            raise
        hint = hint_for(error)
        if hint == MODEL_HINT:
            models = await listed_models(server)
            if models:
                name = server.config.model_name
                hint = f"set --openai.model_name to {shown_models(name, models)}"
        raise refusal(url, error, hint) from error
    except (ReplyError, aiohttp.ClientSSLError) as error:
        raise ConfigurationError(
            f"the inference server at {url} is unusable: {error}"
        ) from error


async def _first_dialect(
    server: ServerClient, request: GenerationRequest, requirements: Requirements
) -> tuple[Dialect | ChatText, bytes]:
    """Return the dialect that gets token ids, else the one that gets text, and its reply.

    Raises the most specific refusal; ReplyError for a lack of ids that the server's type requires.
    """
    refusal: aiohttp.ClientResponseError | None = None
    if requirements.text_ids is not None:
        try:
            body = await server.probe(server.tokens, request)
        except aiohttp.ClientResponseError as error:
            if not server.is_chat or error.status not in (
                *_REFUSED_PARAMETERS,
                500,
                501,
            ):
                raise
            refusal = error
        else:
            reply = parse(body, server.tokens.path)
            with suppress(*_UNEXPECTED_SHAPE):
                if server.tokens.has_tokens(reply):
                    return server.tokens, body
    if not server.is_chat:
        raise ReplyError(
            "it returns no token ids; use a newer version of it, or --openai.server_type openai"
        )
    try:
        return await _first_text(server, request, requirements)
    except aiohttp.ClientResponseError as error:
        if refusal and error.status in (404, 405):
            raise refusal from error
        raise


async def _first_text(
    server: ServerClient, request: GenerationRequest, requirements: Requirements
) -> tuple[ChatText, bytes]:
    """Return how the server takes requests with the run's sampling parameters, and a reply.

    What it refuses is left out until it replies.
    """
    form = server.text
    body = b""
    used = (requirements.sampling, requirements.evaluation)
    for temperature, top_p in dict.fromkeys(
        (s.temperature, s.top_p) for s in used if s
    ):
        longer = replace(
            request,
            max_tokens=16,  # enough to see whether the text begins with a thought
            candidates=0,
            temperature=temperature,
            top_p=top_p,
        )
        while True:
            try:
                body = await server.probe(form, longer)
                break
            except aiohttp.ClientResponseError as error:
                if error.status not in _REFUSED_PARAMETERS:
                    raise
                # a model of OpenAI's that thinks may refuse instead of returning an empty text
                too_few = "(?i)higher max_tokens|output limit was reached"
                adapted = form.adapted_to(error.message)
                if adapted:
                    form = adapted
                elif re.search(too_few, error.message) and longer.max_tokens == 16:
                    longer = replace(longer, max_tokens=1024)
                elif (
                    "n" not in form.left_out
                ):  # each endpoint has words of its own for it
                    form = form.without("n")
                else:
                    raise
    return form, body


def blocker(capabilities: Capabilities, requirements: Requirements) -> str | None:
    """Return why a run can't start with this server and what to do; None if it can."""
    at = f"the inference server at {capabilities.url}"
    sampling = requirements.sampling
    if capabilities.text_ids is not None and not _has_same_ids(
        capabilities, requirements
    ):
        theirs, ours = (
            f"{list(ids[:6])} of {len(ids)}"
            for ids in (capabilities.text_ids, requirements.text_ids or ())
        )
        return (
            f"{at} has another tokenizer: its token ids of a text begin {theirs}, ours {ours}; set "
            "--env.tokenizer_name to its model's tokenizer"
        )
    too_short = context_blocker(
        capabilities.url, capabilities.context, requirements.length_limit
    )
    if too_short:
        return too_short
    if isinstance(capabilities.dialect, ChatText):
        refused = _ineffective(capabilities.dialect, sampling)
        if refused:
            options = " ".join(f"--env.{name} 1" for name in refused)
            return f"{at} refuses {' and '.join(refused)}: set {options}, the value that it uses"
        if requirements.serves and any(
            sample.reasoning for sample in capabilities.samples
        ):
            return f"{at} {SEPARATE_THOUGHT}"
    elif (
        capabilities.raw and sampling and {sampling.temperature, sampling.top_p} != {1}
    ):
        return (
            f"{at} gives raw logprobs, those before temperature and top_p, so that importance "
            f"ratios at temperature {sampling.temperature:g} and top_p {sampling.top_p:g} would be "
            f"wrong: {capabilities.dialect.processed_by}, or set --env.temperature 1 --env.top_p 1"
        )
    return None


def _ineffective(form: ChatText, sampling: SamplingParams | None) -> list[str]:
    """Return the parameters that the run sets and the endpoint refuses."""
    if sampling is None:
        return []
    values = sampling.distribution
    return [name for name in values if name in form.left_out and values[name] != 1]


def warning(capabilities: Capabilities, requirements: Requirements) -> str | None:
    """Return what makes results differ from what the settings say."""
    at = f"The inference server at {capabilities.url}"
    form = capabilities.dialect
    if not isinstance(form, ChatText):
        return None
    refused = _ineffective(form, requirements.evaluation)
    if requirements.evaluation is not None and refused:
        values = requirements.evaluation.distribution
        named = " and ".join(f"{name} {values[name]:g}" for name in refused)
        return f"{at} refuses {named} in evaluation: its own default applies"
    if requirements.text_ids is None:
        if capabilities.samples and capabilities.samples[0].usage is None:
            return f"{at} reports no usage: lengths are in characters, not in tokens"
        return None
    counted = capabilities.prompt_tokens
    ours = len(requirements.request.prompt)
    if requirements.sampling is None or counted in (None, ours):
        return None
    # Does not block: some endpoints count in tokens that are not their model's.
    return (
        f"{at} counts {counted} tokens in a prompt that has {ours} "
        "by tokenizer_name and its chat template: unless it counts in its own way, the trainer "
        "would see other tokens than the model; set --env.tokenizer_name to its model's tokenizer"
    )


def _has_same_ids(capabilities: Capabilities, requirements: Requirements) -> bool:
    """Return whether the ids are ours, perhaps after a beginning-of-text token."""
    theirs = list(capabilities.text_ids or ())
    ours = list(requirements.text_ids or ())
    return ours in (theirs, theirs[1:])


def are_raw(at_one: float, at_two: float) -> bool | None:
    """Return whether the most probable token's logprob is the same at temperatures 1 and 2.

    None if the token is certain: its logprob is 0 at any temperature. Otherwise temperature 2
    changes it a lot, even the -0.01 of a nearly certain token.

    Example:
        >>> are_raw(-0.7, -0.7), are_raw(-0.7, -2.9), are_raw(-0.01, -0.01), are_raw(0.0, 0.0)
        (True, False, True, None)
    """
    if min(at_one, at_two) > -1e-5:  # 0 with a rounding error
        return None
    # More than two equal bfloat16 requests differ.
    return abs(at_one - at_two) < 0.25 * abs(at_one)
