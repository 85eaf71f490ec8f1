"""Start upstream's environment for `upstream.py`, with the least that a tiny model needs changed.

    python research/upstream_serve.py MODULE TASKS GROUPS serve --env.seed=1 …

MODULE is upstream's file, TASKS are names with commas between, and each group adds a line to the
file GROUPS: `mixed`, `equal`, `lost` or `interrupted`. What is changed stands in `upstream.md`.
"""

from __future__ import annotations

import asyncio
import sys
import types
from pathlib import Path
from typing import Any

TEN_TOKENS = "if len([1 for i in masks if i != -100]) < 10:"
"""Upstream drops completions of fewer tokens; most of a tiny model's whole answers have fewer."""


def load(path: Path) -> Any:
    """Return upstream's module, which keeps every completion; SystemExit if its rule is gone."""
    source = path.read_text(encoding="utf-8")
    if source.count(TEN_TOKENS) != 1:
        raise SystemExit(f"error: {path} has no longer the line {TEN_TOKENS!r}")
    module = types.ModuleType("upstream_environment")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    kept = source.replace(TEN_TOKENS, TEN_TOKENS.replace("< 10", "< 1"))
    exec(compile(kept, str(path), "exec"), module.__dict__)
    return module


def environment(module: Any, tasks: list[str], groups: Path) -> Any:
    """Return upstream's environment, with these tasks and no system prompt."""
    base: Any = module.ReasoningGymEnv

    class Environment(base):  # type: ignore[misc]  # its type is not known before it is loaded
        @classmethod
        def config_init(cls) -> Any:
            """Ask for the library's configuration, as the other arms do."""
            config, servers = super().config_init()
            config.complexity_mode = None
            return config, servers

        def _get_task_names(self) -> list[str]:
            return tasks

        async def get_next_item(self) -> Any:
            """Leave out the system prompt, which the cold start has never seen."""
            item = await super().get_next_item()
            if item is None:
                return None
            messages, entry, dataset = item
            return (
                tuple(m for m in messages if dict(m)["role"] != "system"),
                entry,
                dataset,
            )

        async def collect_trajectories(self, item: Any) -> Any:
            outcome = "lost"
            try:
                group, backlog = await super().collect_trajectories(item)
                outcome = "equal" if group is None else "mixed"
            except asyncio.CancelledError:
                outcome = "interrupted"
                raise
            finally:
                with groups.open("a") as file:
                    file.write(f"{outcome}\n")
            return group, backlog

    return Environment


if __name__ == "__main__":
    path, names, log = sys.argv[1:4]
    del sys.argv[1:4]
    environment(load(Path(path)), names.split(","), Path(log)).cli()
