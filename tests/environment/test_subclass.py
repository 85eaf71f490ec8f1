"""Subclasses as users of Atropos write them, in `serve` and in `process`, between real parts."""

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from atroposlib.envs.base import BaseEnv
from serve_loop import HONEST, registration, status, training
from trainer_api import until

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.atropos.subclass import NOT_CALLED
from reasoning_gym_environment.demo.policy import Policy, ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.errors import InferenceError

# Atropos says so where there is no trainer.
pytestmark = pytest.mark.filterwarnings("ignore:Trainer requested to ignore max length")


class OwnReward(ReasoningGymEnv):
    """Rewards that no verifier gives, and a sentence after each question."""

    async def get_next_item(self) -> Any:
        problem = await super().get_next_item()
        return replace(problem, question=f"{problem.question} Be brief.")

    async def score(self, problem: Any, completions: Any) -> Any:
        assert problem.question.endswith(" Be brief.")
        assert problem.question.count("Be brief.") == 1
        group = await super().score(problem, completions)
        return group.with_rewards([number / 10 for number, _ in enumerate(completions)])


class Plain(ReasoningGymEnv):
    """Items of its own, and groups of tokens, masks and scores alone; no setup of ours."""

    async def setup(self) -> None:
        self.words = itertools.cycle(["one", "two"])

    async def get_next_item(self) -> Any:
        return next(self.words)

    async def collect_trajectories(self, item: Any) -> Any:
        ids = self.tokenizer.encode(f"{item} <answer>1</answer>")
        rows = self.config.group_size
        scores = [np.float64(number) for number in range(rows)]
        return {
            "tokens": [ids] * rows,
            "masks": [[-100, *ids[1:]]] * rows,
            "scores": scores,
        }, []


class Several(Plain):
    """A list of groups, one of them None; two of them share one group's size."""

    async def collect_trajectories(self, item: Any) -> Any:
        group, _ = await super().collect_trajectories(item)
        halves = [
            {name: rows[at : at + 2] for name, rows in group.items()} for at in (0, 2)
        ]
        return [
            group,
            None,
            *({**h, "group_overrides": {"group_size": 2}} for h in halves),
        ], None


class OneByOne(ReasoningGymEnv):
    """`collect_trajectory` alone."""

    numbers = itertools.count()

    async def collect_trajectory(self, item: Any) -> Any:
        ids = self.tokenizer.encode(item.question)
        return {
            "tokens": ids,
            "masks": ids,
            "scores": float(next(self.numbers) % 3),
        }, []


class TakesAtropossOwn(OneByOne):
    collect_trajectories = BaseEnv.collect_trajectories


class Asks(Plain):
    """Completions from `self.server`, as every environment of Atropos gets them."""

    async def collect_trajectories(self, item: Any) -> Any:
        messages = [{"role": "user", "content": item}]
        asked = {"n": self.config.group_size, "max_tokens": 64, "temperature": 0.7}
        chat = await self.server.chat_completion(messages=messages, **asked)
        texts = await self.server.completion(prompt=item, **asked)
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            reply = await managed.chat_completion(messages=messages, top_k=5, **asked)
            nodes = managed.get_state()["nodes"]
        assert len(chat.choices) == len(texts.choices) == len(nodes)
        assert chat.choices[1].message.content.startswith("<answer>")
        assert texts.choices[-1].text.startswith("<answer>")
        return {
            "tokens": [node.tokens for node in nodes],
            "masks": [node.masked_tokens for node in nodes],
            "inference_logprobs": [node.logprobs for node in nodes],
            "scores": [
                float(len(c.message.content) + i) for i, c in enumerate(reply.choices)
            ],
        }, []


class OneProblem(ReasoningGymEnv):
    """The same problem for all workers, in turn with two wordings."""

    numbers = itertools.count()
    problem: Any = None

    async def get_next_item(self) -> Any:
        self.problem = self.problem or await super().get_next_item()
        wording = next(self.numbers) % 2
        return replace(
            self.problem, question=f"{self.problem.question}{' Be brief.' * wording}"
        )


WORKING = [OwnReward, Plain, Several, OneByOne, TakesAtropossOwn, Asks, OneProblem]


@asynccontextmanager
async def served(
    bench: Any, tokenizer: Any, of: Any, policy: Policy = HONEST, **changes: Any
) -> AsyncIterator[tuple[ReasoningGymEnv, Any, asyncio.Task[None]]]:
    """An environment that serves in this process, the trainer, and the task that serves."""
    async with (
        ApiServer() as api,
        training(api, bench.folder, batch_size=8) as trainer,
        PolicyServer(policy, tokenizer) as server,
        bench.unprepared(
            server.url, "vllm", of=of, rollout_server_url=api.url, **changes
        ) as env,
    ):
        job = asyncio.create_task(env.env_manager())
        try:
            yield env, trainer, job
        finally:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
    assert not any(env.statistics.unaccounted().values()), env.statistics.accounting()


async def test_serving_ends_with_the_training_without_an_evaluation(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with served(bench, tokenizer, ReasoningGymEnv, total_steps=1) as (
        env,
        _,
        job,
    ):
        await asyncio.wait_for(job, 120)
    assert env.eval_runner is None
    assert (
        "This environment ends after step 1, the trainer wants 1000: set --env."
        in caplog.text
    )
    assert env.curr_step >= 1
    assert f"Training ends at step {env.curr_step} of 1" in caplog.text


@asynccontextmanager
async def processed(
    bench: Any, tokenizer: Any, of: Any, *, groups: int = 3, **changes: Any
) -> AsyncIterator[ReasoningGymEnv]:
    """An environment as the `process` command prepares it."""
    settings = {
        "ensure_scores_are_not_same": False,
        "include_messages": True,
        **changes,
    }
    path = str(bench.folder / "groups.jsonl")
    async with (
        PolicyServer(HONEST, tokenizer) as server,
        bench.unprepared(
            server.url, "vllm", of=of, data_path_to_save_groups=path, **settings
        ) as env,
    ):
        env.n_groups_to_process, env.group_size_to_process = (
            groups,
            env.config.group_size,
        )
        yield env
    assert not any(env.statistics.unaccounted().values()), env.statistics.accounting()


@pytest.mark.parametrize("of", WORKING)
async def test_a_trainer_gets_the_groups_of_a_subclass(
    bench: Any, tokenizer: Any, of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(bench, tokenizer, of) as (env, trainer, job):
        await until(lambda: trainer.batches >= 2 or job.done())
        assert not job.done(), job.exception()
    counts = env.statistics.counts
    assert counts["groups/sent"] >= trainer.groups
    assert counts["groups/refused"] == 0
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    if of is OwnReward:
        assert trainer.batch[0]["scores"] == [0.0, 0.1, 0.2, 0.3]
    if of is Asks:
        assert trainer.batch[0]["inference_logprobs"][0][-1] < 0


@pytest.mark.parametrize("of", WORKING)
async def test_process_writes_the_groups_of_a_subclass(
    bench: Any, tokenizer: Any, of: Any
) -> None:
    async with processed(bench, tokenizer, of) as env:
        await env.process_manager()
    written = 9 if of is Several else 3
    assert env.statistics.counts["groups/written"] == written
    assert (bench.folder / "groups.html").exists()


class DropsAll(OwnReward):
    async def postprocess_histories(self, trajectories: Any) -> Any:
        return None


class EndsSoon(Plain):
    async def setup(self) -> None:
        self.words = itertools.chain(["one", "two"], itertools.repeat(None))


async def test_none_drops_a_group_and_ends_the_items(
    bench: Any, tokenizer: Any
) -> None:
    async with processed(bench, tokenizer, DropsAll) as env:
        await env.process_manager()
    assert env.statistics.counts["groups/dropped"] == 3
    async with processed(bench, tokenizer, EndsSoon) as env:
        await env.process_manager()
    assert env.statistics.counts["groups/written"] == 2
    async with served(bench, tokenizer, EndsSoon) as (env, trainer, _):
        await until(lambda: trainer.groups == 2)


class WaitsForTheTrainer(Plain):
    """Each item comes after the trainer's next status."""

    asked = given = 0

    async def get_next_item(self) -> Any:
        self.asked += 1
        status = self.status_dict
        while self.status_dict is status:
            await asyncio.sleep(0.05)
        self.given += 1
        return await super().get_next_item()


@pytest.mark.nightly
async def test_the_trainer_is_looked_at_while_an_item_is_slow_to_come(
    bench: Any, tokenizer: Any
) -> None:
    async with served(bench, tokenizer, WaitsForTheTrainer) as (env, trainer, _):
        await until(lambda: trainer.batches >= 2)
        assert env.asked - env.given <= 1  # the slow draw went on: none was cancelled


class Fails(ReasoningGymEnv):
    async def score(self, problem: Any, completions: Any) -> Any:
        raise KeyError("mine")


class ScoresNumbers(ReasoningGymEnv):
    async def score(self, problem: Any, completions: Any) -> Any:
        return [1.0] * len(completions)


class ReturnsNoPair(Plain):
    async def collect_trajectories(self, item: Any) -> Any:
        return (await super().collect_trajectories(item))[0]


class TooFewRows(Plain):
    async def collect_trajectories(self, item: Any) -> Any:
        group, _ = await super().collect_trajectories(item)
        return {name: rows[:2] for name, rows in group.items()}, []


class AwaitsACancelledTask(Plain):
    async def collect_trajectories(self, item: Any) -> Any:
        asked = asyncio.create_task(asyncio.sleep(60))
        asked.cancel()
        await asked


class SomeRolloutIsNone(OneByOne):
    async def collect_trajectory(self, item: Any) -> Any:
        return None, []


class OwnItemsAlone(ReasoningGymEnv):
    async def get_next_item(self) -> Any:
        return "one"


FAILING = {
    Fails: "Fails failed for 5 items in a row, KeyError: 'mine'; the log has the traceback",
    ScoresNumbers: r"ScoresNumbers.score must return a GroupResult .* got \[1.0, 1.0, 1.0, 1.0\]",
    ReturnsNoPair: r"ReturnsNoPair.collect_trajectories must return its groups and a list of items",
    TooFewRows: "5 groups were refused and none was delivered: 2 rows of tokens, expected 4",
    AwaitsACancelledTask: "5 items in a row, RuntimeError: a task that it awaits was cancelled",
    SomeRolloutIsNone: "SomeRolloutIsNone failed for 5 items in a row, ValueError",
    OwnItemsAlone: "get_next_item of OwnItemsAlone returned an item of its own, 'one': override",
}


@pytest.mark.parametrize("of", FAILING)
async def test_what_can_not_work_ends_the_run_with_a_sentence(
    bench: Any, tokenizer: Any, of: Any
) -> None:
    async with served(bench, tokenizer, of) as (env, _, job):
        with pytest.raises(ConfigurationError, match=FAILING[of]):
            await asyncio.wait_for(job, 120)
    counts = env.statistics.counts
    ends = counts["groups/interrupted"] + counts["groups/refused"]
    assert 1 <= ends == counts["groups/started"] <= 50
    async with processed(bench, tokenizer, of, groups=9) as env:
        with pytest.raises(ConfigurationError, match=FAILING[of]):
            await asyncio.wait_for(env.process_manager(), 120)


class EvaluatesInVain(ReasoningGymEnv):
    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        raise KeyError("mine")


async def test_an_evaluation_of_a_subclass_that_raises_is_logged_and_costs_no_training(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(bench, tokenizer, EvaluatesInVain, steps_per_eval=1) as (
        env,
        trainer,
        job,
    ):
        await until(lambda: "The evaluation failed" in caplog.text or job.done())
        before = trainer.batches
        await until(lambda: trainer.batches > before or job.done())
        assert not job.done(), job.exception()
    assert env.statistics.counts["evaluation/failures"] > 0
    assert "The evaluation failed: 'mine'\nTraceback" in caplog.text


class CollectsNothing(Plain):
    async def collect_trajectories(self, item: Any) -> Any:
        return [], []


class RefusedLater(TooFewRows):
    """One sound group, then groups that are refused."""

    async def collect_trajectories(self, item: Any) -> Any:
        sound = not self.statistics.counts["groups/written"]
        return await (Plain if sound else TooFewRows).collect_trajectories(self, item)


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (CollectsNothing, "nothing was collected: no group"),
        (RefusedLater, "its groups were refused or not written"),
    ],
)
async def test_process_counts_no_group_that_it_has_not_written(
    bench: Any, tokenizer: Any, of: Any, reason: str
) -> None:
    async with processed(bench, tokenizer, of, groups=3) as env:
        with pytest.raises(
            ConfigurationError, match=f"for 50 items in a row, {reason}"
        ):
            await asyncio.wait_for(env.process_manager(), 60)


async def test_a_managed_server_needs_a_server_that_completes_tokens(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        PolicyServer(HONEST, tokenizer) as server,
        bench.unprepared(server.url, of=Asks) as env,
    ):
        with pytest.raises(ConfigurationError, match="await its `setup`"):
            await env.collect_trajectories("one")
        await ReasoningGymEnv.setup(env)
        with pytest.raises(
            InferenceError, match=r"set --openai.server_type to vllm or sglang"
        ):
            await env.collect_trajectories("one")


def test_overrides_without_effect_are_refused_when_the_class_is_built() -> None:
    async def score(self: Any, rollout_group_data: Any) -> None: ...

    with pytest.raises(ConfigurationError) as raised:
        type("Mine", (ReasoningGymEnv,), {"score": score})
    assert str(raised.value) == (
        "Mine.score must take (self, problem, completions) and return a GroupResult, got (self: "
        "Any, rollout_group_data: Any) -> None: see docs/subclass.md"
    )
    collects = {"score": score, "collect_trajectories": Plain.collect_trajectories}
    assert type("Mine", (ReasoningGymEnv,), collects)


@pytest.mark.parametrize("name", NOT_CALLED)
def test_a_method_that_the_run_does_not_call_is_refused_with_the_one_to_override(
    name: str,
) -> None:
    """A helper of such a name is none of Atropos's methods, and called by what calls it."""

    async def own(self: Any, *args: Any, **kwargs: Any) -> None: ...

    instead = NOT_CALLED[name]
    with pytest.raises(
        ConfigurationError, match=rf"Mine\.{name} .*override {instead},"
    ):
        type("Mine", (ReasoningGymEnv,), {name: own})
    helping = [{name: own, "collect_trajectories": Plain.collect_trajectories}]
    if hasattr(ReasoningGymEnv, instead):
        helping.append({name: own, instead: own})
    for members in helping:
        if not hasattr(BaseEnv, name):
            assert type("Mine", (ReasoningGymEnv,), members)
            continue
        with pytest.raises(ConfigurationError, match=f"override {instead},"):
            type("Mine", (ReasoningGymEnv,), members)


async def test_a_method_of_atroposs_loop_says_what_to_override_instead(
    bench: Any,
) -> None:
    async with bench.unprepared("http://127.0.0.1:1") as env:
        atroposs = [name for name in NOT_CALLED if hasattr(env, name)]
        for name in atroposs:
            with pytest.raises(NotImplementedError) as raised:
                await getattr(env, name)()
            assert f"ReasoningGymEnv.{name}" in str(raised.value)
            assert f"override {NOT_CALLED[name]}" in str(raised.value)


class Counts(ReasoningGymEnv):
    """Keeps a number of its own in checkpoints."""

    asked = 0

    async def get_next_item(self) -> Any:
        self.asked += 1
        return await super().get_next_item()

    def save_checkpoint(self, step: int, data: dict[str, Any] | None = None) -> None:
        super().save_checkpoint(step, {**(data or {}), "asked": self.asked})


async def test_checkpoints_keep_what_a_subclass_adds(
    bench: Any, tokenizer: Any
) -> None:
    async with PolicyServer(HONEST, tokenizer) as server:
        for step in (2, 3):
            async with bench.unprepared(server.url, of=Counts) as env:
                await env.setup()
                begun = registration(bench.folder, step=step, checkpoint_interval=3)
                await env.run.begin(begun)
                if step == 3:
                    assert env.asked == 2
                    continue
                env.backlog.extend([await env.get_next_item(), "an item of its own"])
                await env.get_next_item()
                await env.run.take_status(status(3))


NOTEBOOK = """
import asyncio, logging, sys
from atroposlib.envs.base import APIServerConfig
from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.atropos.subclass import NOT_CALLED

async def main():
    env_config, server_configs = ReasoningGymEnv.config_init()
    env_config.debug_logging = True
    env_config.include_tasks, env_config.task_processes = ["gcd"], 1
    server_configs[0].base_url = sys.argv[1]
    for _ in range(2):
        env = ReasoningGymEnv(env_config, server_configs)
        await env.setup()
        logging.getLogger("reasoning_gym_environment.x").warning("seen")
    await env.collect_trajectories(await env.get_next_item())
    await env.close()

asyncio.run(main())
"""


@pytest.mark.processes
async def test_the_originals_python_example_runs_and_its_log_is_seen(
    tokenizer: Any, tmp_path: Path
) -> None:
    async with PolicyServer(
        ScriptedPolicy(["<answer>1</answer>"]), tokenizer
    ) as server:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", NOTEBOOK, f"{server.url}/v1"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("WARNING reasoning_gym_environment.x: seen") == 2
    assert (
        "DEBUG reasoning_gym_environment.scoring.grading: gcd: answer '1'"
        in done.stderr
    )


LOG_OPTIONS = """
import asyncio, sys
from atroposlib.envs.base import APIServerConfig
from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig

async def main():
    verbose = sys.argv[2] == "verbose"
    config = ReasoningGymEnvConfig(
        include_tasks=["gcd"], task_processes=1, use_wandb=False, data_dir_to_save_evals="evals",
        tokenizer_name=sys.argv[3],
    )
    config.debug_logging, config.suppress_base_env_logs = verbose, not verbose
    server = APIServerConfig(base_url=sys.argv[1], model_name="policy", api_key="x")
    env = ReasoningGymEnv(config, [server])
    await env.setup()
    for _ in range(2):
        print("begins", file=sys.stderr)
        await env.get_next_item()
        await env.evaluate_log({"solved": 1.0})  # of the base class
        verbose = not verbose
        config.debug_logging, config.suppress_base_env_logs = verbose, not verbose
    await env.close()

asyncio.run(main())
"""


@pytest.mark.processes
@pytest.mark.parametrize("first", ["verbose", "quiet"])
async def test_options_of_the_log_take_effect_before_and_after_the_environment_is_made(
    first: str, tokenizer: Any, bench: Any, tmp_path: Path
) -> None:
    async with PolicyServer(HONEST, tokenizer) as server:
        folder = bench.settings()["tokenizer_name"]
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", LOG_OPTIONS, f"{server.url}/v1", first, folder],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    _, *rounds = done.stderr.split("begins\n")
    seen = [
        (
            "DEBUG reasoning_gym_environment.problems.training: Selected gcd" in text,
            "INFO atroposlib.envs.base: Evaluation results saved" in text,
        )
        for text in rounds
    ]
    verbose, quiet = (True, True), (False, False)
    assert seen == ([verbose, quiet] if first == "verbose" else [quiet, verbose])
