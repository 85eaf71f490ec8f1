"""What an evaluation of hosted models costs: said before it, and summed as the endpoint counts."""

import asyncio
import json
import math
import random
import re
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from command_settings import checked
from scripted_server import ScriptedServer

from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import Generation, PolicyServer
from reasoning_gym_environment.errors import INCOMPLETE, ConfigurationError

ONE = ScriptedPolicy(["<answer>1</answer>"])
MODELS = ("org/large", "org/small", "tiny")
NAMES = ("prompt_tokens", "completion_tokens", "reasoning_tokens")
OPTIONS = {
    "tokenizer_name": "",
    "include_tasks": "gcd,chain_sum,coin_flip",
    "num_eval_samples_per_task": 4,
    "eval_attempts": 3,
}


class Counted(PolicyServer):
    """An endpoint that counts the tokens of its replies, some of which are of no use.

    Attributes:
        tokens: the sums by model, with the number of `requests`.
        asked: the questions, by model.
        usable: the share of the replies that have choices.
        unknown: a model that it doesn't have.
        lost: a model whose requests fail after the first one.
        answers: so many requests get a reply; the others wait for `released`, and then fail.
        waiting: how many wait.
    """

    def __init__(self, tokenizer: Any, *, usable: float = 0.7) -> None:
        super().__init__(ONE, tokenizer)
        self.tokens: dict[str, Counter[str]] = {model: Counter() for model in MODELS}
        self.asked: dict[str, set[str]] = {model: set() for model in MODELS}
        self.usable = usable
        self.unknown = self.lost = ""
        self.answers = math.inf
        self.released = asyncio.Event()
        self.waiting = 0
        self._rng = random.Random(5)

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        model = body["model"]
        if model == self.unknown:
            raise web.HTTPNotFound(text="no such model")
        if model == self.lost and self.tokens[model]["requests"]:
            raise web.HTTPForbidden(text="the account is closed")
        self.answers -= 1
        if self.answers < 0:
            self.waiting += 1
            await self.released.wait()
            raise web.HTTPServiceUnavailable(text="too late")
        return await super()._chat(request)

    def _chat_reply(
        self, body: dict[str, Any], generations: Sequence[Generation]
    ) -> dict[str, Any]:
        reasoning = self._rng.randrange(400)
        usage = {
            "prompt_tokens": self._rng.randrange(50, 900),
            "completion_tokens": reasoning + self._rng.randrange(1, 500),
        }
        model = body["model"]
        is_check = not self.tokens[model]
        self.asked[model].add(body["messages"][-1]["content"])
        self.tokens[model].update(
            {**usage, "reasoning_tokens": reasoning, "requests": 1}
        )
        reply = super()._chat_reply(body, generations)
        if not is_check and self._rng.random() > self.usable:
            reply["choices"] = []
        details = {"reasoning_tokens": reasoning}
        return {**reply, "usage": {**usage, "completion_tokens_details": details}}


def options_of(bench: Any, url: str, *models: str, **changes: Any) -> list[str]:
    """Options that name the models by `--model` alone."""
    given = bench.options(url, **{**OPTIONS, **changes})
    place = given.index("--openai.model_name")
    del given[place : place + 2]
    for model in models:
        given += ["--model", model]
    return list(given)


def usage_of(folder: Path) -> dict[str, Any]:
    usage: dict[str, Any] = json.loads((folder / "metrics.json").read_text())["usage"]
    return usage


@pytest.mark.nightly
async def test_the_sums_of_three_models_are_those_of_the_endpoint(
    bench: Any, tokenizer: Any
) -> None:
    folder = bench.folder / "evals"
    async with Counted(tokenizer) as server:
        options = options_of(
            bench, server.url, *MODELS, data_dir_to_save_evals=str(folder)
        )
        prices = ["--price", "0.5", "2", "--price", "0.1", "1", "--price", "0", "0"]
        async with bench.command("evaluate", *options, *prices) as command:
            assert await command.exit_code() in (0, INCOMPLETE), command.said()
    for model, (price_in, price_out) in zip(
        MODELS, [(0.5, 2), (0.1, 1), (0, 0)], strict=True
    ):
        told = server.tokens[model]
        usage = usage_of(folder / model.replace("/", "_"))
        assert {name: usage[name] for name in (*NAMES, "requests")} == told
        parts = [usage["checks"], *usage["by_task"].values()]
        for name in (*NAMES, "requests"):
            assert sum(part[name] or 0 for part in parts) == told[name]
        dollars = (
            price_in * told["prompt_tokens"] + price_out * told["completion_tokens"]
        ) / 1e6
        assert usage["cost"] == pytest.approx(dollars)
        row = rf"{model} +{told['requests']} +" + " +".join(
            f"{told[name]:,}" for name in NAMES
        )
        assert re.search(rf"{row} +{dollars:.4f}$", command.printed(), re.M)
    assert server.asked["org/large"] == server.asked["org/small"]
    # 12 items of three attempts; a few are lost, as their replies had no choices.
    assert server.tokens["tiny"]["requests"] > 12


@pytest.mark.nightly
async def test_one_models_failure_leaves_the_others_and_a_restart_completes_it(
    bench: Any, tokenizer: Any
) -> None:
    folder = bench.folder / "evals"
    async with Counted(tokenizer, usable=1.0) as server:
        server.unknown, server.lost = "org/large", "org/small"
        options = options_of(
            bench, server.url, *MODELS, data_dir_to_save_evals=str(folder)
        )
        async with bench.command("evaluate", *options) as command:
            assert await command.exit_code() == 2, command.said()
        assert "Evaluating org/large, model 1 of 3 failed: " in command.said()
        assert "Evaluating org/small, model 2 of 3 failed: " in command.said()
        assert f"--env.data_dir_to_save_evals {folder} to " in command.said()
        assert f"tiny: {folder}/tiny\n" in command.printed()
        assert sorted(usage_of(folder / "tiny")["by_task"]) == [
            "chain_sum",
            "coin_flip",
            "gcd",
        ]
        asked_before = server.tokens["tiny"]["requests"]

        server.unknown = server.lost = ""
        async with bench.command("evaluate", *options) as command:
            assert await command.exit_code() == 0, command.said()
    # The check at the start alone: the results of this model are complete.
    assert server.tokens["tiny"]["requests"] == asked_before + 1
    for model in MODELS:
        usage = usage_of(folder / model.replace("/", "_"))
        assert {name: usage[name] for name in NAMES} == {
            name: server.tokens[model][name] for name in NAMES
        }
    compare = "compare " + " ".join(
        f"{folder}/{name}" for name in ("org_large", "org_small", "tiny")
    )
    assert compare in command.printed()


@pytest.mark.nightly
async def test_replies_before_an_interruption_are_counted_after_it(
    bench: Any, tokenizer: Any
) -> None:
    folder = bench.folder / "evals"
    async with Counted(tokenizer, usable=0.8) as server:
        options = options_of(
            bench,
            server.url,
            "tiny",
            data_dir_to_save_evals=str(folder),
            max_eval_workers=6,
        )
        # The check, four items, and a few replies without choices: the rest waits.
        server.answers = 8
        async with bench.command("evaluate", *options) as command:
            await command.until(lambda: server.waiting)
            command.process.send_signal(signal.SIGINT)
            assert await command.exit_code() == 128 + signal.SIGINT, command.said()
        server.answers = math.inf
        server.released.set()
        async with bench.command("evaluate", *options) as command:
            assert await command.exit_code() in (0, INCOMPLETE), command.said()
    assert "Evaluating 12 items, 0 already" not in command.said()
    usage = usage_of(folder)
    told = server.tokens["tiny"]
    assert {name: usage[name] for name in (*NAMES, "requests")} == told


async def test_the_command_says_what_it_will_request(
    bench: Any, tokenizer: Any
) -> None:
    async with Counted(tokenizer, usable=1.0) as server:
        options = options_of(bench, server.url, "tiny", max_token_length=1001)
        async with bench.command("evaluate", *options, "--price", "1", "2") as command:
            assert await command.exit_code() == 0, command.said()
    said = command.said()
    plan = r"tiny gets (\d+) requests: about ([\d,]+) prompt tokens \(estimated.*"
    plan += r" at most 36,000 completion tokens, at most about \$(0.0\d+)"
    found = re.search(plan, said)
    assert found is not None, said
    assert int(found[1]) == 12 == server.tokens["tiny"]["requests"] - 1
    prompt = int(found[2].replace(",", ""))
    assert float(found[3]) == round((prompt + 2 * 36_000) / 1e6, 2)


async def test_the_tokenizer_counts_what_the_server_does_not_tell(
    bench: Any, tokenizer: Any
) -> None:
    folder = bench.folder / "evals"
    settings = {**OPTIONS, "tokenizer_name": tokenizer.name_or_path}
    async with ScriptedServer(ONE, tokenizer, chat_tokens=True) as server:
        options = bench.options(
            server.url, **settings, data_dir_to_save_evals=str(folder)
        )
        async with bench.command("evaluate", *options) as command:
            assert await command.exit_code() == 0, command.said()
    usage = usage_of(folder)
    rows = [
        json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()
    ]
    rollouts = [rollout for row in rows for rollout in row["rollouts"]]
    of_items = [row["rollouts"][0] for row in rows]
    by_task = usage["by_task"].values()
    assert sum(task["completion_tokens"] for task in by_task) == sum(
        rollout["completion_tokens"] for rollout in rollouts
    )
    prompt_tokens = sum(r["tokens"] - r["completion_tokens"] for r in of_items)
    assert sum(task["prompt_tokens"] for task in by_task) == prompt_tokens
    assert usage["counted_requests"] == 12
    assert f"12 requests: {prompt_tokens:,} prompt tokens (counted" in command.said()
    assert "12 requests: counted with the tokenizer" in command.printed()


async def test_what_nobody_counts_is_said(bench: Any, tokenizer: Any) -> None:
    folder = bench.folder / "evals"
    async with PolicyServer(ONE, tokenizer) as server:
        options = options_of(
            bench, server.url, "tiny", data_dir_to_save_evals=str(folder)
        )
        async with bench.command("evaluate", *options, "--price", "1", "2") as command:
            assert await command.exit_code() == 0, command.said()
    usage = usage_of(folder)
    assert usage["requests"] == usage["unknown_requests"] == 12
    assert usage["reasoning_tokens"] is None
    assert "12 requests: the server does not tell" in command.printed()
    assert re.search(r"^tiny +12 +- +- +- +-$", command.printed(), re.M)


SERVERS = "openai: [{model_name: a, base_url: 'http://x'}, {model_name: b}]"


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("serve", ["--model", "a", "--model", "b"], "only `evaluate` takes several"),
        ("evaluate", ["--model", "a", "--model", "a"], "would have the same folder"),
        ("evaluate", ["--model", "a/b", "--model", "a_b"], "a command of its own"),
        (
            "evaluate",
            ["--model", "a", "--price", "1", "2", "--price", "1", "3"],
            "--price is given 2 times for 1 model",
        ),
        ("evaluate", ["--price", "1", "x"], "price.1 must be .*'x'"),
        ("evaluate", ["--price", "1", "-2"], "price.1 must be .*'-2'"),
        ("evaluate", ["--price", "1"], "--price needs 2 values"),
        ("serve", ["--price", "1", "2"], "--price is for `evaluate` alone"),
        (
            "evaluate",
            ["--config", "servers.yaml", "--model", "c", "--model", "d"],
            r"servers.yaml have models of their own \(a, b\): .* two commands",
        ),
    ],
)
def test_models_and_prices_that_do_not_fit_are_refused(
    command: str,
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("servers.yaml").write_text(SERVERS)
    with pytest.raises(ConfigurationError, match=message):
        checked(command, *options)
