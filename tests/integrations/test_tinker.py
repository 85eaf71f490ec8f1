"""The Tinker cookbook rolls out our groups with a policy that needs no cloud."""

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from injected import advantages, injected_scores
from integration_programs import (
    ATROPOS,
    OWN_TASKS,
    loaded,
    page_program,
    run_python,
    shown_output,
)

from reasoning_gym_environment import Problem, ReasoningGym, Score, Status
from reasoning_gym_environment.demo.server import build_tokenizer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.integrations.shared import shared_gym

pytestmark = [
    pytest.mark.integration,
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def gym() -> Iterator[ReasoningGym]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REASONING_GYM_TASK_MODULES", OWN_TASKS)
        with shared_gym() as gym:
            yield gym


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tinker_cookbook.renderers import get_renderer
    from transformers import AutoTokenizer

    folder = build_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return get_renderer("role_colon", AutoTokenizer.from_pretrained(folder))


async def rollout(builder: Any, renderer: Any, *replies: str) -> Any:
    """Roll a group out with the cookbook's own loop; the policy gives each reply once."""
    from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
    from tinker_cookbook.rl.rollouts import do_group_rollout

    left = list(replies)

    class Replies(TokenCompleter):
        async def __call__(
            self, model_input: Any, stop: Any, **_: Any
        ) -> TokensWithLogprobs:
            tokens = renderer.tokenizer.encode(left.pop(0) + "\n\nUser:")
            return TokensWithLogprobs(tokens=tokens, maybe_logprobs=[0.0] * len(tokens))

    return await do_group_rollout(builder, Replies())


def group(problem: Problem, renderer: Any, size: int) -> Any:
    from reasoning_gym_environment.integrations.tinker import (
        ReasoningGymGroupBuilder,
        ReasoningGymProblemEnv,
    )

    thunk = partial(ReasoningGymProblemEnv, problem, renderer)
    return ReasoningGymGroupBuilder(thunk, size, problem.recipe.task)


def test_the_page_program_rolls_a_group_out(tmp_path: Path) -> None:
    assert run_python(page_program("Tinker"), tmp_path) == shown_output("Tinker")


@pytest.mark.parametrize("task", ["chain_sum", "due_date"])
async def test_a_group_is_scored_and_statuses_are_metrics(
    task: str, gym: ReasoningGym, renderer: Any
) -> None:
    [problem] = gym.problems(task, level=1)
    right = f"<think>…</think><answer>{problem.oracle}</answer>"
    rolled = await rollout(group(problem, renderer, 2), renderer, right, "no idea")
    assert rolled.get_total_rewards() == [1.0, 0.0]
    steps = [trajectory.transitions[0] for trajectory in rolled.trajectories_G]
    assert [step.metrics["status/no_answer"] for step in steps] == [0.0, 1.0]
    assert [step.metrics["format"] for step in steps] == [1.0, 0.0]
    assert sum(steps[1].metrics[f"status/{status.value}"] for status in Status) == 1.0
    prompt = renderer.tokenizer.decode(steps[0].ob.to_ints())
    assert "between <answer> and </answer>" in prompt
    assert problem.question in prompt


async def test_code_as_answer_is_not_run(
    gym: ReasoningGym, renderer: Any, tmp_path: Path
) -> None:
    [problem] = gym.problems("countdown", level=0)
    attack = f"<answer>__import__('pathlib').Path('{tmp_path}/ran').touch()</answer>"
    rolled = await rollout(group(problem, renderer, 1), renderer, attack)
    assert rolled.trajectories_G[0].transitions[0].metrics["status/rejected"] == 1.0
    assert rolled.get_total_rewards()[0] < 0.1
    assert not (tmp_path / "ran").exists()


async def test_an_unscored_rollout_gets_its_groups_mean(
    gym: ReasoningGym, renderer: Any
) -> None:
    [problem] = gym.problems("chain_sum", level=1)
    builder = group(problem, renderer, 4)
    envs = await builder.make_envs()
    for env, score in zip(envs, (1.0, None, 0.5, None), strict=True):
        env.score = Score(score=score, status=Status.WRONG)
    assert [reward for reward, _ in await builder.compute_group_rewards([], envs)] == [
        0,
        0.75,
    ] * 2


async def test_a_failure_of_ours_trains_neither_its_row_nor_its_groups_others(
    gym: ReasoningGym, renderer: Any
) -> None:
    from tinker_cookbook.rl.data_processing import compute_advantages
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

    [problem] = gym.problems("chain_sum", level=1)
    groups = injected_scores()
    rolled = []
    for scores in groups:
        builder = group(problem, renderer, len(scores))
        envs = await builder.make_envs()
        trajectories = []
        for env, score in zip(envs, scores, strict=True):
            status = Status.UNSCORED if score is None else Status.WRONG
            env.score = Score(score=score, status=status)
            step = Transition(
                ob=None, ac=None, reward=env.check_answer(""), episode_done=True
            )
            trajectories.append(Trajectory(transitions=[step], final_ob=None))
        rewards = await builder.compute_group_rewards(trajectories, envs)
        rolled.append(
            TrajectoryGroup(
                trajectories, [r for r, _ in rewards], [m for _, m in rewards]
            )
        )
    trained = compute_advantages(rolled)
    for scores, row in zip(groups, trained, strict=True):
        expected = advantages(scores, scaled=False)
        assert row.tolist() == pytest.approx(expected, abs=1e-6)


async def test_a_streams_level_rises_with_right_answers(
    gym: ReasoningGym, renderer: Any
) -> None:
    stream = gym.stream(["chain_sum"], complexity_mode="curriculum", group_size=4)
    levels = []
    for _ in range(60):
        problem = stream.next()
        levels.append(problem.recipe.level or 0)
        right = [f"<answer>{problem.oracle}</answer>"] * 4
        await rollout(group(problem, renderer, 4), renderer, *right)
    assert max(levels[-10:]) > max(levels[:10])


def test_a_builder_can_be_sent_to_other_processes(
    gym: ReasoningGym, renderer: Any
) -> None:
    [problem] = gym.problems("chain_sum", level=1)
    builder = pickle.loads(pickle.dumps(group(problem, renderer, 2)))
    assert builder.env_thunk().problem == problem


def test_a_misspelt_prompt_is_refused(gym: ReasoningGym, renderer: Any) -> None:
    from reasoning_gym_environment.integrations.tinker import ReasoningGymProblemEnv

    [problem] = gym.problems("chain_sum", level=1)
    with pytest.raises(ConfigurationError, match=r"'thnk'.*did you mean think"):
        ReasoningGymProblemEnv(problem, renderer, "thnk")


def test_it_does_not_import_atropos(tmp_path: Path) -> None:
    names = loaded("reasoning_gym_environment.integrations.tinker", tmp_path)
    assert "tinker_cookbook" in names
    assert not names & ATROPOS


@pytest.mark.parametrize("problem", ["gcd", None, {}])
def test_a_problem_that_is_none_is_refused(problem: Any, renderer: Any) -> None:
    from reasoning_gym_environment.integrations.tinker import ReasoningGymProblemEnv

    with pytest.raises(ConfigurationError, match="problem must be a Problem, got "):
        ReasoningGymProblemEnv(problem, renderer)
