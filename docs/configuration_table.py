"""Writes the options' table that `--help` shows, and the page's; `--check` only compares.

python docs/configuration_table.py [--check]
"""

from __future__ import annotations

import json
import sys
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

from atroposlib.envs.base import BaseEnvConfig
from pydantic.fields import FieldInfo

from reasoning_gym_environment.atropos.defaults import (
    COMMAND_DEFAULTS,
    ServerConfig,
    default_config,
    default_server,
)
from reasoning_gym_environment.commands.options import TABLE, Option
from reasoning_gym_environment.config import AT_LEAST, ReasoningGymEnvConfig

PAGE = Path(__file__).with_name("configuration.md")
BEGIN, END = "<!-- configuration table: begin -->", "<!-- configuration table: end -->"

USUAL = "What you usually set"
RUN = "Processes and logs"
SERVERS = "Server"
ATROPOS = "Atropos's own"
GROUPS = {
    USUAL: "tokenizer_name group_size max_token_length total_steps batch_size rollout_server_url "
    "system_prompt temperature top_p seed use_wandb wandb_name",
    "Tasks and difficulty": "include_tasks exclude_tasks task_weights task_parameters "
    "complexity_mode complexity_level curriculum_target_accuracy sampling",
    "Scoring": "score_mode solved_threshold answer_tolerance length_penalty_start "
    "mask_too_long_completions verify_timeout verify_group_timeout",
    "Evaluation": "steps_per_eval num_eval_samples_per_task eval_attempts eval_levels eval_seed "
    "eval_temperature eval_handling max_eval_workers data_dir_to_save_evals",
    "Storage": "data_dumps_dir dump_all_rollouts dump_rollouts dump_failed_rollouts "
    "rollout_save_score_threshold data_path_to_save_groups",
}
"""Options by heading; ours that are in none are of RUN, Atropos's of ATROPOS."""

USUAL_OF_SERVERS = ("server_type", "base_url", "model_name", "api_key", "num_max_requests_at_once")


def shown(value: Any) -> str:
    """A default as text: as one would write it on the command line."""
    value = value.value if isinstance(value, Enum) else value
    return "unset" if value in (None, "", [], {}) else str(value)


def types_of(annotation: Any) -> list[Any]:
    """The types in a union, or the one there is."""
    return [inner for one in get_args(annotation) for inner in types_of(one)] or [annotation]


def option(section: str, name: str, field: FieldInfo, group: str, default: Any) -> dict[str, Any]:
    """A row of the table; what is as in any option is left out."""
    types = types_of(field.annotation)
    kind = next((k for k in (bool, int, float) if types[0] is k), str).__name__
    choices = [one.value for t in types if isinstance(t, type) and issubclass(t, Enum) for one in t]
    if section == "openai":
        choices = [one for one in types if isinstance(one, str)]
    bounds = {
        n: getattr(m, n) for m in field.metadata for n in ("ge", "gt", "le", "lt") if hasattr(m, n)
    }
    bounds |= {"ge": AT_LEAST[name]} if name in AT_LEAST else {}
    differing = {
        command: shown(values[name])
        for command, values in COMMAND_DEFAULTS.items()
        if name in values
    }
    text = " ".join((field.description or "").split())
    row = {
        "name": f"{section}.{name}",
        "kind": kind if kind != "str" else "text",
        "group": group,
        "default": shown(default),
        "about": text if text.endswith(".") else f"{text}.",
        "brief": group != ATROPOS and (section == "env" or name in USUAL_OF_SERVERS),
        "atropos": section == "openai" or name in BaseEnvConfig.model_fields,
        "nothing": type(None) in types,
        "defaults": differing,
        "choices": choices,
        "bounds": bounds,
    }
    return {
        key: value for key, value in row.items() if value or key in ("name", "default", "brief")
    }


def rows() -> list[dict[str, Any]]:
    """Every option, in the order of `--help`."""
    fields, defaults, server = (
        ReasoningGymEnvConfig.model_fields,
        default_config(),
        default_server(),
    )
    grouped = {name: group for group, names in GROUPS.items() for name in names.split()}
    for name in fields:
        grouped.setdefault(name, ATROPOS if name in BaseEnvConfig.model_fields else RUN)
    ours = {
        group: [
            option("env", name, fields[name], group, getattr(defaults, name))
            for name in grouped
            if grouped[name] == group and name in fields
        ]
        for group in (*GROUPS, RUN, ATROPOS)
    }
    servers = [
        option("openai", name, ServerConfig.model_fields[name], SERVERS, getattr(server, name))
        for name in dict.fromkeys([*USUAL_OF_SERVERS, *ServerConfig.model_fields])
    ]
    last = ours.pop(ATROPOS)
    return [*(row for group in ours.values() for row in group), *servers, *last]


def lines(rows: list[dict[str, Any]]) -> str:
    """JSON with a line for each row."""
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"


def line(option: Option) -> str:
    """A line of the page's table; the defaults of single commands stand behind the common one."""
    name = option.name.removeprefix("env.")
    defaults = [f"`{option.default}`", *(f"{c}: `{d}`" for c, d in option.defaults.items())]
    limits = option.limits().capitalize() if option.bounds else option.limits()
    about = " ".join(filter(None, (option.about, limits and f"*{limits}.*")))
    return f"| `{name}` | {', '.join(defaults)} | {about.replace('<', '&lt;')} |"


def tables() -> str:
    """The page's: one for each heading of `--help`."""
    lines = []
    for group, members in groupby((Option(**row) for row in rows()), lambda o: o.group):
        head = [f"### {group}", "", "| setting | default | meaning |"]
        lines += [*head, "| --- | --- | --- |", *map(line, members), ""]
    return "\n".join(lines)


def updated(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def main() -> int | str:
    written = {PAGE: updated(PAGE.read_text()), TABLE: lines(rows())}
    if "--check" not in sys.argv[1:]:
        for path, text in written.items():
            path.write_text(text)
        return 0
    stale = [path.name for path, text in written.items() if path.read_text() != text]
    return f"out of date: {', '.join(stale)}; run make docs" if stale else 0


if __name__ == "__main__":
    sys.exit(main())
