"""What Atropos reads, and what its constructor makes of it, as the environment needs both.

The settings are flat configurations, and the servers clients of this package. There is no tokenizer
at a chat endpoint; a base model's gets a chat template.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from atroposlib.envs.base import APIServerConfig, BaseEnvConfig, EvalHandlingEnum
from atroposlib.envs.server_handling.server_baseline import APIServer, ChatCompletion
from atroposlib.envs.server_handling.server_baseline import (
    Completion as CompletionReply,
)
from jinja2 import TemplateError
from pydantic import Field
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from ..errors import ConfigurationError, did_you_mean
from ..inference.client import InferenceClient
from ..inference.dialects import GenerationRequest
from ..inference.errors import InferenceError
from ..inference.prompts import (
    CHAT_TEMPLATES,
    build_messages,
    end_of_turn,
    render_prompt,
    with_variables,
)
from ..inference.servers import ServerClient
from ..inference.thoughts import (
    require_known_markers,
    special_tokens,
)
from ..scoring.channels import parse_markers
from ..settings import EnvironmentSettings, ServerSettings
from ..util.command_line import SERVER, build
from ..util.files import UnwritableError
from ..util.outages import Outage, logging_wait
from ..util.values import shorten

_EVAL_HANDLING = EnvironmentSettings.model_fields["eval_handling"]


class ReasoningGymEnvConfig(EnvironmentSettings, BaseEnvConfig):
    """Atropos's own settings and those of this environment; raises as `EnvironmentSettings`."""

    eval_handling: EvalHandlingEnum = Field(
        default=EvalHandlingEnum(_EVAL_HANDLING.default),
        description=_EVAL_HANDLING.description,
        json_schema_extra=_EVAL_HANDLING.json_schema_extra,
    )


class ServerConfig(ServerSettings, APIServerConfig):
    """An inference server's settings; printing them hides the API key."""


def as_config(env: Any, config_class: Any) -> Any:
    """Return settings, which are valid already, as Atropos's configuration."""
    if isinstance(env, config_class):
        return env
    values = {**dict(env), "eval_handling": EvalHandlingEnum(env.eval_handling)}
    return config_class.model_construct(**values)


class AtroposServer(APIServer):
    """Atropos's view of an inference client: weighted semaphores, timings, reasoning settings.

    A subclass of the environment gets completions as from Atropos's own servers, through the
    environment's client: with its retries, failover and limits. They raise InferenceError.

    Attributes:
        inference, tokenizer: the environment's, which sets them.
    """

    inference: InferenceClient
    tokenizer: Any

    def __init__(
        self, config: Any, reasoning_config: Any = None, *, server_type: str = ""
    ) -> None:
        config.server_type = server_type or config.server_type
        settings = {
            name: value for name, value in config if name in ServerSettings.model_fields
        }
        build(ServerSettings, settings, prefix=f"{SERVER}.")
        super().__init__(config, reasoning_config=reasoning_config)
        timings = (
            "request_timings",
            "attempts_list",
            "eval_request_timings",
            "eval_attempts_list",
        )
        for name in timings:  # Atropos's own lists grow without end
            setattr(self, name, deque(maxlen=max(1, config.rolling_buffer_length)))
        self.client = ServerClient(
            config,
            admit=self._admit,
            adjust=self._add_reasoning if config.server_type == "openai" else dict,
        )

    @asynccontextmanager
    async def _admit(self, split: str) -> AsyncIterator[None]:
        """Hold one of the split's places, and record how long a request that succeeds takes."""
        trains = split == "train"
        async with self.sem if trains else self.eval_sem:
            begin = time.monotonic()
            yield
            seconds = time.monotonic() - begin
        (self.request_timings if trains else self.eval_request_timings).append(seconds)
        (self.attempts_list if trains else self.eval_attempts_list).append(1)

    def _add_reasoning(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a request with Atropos's settings of reasoning."""
        changed = self._inject_reasoning_kwargs(dict(body))
        added = changed.pop("extra_body", {})
        return {**changed, **added}

    async def chat_completion(self, **kwargs: Any) -> ChatCompletion:
        """Return chat completions with the settings of reasoning, or `skip_reasoning`."""
        with_reasoning = self._inject_reasoning_kwargs(kwargs)
        reply = await self._reply("/v1/chat/completions", with_reasoning)
        return ChatCompletion.construct(**reply)

    async def completion(self, **kwargs: Any) -> CompletionReply:
        """Return completions of a prompt."""
        reply = await self._reply("/v1/completions", kwargs)
        return CompletionReply.construct(**reply)

    async def _reply(self, path: str, kwargs: dict[str, Any]) -> dict[str, Any]:
        split = kwargs.pop("split", "train")
        body = dict(kwargs)
        # The openai package's client reads these; no server does.
        for name in ("timeout", "extra_headers", "extra_query"):
            body.pop(name, None)
        body |= body.pop("extra_body", None) or {}
        return await self.inference.reply(path, body, split)

    async def tokens_and_logprobs_completion(
        self, **kwargs: Any
    ) -> tuple[list[int], list[list[int]], list[list[float]], list[str]]:
        """Return a prompt's tokens, and of each completion tokens, logprobs and finish reason.

        A managed server calls this. Without a limit a completion has 16 tokens, as in vLLM.
        """
        if self.tokenizer is None:
            raise InferenceError(
                "token ids need the model's tokenizer: set --env.tokenizer_name",
                is_transient=False,
            )
        prompt = kwargs.pop("prompt", "")
        ids = kwargs.pop("input_ids", None)
        ids = self.tokenizer.encode(prompt) if ids is None else list(ids)
        if ids[:2] == [self.tokenizer.bos_token_id] * 2:  # the template has one already
            del ids[0]
        names = ("max_tokens", "max_completion_tokens", "max_new_tokens")
        limits = [kwargs.pop(name, None) for name in names]
        split = kwargs.pop("split", "train")
        request = GenerationRequest(
            model=kwargs.pop("model", self.config.model_name),
            prompt=tuple(ids),
            messages=(),
            n=kwargs.pop("n", None) or 1,
            max_tokens=next(filter(None, limits), 16),
            temperature=kwargs.pop("temperature", 1.0),
            top_p=kwargs.pop("top_p", 1.0),
            vocabulary=len(self.tokenizer),
            more=kwargs,
        )
        samples = await self.inference.sample_tokens(request, split)
        return (
            ids,
            [sample.tokens.tolist() for sample in samples],
            [sample.logprobs.tolist() for sample in samples],
            [sample.finish_reason for sample in samples],
        )

    async def check_server_status_task(self, chat_completion: bool = True) -> None:
        """Check once whether the server answers."""
        self.server_healthy = await self.client.is_alive()

    _chat_completion_wrapper = chat_completion
    _completion_wrapper = completion
    _tokens_and_logprobs_completion_wrapper = tokens_and_logprobs_completion


def server_list(given: Any) -> list[ServerConfig]:
    """Return the servers of a `config_init`, which may be one, or Atropos's `ServerBaseline`.

    Raises:
        ConfigurationError: there is none, or a setting is invalid.
    """
    servers = given if isinstance(given, list) else [given]
    if not servers:
        raise ConfigurationError(
            "server_configs is empty: give the settings of a server"
        )
    return [
        build(ServerConfig, dict(server), prefix=f"{SERVER}.") for server in servers
    ]


def require_usable(
    config: ReasoningGymEnvConfig, server_configs: Any, *, slurm: bool
) -> list[Any]:
    """Return the servers' settings as a list.

    Raises:
        ConfigurationError: there is no server, or no list of nodes for `slurm`.
        UnwritableError: a configured output can't be written.
    """
    servers = server_configs if isinstance(server_configs, list) else [server_configs]
    if not servers:
        raise ConfigurationError(
            "server_configs is empty: give the settings of a server"
        )
    if not isinstance(config, ReasoningGymEnvConfig):
        raise ConfigurationError(
            f"config must be a ReasoningGymEnvConfig, got {type(config).__name__}: build it from "
            "ReasoningGymEnv.env_config_cls"
        )
    config.validate_config()
    config.require_places()
    if slurm and "SLURM_JOB_NODELIST" not in os.environ:
        raise ConfigurationError(
            "slurm: SLURM_JOB_NODELIST is not set; or set --slurm false"
        )
    return servers


@contextmanager
def loading_tokenizer(config: Any, servers: Sequence[Any]) -> Iterator[None]:
    """Let Atropos's constructor load the tokenizer, or a stand-in; raises ConfigurationError."""

    def log_once_a_minute(record: logging.LogRecord) -> bool:
        outage.record_failure(record.getMessage())
        return False

    outage = Outage(server="The Hugging Face hub")
    # It logs two lines for each retry.
    hub = logging.getLogger("huggingface_hub.utils._http")
    hub.addFilter(log_once_a_minute)
    models = [
        server.model_name if server.tokenizer_name == "none" else server.tokenizer_name
        for server in servers
        if server.server_type != "openai"
    ]
    name = str(config.tokenizer_name or next(iter(models), ""))
    try:
        waiting = logging_wait(f"the tokenizer {name} and the Hugging Face hub")
        with TemporaryDirectory() as folder, waiting:
            if not name:
                empty = Tokenizer(WordLevel({"": 0}, unk_token=""))
                fast = PreTrainedTokenizerFast(tokenizer_object=empty)
                fast.save_pretrained(folder)
            config.tokenizer_name = name or folder
            yield
    except ConfigurationError:
        raise
    except (OSError, ValueError) as error:
        path = config.data_path_to_save_groups
        if path is not None and getattr(error, "filename", None) == path:
            raise UnwritableError(
                f"data_path_to_save_groups: {error}; choose another"
            ) from error
        reason = " ".join(str(error).split())
        whole = re.match(r".{0,500}(?=[.!]( |$))", reason)  # some list all models
        raise ConfigurationError(
            f"tokenizer_name {name!r} (or the server's) can't be loaded: "
            f"{whole[0] if whole else shorten(reason)}. Give a name on the Hugging Face hub, "
            "or, without the hub, a folder with the tokenizer's files."
        ) from error
    finally:
        config.tokenizer_name = name
        hub.removeFilter(log_once_a_minute)


def chat_template_text(name_or_file: str) -> str:
    """Return the text of a built-in chat template or of a file; empty for the tokenizer's own."""
    if not name_or_file or name_or_file in CHAT_TEMPLATES:
        return CHAT_TEMPLATES.get(name_or_file, "")
    try:
        return Path(name_or_file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        hint = did_you_mean(
            name_or_file, CHAT_TEMPLATES, otherwise="name a file that exists"
        )
        raise ConfigurationError(
            f"chat_template must be {', '.join(CHAT_TEMPLATES)} or a file with a Jinja template, "
            f"got {name_or_file!r} ({error}); {hint}"
        ) from error


def with_template(
    tokenizer: Any,
    config: Any,
    template: str,
    system_prompt: str,
) -> Any:
    """Return the tokenizer with its chat template, or another one; None for a stand-in.

    Raises:
        ConfigurationError: there is no template, it can't render a conversation, the tokenizer
            leaves answer tags out of texts, or it may mark thoughts in an unknown way.
    """
    if not config.tokenizer_name:
        return None
    lost = {"<answer>", "</answer>"} & {*special_tokens(tokenizer).values()}
    if lost:
        raise ConfigurationError(
            f"the tokenizer {config.tokenizer_name} leaves {' and '.join(sorted(lost))} out of "
            "texts, so that no answer would count: in a copy of its folder, make them tokens that "
            'are not special ("special": false in tokenizer.json and tokenizer_config.json), and '
            "set --env.tokenizer_name to it"
        )
    tokenizer.chat_template = template or tokenizer.chat_template
    if not tokenizer.chat_template:
        raise ConfigurationError(
            f"the tokenizer {config.tokenizer_name} has no chat template (base models have none): "
            "set --env.chat_template to plain for the built-in one, or to a file with another"
        )
    own_markers = parse_markers(config.thought_markers)
    require_known_markers(tokenizer, own_markers, config.tokenizer_name)
    # It holds for all who render it, a subclass's own requests included.
    tokenizer.chat_template = with_variables(
        tokenizer.chat_template, config.chat_template_kwargs
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
