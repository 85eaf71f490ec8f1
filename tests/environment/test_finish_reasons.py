"""A run with a server that has another word for the end of a completion."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from taught_policy import process_taught

from reasoning_gym_environment.commands.export import main as export
from reasoning_gym_environment.demo.policy import Policy, Sample
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.storage.dumps import read_dump

# Atropos says so where there is no trainer.
pytestmark = pytest.mark.filterwarnings("ignore:Trainer requested to ignore max length")

GROUPS = 3


class HalfRight(Policy):
    """Knows the answers that it is told, and says them every second time."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}

    def sample(self, question: str, n: int) -> list[Sample]:
        right = f"<answer>{self.answers.get(question, '4')}</answer>"
        texts = [right, "<answer>nope</answer>"] * n
        return [Sample(text=text) for text in texts[:n]]


class OtherWords(PolicyServer):
    """Ends each chat with a word of its own."""

    word = "eos"

    async def _chat(self, request: web.Request) -> web.Response:
        reply = json.loads((await super()._chat(request)).text or "")
        for choice in reply["choices"]:
            choice["finish_reason"] = self.word
        return web.json_response(reply)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [
        rollout
        for file in (folder / "dumps").glob("*_rollouts_*.jsonl")
        for group in read_dump(file).rows
        for rollout in group["rollouts"]
    ]


async def process(
    bench: Any, tokenizer: Any, word: str, monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """The groups that `process` writes with a server that says this word."""
    policy = HalfRight()
    groups = bench.folder / "groups.jsonl"
    settings = {"data_path_to_save_groups": str(groups), "dump_all_rollouts": True}
    async with OtherWords(policy, tokenizer) as server:
        server.word = word
        async with bench.unprepared(server.url, **settings) as env:
            env.n_groups_to_process = GROUPS
            env.group_size_to_process = env.config.group_size
            await process_taught(env, policy.answers, monkeypatch)
    return [json.loads(line) for line in groups.read_text().splitlines()]


async def test_another_word_for_the_end_costs_no_row_its_advantage(
    bench: Any,
    tokenizer: Any,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.WARNING)
    groups = await process(bench, tokenizer, "eos", monkeypatch)
    assert [group["overrides"] for group in groups] == [[{}] * 4] * GROUPS
    assert [sum(group["scores"]) for group in groups] == [2.0] * GROUPS
    assert len([m for m in caplog.messages if "'eos'" in m]) == 1
    rows = rows_of(bench.folder)
    assert {row["finish_reason"] for row in rows} == {"stop"}
    assert {row["server_finish_reason"] for row in rows} == {"eos"}
    out = bench.folder / "sft.jsonl"
    assert export([str(bench.folder / "dumps"), "--format", "sft", "-o", str(out)]) == 0
    assert len(out.read_text().splitlines()) == GROUPS
    assert "rows for train" in capsys.readouterr().out


async def test_a_word_that_cuts_takes_the_advantage_of_its_rows(
    bench: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = await process(bench, tokenizer, "MAX_TOKENS", monkeypatch)
    masked = {"set_advantage_to_zero": True}
    assert [group["overrides"] for group in groups] == [[masked] * 4] * GROUPS
    rows = rows_of(bench.folder)
    assert {row["finish_reason"] for row in rows} == {"length"}
    assert {row["server_finish_reason"] for row in rows} == {"MAX_TOKENS"}
