"""SkyRL-gym makes and steps our environment."""

import json
import runpy
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from injected import advantages, injected_scores
from integration_programs import (
    ATROPOS,
    OWN_TASKS,
    UNMAKABLE,
    loaded,
    page_program,
    run_python,
    shown_output,
)
from page_blocks import ROOT
from pyarrow import parquet
from served_rewards import served_rewards

from reasoning_gym_environment import ReasoningGym, Recipe, Status
from reasoning_gym_environment.commands.problems import main as write_problems
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.integrations.shared import shared_gym
from reasoning_gym_environment.service.client import RewardClient
from reasoning_gym_environment.storage.export import skyrl_row

pytestmark = [pytest.mark.integration, pytest.mark.processes]
# Torchdata uses what is deprecated.
ignores_warnings = pytest.mark.filterwarnings("ignore")

TASK = [
    "--env.include_tasks",
    "chain_sum",
    "--levels",
    "1",
    "--env.task_processes",
    "1",
]


@pytest.fixture(scope="module")
def gym() -> Iterator[ReasoningGym]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REASONING_GYM_TASK_MODULES", OWN_TASKS)
        with shared_gym() as gym:
            yield gym


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    write_problems([*TASK, "--count", "4", "--format", "skyrl", "-o", str(path)])
    made: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return made


def made(row: dict[str, Any]) -> Any:
    """Make the environment as SkyRL's generator does: by the name in the row."""
    import skyrl_gym

    import reasoning_gym_environment.integrations.skyrl  # noqa: F401 - it registers itself

    extras = {
        name: value
        for name, value in row.items()
        if name not in ("prompt", "env_class")
    }
    return skyrl_gym.make(row["env_class"], env_config={}, extras=extras)


def right(row: dict[str, Any], gym: ReasoningGym) -> str:
    oracle = gym.problem(json.loads(row["reward_spec"]["ground_truth"])).oracle
    return f"<think>…</think><answer>{oracle}</answer>"


def test_the_page_program_scores_a_row(tmp_path: Path) -> None:
    assert run_python(page_program("SkyRL"), tmp_path) == shown_output("SkyRL")


def test_rows_are_scored_with_status_metrics(
    rows: list[dict[str, Any]], gym: ReasoningGym
) -> None:
    from skyrl_gym.metrics import aggregate_for_environment

    metrics = []
    for row, reply, reward in zip(
        rows,
        ["no idea", *(right(row, gym) for row in rows[1:])],
        [0.0, 1.0, 1.0, 1.0],
        strict=True,
    ):
        with made(row) as env:
            prompt, _ = env.init(row["prompt"])
            assert [message["role"] for message in prompt] == ["system", "user"]
            step = env.step(reply)
            metrics.append(env.get_metrics())
        assert (step["reward"], step["done"], step["observations"]) == (
            reward,
            True,
            [],
        )
    assert step["metadata"]["status"] == "solved"
    means = aggregate_for_environment(rows[0]["env_class"], metrics)
    assert means == dict.fromkeys((s.value for s in Status), 0.0) | {
        "solved": 0.75,
        "no_answer": 0.25,
    }


def test_a_task_of_ones_own_is_scored(gym: ReasoningGym) -> None:
    [problem] = gym.problems("due_date", level=1)
    row = skyrl_row(problem.recipe, [])
    assert [
        made(row).step(reply)["reward"] for reply in (right(row, gym), "no idea")
    ] == [1.0, 0.0]


def test_a_draft_of_gpt_oss_is_no_answer(
    rows: list[dict[str, Any]], gym: ReasoningGym
) -> None:
    """SkyRL decodes without special tokens: the channels' names stay."""
    from reasoning_gym_environment.integrations.skyrl import ReasoningGymTextEnv

    oracle = gym.problem(json.loads(rows[0]["reward_spec"]["ground_truth"])).oracle
    draft = f"analysismaybe <answer>{oracle}</answer>, let me check"
    for reply, reward in (
        (draft, 0.0),
        (f"{draft}assistantfinal<answer>{oracle}</answer>", 1.0),
    ):
        env = ReasoningGymTextEnv(extras=rows[0], reply_after="assistantfinal")
        assert env.step(reply)["reward"] == reward


def test_a_service_scores(
    rows: list[dict[str, Any]], gym: ReasoningGym, tmp_path: Path
) -> None:
    import skyrl_gym

    made(rows[0])  # registers
    kwargs = skyrl_gym.spec("reasoning_gym").kwargs
    with served_rewards(tmp_path) as url, pytest.MonkeyPatch.context() as patch:
        patch.setitem(kwargs, "url", url)
        asked = [made(rows[0]), made(rows[0])]
        assert asked[0].step(right(rows[0], gym))["reward"] == 1.0
        assert asked[1].step("no idea")["metadata"]["status"] == "no_answer"
        patch.setitem(kwargs, "url", "127.0.0.1")
        with pytest.raises(ConfigurationError, match="url must begin with http"):
            made(rows[0]).step("no idea")


def test_a_streams_level_rises_for_rows_with_its_url(
    gym: ReasoningGym, tmp_path: Path
) -> None:
    options = {"tasks": ["chain_sum"], "complexity_mode": "curriculum", "group_size": 4}
    levels = []
    with served_rewards(tmp_path) as url:
        client = RewardClient(url)
        for _ in range(60):
            [problem] = client.problems("skyrl", 1, options)
            recipe = Recipe.from_json(problem["recipe"])
            levels.append(recipe.level or 0)
            row = {**skyrl_row(recipe, []), "curriculum_url": f"{url}/skyrl"}
            asked = [made(row) for _ in range(4)]
            answer = right(row, gym)
            assert [env.step(answer)["reward"] for env in asked] == [1.0] * 4
    assert max(levels[-10:]) > max(levels[:10])


def streamed_prompts(samples: int, **arguments: Any) -> Any:
    """The example's data set under SkyRL's settings of its generator.

    All of SkyRL's settings together import a backend, which needs a GPU.
    """
    from skyrl.train.config.config import GeneratorConfig

    generator = GeneratorConfig(n_samples_per_prompt=samples)
    names = runpy.run_path(str(ROOT / "examples" / "skyrl_stream.py"))
    return names["StreamedPrompts"](SimpleNamespace(generator=generator), **arguments)


@ignores_warnings
def test_the_generator_is_a_part_of_skyrls_configuration() -> None:
    from skyrl.train.config.config import GeneratorConfig, SkyRLTrainConfig

    kinds = {part.name: part.type for part in fields(SkyRLTrainConfig)}
    assert kinds["generator"] is GeneratorConfig


@ignores_warnings
def test_another_group_size_than_skyrls_is_refused(gym: ReasoningGym) -> None:
    with pytest.raises(TypeError, match="group_size"):
        streamed_prompts(4, size=60, tasks=["chain_sum"], group_size=8)


@ignores_warnings
def test_the_examples_data_set_follows_the_scores_in_the_trainers_loader(
    gym: ReasoningGym,
) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    options = {"tasks": ["chain_sum"], "complexity_mode": "curriculum"}
    prompts = streamed_prompts(4, size=60, **options)
    loader = StatefulDataLoader(
        prompts,
        batch_size=4,
        shuffle=True,
        drop_last=True,
        collate_fn=prompts.collate_fn,
    )
    levels = []
    for batch in loader:
        for item in batch:
            row = {"env_class": item["env_class"], **item["env_extras"]}
            levels.append(json.loads(row["reward_spec"]["ground_truth"])["level"])
            answer = right(row, gym)
            assert [made(row).step(answer)["reward"] for _ in range(4)] == [1.0] * 4
            assert item["prompt"][1]["role"] == "user"
    assert len(levels) == 60
    assert max(levels[-10:]) > max(levels[:10])


def test_an_unscored_reply_is_a_zero_that_says_so(rows: list[dict[str, Any]]) -> None:
    env = made(
        {**rows[0], "reward_spec": {"method": "rule", "ground_truth": UNMAKABLE}}
    )
    step = env.step("<answer>x</answer>")
    assert (step["reward"], step["metadata"]["score"]) == (pytest.approx(0.0), None)
    assert not step["reward"] > 0  # SkyRL counts that as solved
    assert env.get_metrics()["unscored"] == 1.0


def test_a_failure_of_ours_trains_neither_its_row_nor_its_groups_others(
    gym: ReasoningGym,
) -> None:
    """SkyRL adds each step's reward to a 0 at the reply's last token."""
    import numpy as np
    import torch

    from reasoning_gym_environment.integrations.skyrl import among_scored

    [problem] = gym.problems("chain_sum", level=1)
    sound = skyrl_row(problem.recipe, [])
    failing = {**sound, "reward_spec": {"method": "rule", "ground_truth": UNMAKABLE}}
    answer = right(sound, gym)
    groups = injected_scores()
    rewards = torch.zeros((len(groups) * len(groups[0]), 3))
    for row, score in enumerate(score for group in groups for score in group):
        env = made(failing if score is None else sound)
        rewards[row, -1] += env.step(answer if score else "no idea")["reward"]

    @among_scored
    def grpo(token_level_rewards: Any, response_mask: Any, index: Any) -> Any:
        scores = token_level_rewards.sum(-1)
        distances = torch.zeros(scores.shape)
        for group in {*index}:
            rows = torch.tensor(index == group)
            spread = scores[rows].std() + 1e-6
            distances[rows] = (scores[rows] - scores[rows].mean()) / spread
        return (distances.unsqueeze(-1) * response_mask,) * 2

    index = np.repeat(np.arange(len(groups)), len(groups[0]))
    trained, _ = grpo(
        token_level_rewards=rewards,
        response_mask=torch.ones(rewards.shape),
        index=index,
    )
    expected = [value for group in groups for value in advantages(group)]
    assert trained[:, -1].tolist() == pytest.approx(expected, abs=1e-4)


def test_one_completion_that_is_left_of_a_group_has_no_advantage() -> None:
    import numpy as np
    import torch

    from reasoning_gym_environment.integrations.skyrl import among_scored
    from reasoning_gym_environment.integrations.unscored import UNSCORED_REWARD

    @among_scored
    def rewards_themselves(token_level_rewards: Any, **_: Any) -> Any:
        return token_level_rewards, token_level_rewards

    rewards = torch.tensor([[1.0], [UNSCORED_REWARD], [1.0], [UNSCORED_REWARD]])
    index = np.array(["a", "a", "alone", "b"])
    trained, returns = rewards_themselves(
        token_level_rewards=rewards, response_mask=torch.ones(4, 1), index=index
    )
    assert trained.flatten().tolist() == returns.flatten().tolist() == [0, 0, 1, 0]


def test_an_answer_that_is_code_is_not_run(gym: ReasoningGym, tmp_path: Path) -> None:
    [problem] = gym.problems("countdown", level=0)
    attack = f"<answer>__import__('pathlib').Path('{tmp_path}/ran').touch()</answer>"
    step = made(skyrl_row(problem.recipe, [])).step(attack)
    assert (step["reward"] < 0.1, step["metadata"]["status"]) == (True, "rejected")
    assert not (tmp_path / "ran").exists()


def test_a_row_without_a_recipe_is_refused(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"the row needs reward_spec\.ground_truth"
    ):
        made({**rows[0], "reward_spec": None})


def test_its_specification_can_be_written_as_json(rows: list[dict[str, Any]]) -> None:
    assert json.loads(made(rows[0]).spec.to_json())["id"] == rows[0]["env_class"]


def test_it_does_not_import_atropos(tmp_path: Path) -> None:
    names = loaded("reasoning_gym_environment.integrations.skyrl", tmp_path)
    assert "skyrl_gym" in names
    assert not names & ATROPOS
