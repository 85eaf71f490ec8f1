"""The settings as Atropos's flat configurations, and the tokenizer with its chat template.

There is no tokenizer at a chat endpoint; a base model's gets a chat template.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atroposlib.envs.base import APIServerConfig, BaseEnvConfig, EvalHandlingEnum
from pydantic import Field, PrivateAttr
from transformers import AutoTokenizer

from ..errors import ConfigurationError, did_you_mean
from ..inference.prompts import (
    CHAT_TEMPLATES,
    resolve_system_prompt,
    with_variables,
)
from ..inference.template_trial import require_working_template
from ..inference.thoughts import (
    require_known_markers,
    special_tokens,
)
from ..scoring.channels import parse_markers
from ..settings import EnvironmentSettings, ServerSettings
from ..util.command_line import SERVER, build
from ..util.outages import Outage, logging_wait
from ..util.values import shorten

_EVAL_HANDLING = EnvironmentSettings.model_fields["eval_handling"]

LIVE_OPTIONS = frozenset(("debug_logging", "suppress_base_env_logs"))
"""Options that take effect at any time."""

BASE_CLASS_LOGGER = "atroposlib.envs.base"
"""The logger of Atropos's base class, which `suppress_base_env_logs` silences."""


class ReasoningGymEnvConfig(EnvironmentSettings, BaseEnvConfig):
    """Atropos's own settings and those of this environment; raises as `EnvironmentSettings`."""

    _is_frozen: bool = PrivateAttr(default=False)

    eval_handling: EvalHandlingEnum = Field(
        default=EvalHandlingEnum(_EVAL_HANDLING.default),
        description=_EVAL_HANDLING.description,
        json_schema_extra=_EVAL_HANDLING.json_schema_extra,
    )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an option; raise ConfigurationError if it is invalid, or comes after `setup`."""
        is_option = name in type(self).model_fields
        if self._is_frozen and is_option and name not in LIVE_OPTIONS:
            raise ConfigurationError(
                f"{name} can't become {value!r:.80}, since the environment is set up: give it to "
                f"the constructor, {type(self).__name__}({name}=…), or set it before `setup`"
            )
        super().__setattr__(name, value)
        if name in LIVE_OPTIONS:
            set_log_level(name, is_on=getattr(self, name))

    def freeze(self) -> None:
        """Refuse changes from now on, but for LIVE_OPTIONS."""
        self._is_frozen = True

    def changeable(self) -> ReasoningGymEnvConfig:
        """Return these settings, or a copy of them if they are frozen."""
        if not self._is_frozen:
            return self
        settings = self.model_copy(deep=True)
        settings._is_frozen = False
        return settings


def set_log_level(option: str, *, is_on: bool) -> None:
    """Let `debug_logging` or `suppress_base_env_logs` take effect."""
    if option == "debug_logging":
        package = logging.getLogger(__package__.partition(".")[0])
        package.setLevel(logging.DEBUG if is_on else logging.NOTSET)
    else:
        base_class = logging.getLogger(BASE_CLASS_LOGGER)
        base_class.setLevel(logging.WARNING if is_on else logging.INFO)


class ServerConfig(ServerSettings, APIServerConfig):
    """An inference server's settings; printing them hides the API key."""


def as_config(env: Any, config_class: Any) -> Any:
    """Return settings, which are valid already, as Atropos's configuration."""
    if isinstance(env, config_class):
        return env
    values = {**dict(env), "eval_handling": EvalHandlingEnum(env.eval_handling)}
    return config_class.model_construct(**values)


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


def tokenizer_of(config: ReasoningGymEnvConfig, servers: Sequence[Any]) -> str:
    """Return the configured tokenizer, or a server's; empty if all are chat endpoints."""
    if config.tokenizer_name:
        return str(config.tokenizer_name)
    for server in servers:
        if server.server_type != "openai":
            has_own = server.tokenizer_name != "none"
            return str(server.tokenizer_name if has_own else server.model_name)
    return ""


def load_tokenizer(name: str) -> Any:
    """Return the tokenizer of a name or folder; None for an empty name.

    Raises:
        ConfigurationError: it can't be loaded.
    """
    if not name:
        return None
    waiting = logging_wait(f"the tokenizer {name} and the Hugging Face hub")
    try:
        with quiet_hub(), waiting:
            return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        whole = re.match(r".{0,500}(?=[.!]( |$))", reason)  # some list all models
        raise ConfigurationError(
            f"tokenizer_name {name!r} (or the server's) can't be loaded: "
            f"{whole[0] if whole else shorten(reason)}. Give a name on the Hugging Face hub, "
            "or, without the hub, a folder with the tokenizer's files."
        ) from error


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Log the hub's failures once a minute: its client logs two lines for each retry."""

    def log_once_a_minute(record: logging.LogRecord) -> bool:
        outage.record_failure(record.getMessage())
        return False

    outage = Outage(server="The Hugging Face hub")
    hub = logging.getLogger("huggingface_hub.utils._http")
    hub.addFilter(log_once_a_minute)
    try:
        yield
    finally:
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


def apply_template(
    tokenizer: Any, config: ReasoningGymEnvConfig, own_template: str | None
) -> None:
    """Give a tokenizer the configured chat template, or its own with the configured variables.

    It holds for all who render it, a subclass's own requests included.

    Args:
        own_template: the template that came with the tokenizer.

    Raises:
        ConfigurationError: there is no template, it can't render a conversation, the tokenizer
            leaves answer tags out of texts, or it may mark thoughts in an unknown way.
    """
    lost = {"<answer>", "</answer>"} & {*special_tokens(tokenizer).values()}
    if lost and config.answer_format != "boxed":
        raise ConfigurationError(
            f"the tokenizer {config.tokenizer_name} leaves {' and '.join(sorted(lost))} out of "
            "texts, so that no answer would count: in a copy of its folder, make them tokens that "
            'are not special ("special": false in tokenizer.json and tokenizer_config.json), and '
            "set --env.tokenizer_name to it, or have boxes instead (--env.answer_format boxed)"
        )
    template = chat_template_text(config.chat_template) or own_template
    if not template:
        raise ConfigurationError(
            f"the tokenizer {config.tokenizer_name} has no chat template (base models have none): "
            "set --env.chat_template to plain for the built-in one, or to a file with another"
        )
    own_markers = parse_markers(config.thought_markers)
    require_known_markers(tokenizer, own_markers, config.tokenizer_name)
    tokenizer.chat_template = with_variables(template, config.chat_template_kwargs)
    system_prompt = resolve_system_prompt(config.system_prompt, config.answer_format)
    require_working_template(tokenizer, system_prompt)
