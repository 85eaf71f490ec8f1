"""verifiers runs our taskset with its own `vf-eval`, and its NeMo Gym client our rows."""

import ast
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from injected import injected_scores
from integration_programs import (
    ATROPOS,
    OWN_TASKS,
    UNMAKABLE,
    WITH_OWN_TASKS,
    blocks_of,
    environment,
    loaded,
    page_program,
    run,
    run_python,
    shown_output,
)
from openenv_server import serving
from scripted_server import answering
from served_rewards import served_rewards

from reasoning_gym_environment import AsyncReasoningGym, ReasoningGym
from reasoning_gym_environment.inference.prompts import SYSTEM_PROMPTS, build_messages
from reasoning_gym_environment.integrations.nemo_gym import nemo_gym_row
from reasoning_gym_environment.integrations.shared import evaluation_problems
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.storage.dumps import read_dump

pytestmark = [pytest.mark.integration, pytest.mark.processes]

BOUNDS = """
from reasoning_gym_environment.integrations.verifiers import (
    ReasoningGymConfig,
    ReasoningGymTaskset,
)

stream = ReasoningGymTaskset(ReasoningGymConfig(tasks=["gcd"]))
held_out = ReasoningGymTaskset(ReasoningGymConfig(tasks=["gcd"], per_task=1))
tasksets = (stream, stream.take(2), held_out, held_out.skip(0))
print([(taskset.bounded, type(taskset).INFINITE) for taskset in tasksets])
"""
KEYS = """
from reasoning_gym_environment.integrations.verifiers import (
    ReasoningGymConfig,
    ReasoningGymTaskset,
)

taskset = ReasoningGymTaskset(ReasoningGymConfig(tasks=["gcd", "lcm"], per_task=3))
tasks = list(taskset)
keys = [task.key for task in tasks]
moved = [task.with_system_prompt("Answer.").key for task in taskset.shuffle(1)]
print(len({*keys}), {*moved} == {*keys})
"""
REFUSED = """
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.integrations.verifiers import (
    ReasoningGymConfig,
    ReasoningGymTaskset,
)

of_stream = {"complexity_mode": "curriculum", "sampling": "signal", "group_size": 2}
for name, value in of_stream.items():
    try:
        ReasoningGymTaskset(ReasoningGymConfig(per_task=1, **{name: value}))
    except ConfigurationError as error:
        print(f"per_task must be unset with {name}, got 1" in str(error), end=" ")
"""
UNSCORED = f"""
import asyncio

import verifiers.v1 as vf

from reasoning_gym_environment.integrations.verifiers import ReasoningGymData, ReasoningGymTask

data = ReasoningGymData(name="broken", prompt="?", recipe={UNMAKABLE!r})
trace = vf.Trace(
    task=vf.TraceTask(type="", data=data), agent=vf.AgentInfo(config=vf.AgentConfig())
)
try:
    asyncio.run(ReasoningGymTask(data).score(trace))
except vf.TaskError as error:
    said = "RuntimeError: broken is unscored: " in str(error)
    print(trace.rewards, trace.metrics["unscored"], said)
"""
INJECTED = """
import asyncio

import verifiers.v1 as vf
from verifiers.v1.utils.format import format_mean

from reasoning_gym_environment.integrations.shared import recipe_text, shared_gym
from reasoning_gym_environment.integrations.verifiers import ReasoningGymData, ReasoningGymTask

[problem] = shared_gym().problems("gcd", level=1)
recipes = {True: recipe_text(problem.recipe), False: UNMAKABLE}


async def scored(score):
    data = ReasoningGymData(name="gcd", prompt="?", recipe=recipes[score is not None])
    trace = vf.Trace(
        task=vf.TraceTask(type="", data=data), agent=vf.AgentInfo(config=vf.AgentConfig())
    )
    trace.root_reply = f"<answer>{problem.oracle}</answer>" if score else "no idea"
    trace.ok = True
    try:
        await ReasoningGymTask(data).score(trace)
    except vf.TaskError as error:
        trace.record_error(error)  # as a rollout of verifiers does
    return trace


async def main():
    traces = [await scored(score) for score in SCORES]
    mean = format_mean(traces, lambda trace: trace.reward, 6).split()[0]
    print([None if trace.has_error else trace.reward for trace in traces] == SCORES, mean)


asyncio.run(main())
"""
LEARNS = """
import asyncio
import itertools

import verifiers.v1 as vf

from reasoning_gym_environment.integrations.verifiers import (
    ReasoningGymConfig,
    ReasoningGymTaskset,
)

taskset = ReasoningGymTaskset(
    ReasoningGymConfig(
        tasks=["gcd"], complexity_mode="curriculum", group_size=2, curriculum_url={url!r}
    )
)
levels = []
for task in itertools.islice(taskset, 80):
    for _ in range(2):
        trace = vf.Trace(
            task=vf.TraceTask(type="", data=task.data), agent=vf.AgentInfo(config=vf.AgentConfig())
        )
        asyncio.run(task.score(trace))
    levels.append(__import__("json").loads(task.data.recipe)["level"])
print([levels[0], levels[-1]])
"""

RESUMES = """
import asyncio
import itertools
import json

import verifiers.v1 as vf

from reasoning_gym_environment.integrations.verifiers import (
    ReasoningGymConfig,
    ReasoningGymTaskset,
)

taskset = ReasoningGymTaskset(
    ReasoningGymConfig(
        tasks=["gcd"],
        complexity_mode="curriculum",
        group_size=1,
        curriculum_url={url!r},
        state_folder="run",
    )
)
tasks = iter(taskset)
drawn = [json.loads(next(tasks).data.recipe) for _ in range({skipped})]
for task in itertools.islice(tasks, 60):
    trace = vf.Trace(
        task=vf.TraceTask(type="", data=task.data), agent=vf.AgentInfo(config=vf.AgentConfig())
    )
    asyncio.run(task.score(trace))
    drawn.append(json.loads(task.data.recipe))
print(json.dumps([[each["seed"], each["level"]] for each in drawn]))
"""


OF_NEMO_GYM = """
cat > nemo-gym.toml <<END
[env.taskset]
id = "nemo-gym"
dataset = "rows.jsonl"
task.resources_url = "$REWARDS"
[env.agent]
harness.id = "null"
runtime.type = "subprocess"
END
vf-eval @ nemo-gym.toml --model simulated --client.base-url "$URL" --client.api-key-var API_KEY \\
    --no-push --no-rich
"""
OF_OPENENV = """
cat > openenv.toml <<END
[env.taskset]
id = "openenv"
base_url = "$OPENENV"
resets = [
    {dataset_name = "gcd", seed = 7, size = 1},
    {dataset_name = "lcm", seed = 7, size = 1},
]
[env.player]
harness.id = "null"
runtime.type = "subprocess"
END
vf-eval @ openenv.toml --model simulated --client.base-url "$URL" --client.api-key-var API_KEY \\
    --no-push --no-rich
"""


def of_page(program: str) -> str:
    """Return the one command of the page's section that runs a program of verifiers."""
    [text] = [block.text for block in blocks_of("verifiers") if program in block.text]
    return text


async def run_shell(
    command: str, folder: Path, **variables: str
) -> list[dict[str, Any]]:
    """Run a command of verifiers, and return its traces."""
    env = {**environment(folder), "API_KEY": "x", "UV_HTTP_TIMEOUT": "180", **variables}
    await run("bash", "-euc", command, cwd=folder, env=env)
    [file] = (folder / "outputs").glob("*/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    return [trace for episode in episodes for trace in episode["traces"]]


@pytest.mark.parametrize("second", ["lcm", "due_date"])
async def test_the_page_command_scores_held_out_problems(
    second: str, tmp_path: Path
) -> None:
    with ReasoningGym(processes=1, task_modules=[OWN_TASKS]) as gym:
        problems = evaluation_problems(gym, ["gcd", second], per_task=2)
    replies = {
        p.question: f"<think>…</think><answer>{p.oracle}</answer>" for p in problems
    }
    replies[problems[0].question] = "no idea"
    async with answering(replies) as (url, asked):
        command = of_page("vf-eval").replace("lcm", second)
        traces = await run_shell(command, tmp_path, URL=url, **WITH_OWN_TASKS)
    system, user = asked[0]
    assert (system["content"], user["role"]) == (SYSTEM_PROMPTS["think"], "user")
    assert len(asked) == 4
    found = {trace["task"]["data"]["prompt"]: trace for trace in traces}
    for problem in problems:
        assert found[problem.question]["task"]["data"]["name"] == problem.recipe.task
    rewards = [found[p.question]["rewards"]["reasoning_gym"]["score"] for p in problems]
    assert rewards == [0.0, 1.0, 1.0, 1.0]
    metrics = found[problems[0].question]["metrics"]
    assert metrics["no_answer"] == 1.0
    assert sum(metrics.values()) == 1.0


async def test_the_nemo_gym_taskset_scores_rows_through_the_reward_service(
    tmp_path: Path,
) -> None:
    async with (
        AsyncReasoningGym(task_modules=[OWN_TASKS]) as gym,
        RewardService(gym, ServiceSettings(port=0)) as service,
    ):
        right, wrong = await gym.problems("gcd", level=1, count=2)
        [broken_by_json] = await gym.problems("rearc")
        problems = [
            right,
            wrong,
            broken_by_json,
            *await gym.problems("due_date", level=0),
        ]
        with (tmp_path / "rows.jsonl").open("w") as rows:
            for problem in problems:
                row = nemo_gym_row(problem, build_messages("Answer.", problem.question))
                rows.write(json.dumps(row) + "\n")
        replies = {p.question: f"<answer>{p.oracle}</answer>" for p in problems}
        replies[wrong.question] = "<answer>x</answer>"
        async with answering(replies) as (url, _):
            traces = await run_shell(
                OF_NEMO_GYM, tmp_path, URL=url, REWARDS=service.url
            )
    found = {trace["task"]["data"]["row"]["question"]: trace for trace in traces}
    rewards = [found[p.question]["rewards"]["nemo_gym"]["score"] for p in problems]
    assert rewards == [1.0, 0.0, 1.0, 1.0]
    statuses = [found[p.question]["info"]["nemo_gym"]["status"] for p in problems]
    assert statuses == ["solved", "wrong", "solved", "solved"]


def test_the_page_program_shows_training_problems(tmp_path: Path) -> None:
    program = page_program("verifiers")
    assert run_python(program, tmp_path) == shown_output("verifiers")
    of_each = "print([task.data.recipe for task in taskset.take(3)])\n"
    recipes = ast.literal_eval(run_python(program + of_each, tmp_path))
    assert all(json.loads(recipe)["seed"] % 2 == 0 for recipe in recipes)


def test_only_held_out_problems_are_finite_also_by_their_class(tmp_path: Path) -> None:
    assert ast.literal_eval(run_python(BOUNDS, tmp_path)) == [
        (False, True),
        (True, True),
        (True, False),
        (True, False),
    ]


def test_keys_are_distinct_and_the_same_in_another_order_and_with_another_prompt(
    tmp_path: Path,
) -> None:
    assert run_python(KEYS, tmp_path) == "6 True"


def test_options_of_a_stream_are_refused_for_held_out_problems(tmp_path: Path) -> None:
    assert run_python(REFUSED, tmp_path).split() == ["True"] * 3


def test_levels_fall_while_nothing_is_solved(tmp_path: Path) -> None:
    first, last = json.loads(run_python(LEARNS.format(url=None), tmp_path))
    assert first > last == 0
    with served_rewards(tmp_path) as url:
        program = LEARNS.format(url=f"{url}/run")
        assert json.loads(run_python(program, tmp_path)) == [first, 0]


def test_a_resumed_run_takes_the_same_tasks_and_then_those_that_follow(
    tmp_path: Path,
) -> None:
    with served_rewards(tmp_path) as address:
        for name, url in (("here", None), ("served", f"{address}/resumed")):
            folder = tmp_path / name
            folder.mkdir()
            before = json.loads(run_python(RESUMES.format(url=url, skipped=0), folder))
            with (folder / "run" / "tasks.jsonl").open("a") as tasks:
                tasks.write('{"recipe": {"ta')  # killed in mid-write
            after = json.loads(run_python(RESUMES.format(url=url, skipped=60), folder))
            kept = read_dump(folder / "run" / "tasks.jsonl")
            assert (len(kept.rows), kept.torn) == (120, 0)
            assert after[:60] == before
            assert len({seed for seed, _ in after}) == 120
            levels = [level for _, level in after]
            assert levels[0] > levels[60] >= levels[-1] == 0  # nothing is solved


async def test_validate_checks_the_tasks_own_answers(tmp_path: Path) -> None:
    await run(
        "bash", "-euc", of_page("vf-validate"), cwd=tmp_path, env=environment(tmp_path)
    )
    [file] = (tmp_path / "outputs").glob("*/summary.json")
    checks = json.loads(file.read_text())["checks"]
    assert {name: each["valid"] for name, each in checks.items()} == {
        "gold": 4,
        "noop": 4,
    }


def test_an_unscored_reply_is_an_error_and_not_a_zero(tmp_path: Path) -> None:
    assert run_python(UNSCORED, tmp_path) == "{'reasoning_gym': None} 1.0 True"


def test_failures_of_ours_are_errors_that_no_mean_counts(tmp_path: Path) -> None:
    """prime-rl trains on traces without an error alone, and takes their mean."""
    scores = [score for group in injected_scores() for score in group]
    program = f"SCORES = {scores!r}\nUNMAKABLE = {UNMAKABLE!r}\n{INJECTED}"
    mean = fmean(score for score in scores if score is not None)
    assert run_python(program, tmp_path) == f"True {mean:.6f}"


def test_it_does_not_import_atropos(tmp_path: Path) -> None:
    assert not loaded("reasoning_gym_taskset", tmp_path) & ATROPOS


class ByQuestion(dict[str, str]):
    """Replies by question, for messages that are OpenEnv's observations as JSON."""

    def __getitem__(self, message: str) -> str:
        return super().__getitem__(json.loads(message)["observation"]["question"])


async def test_the_openenv_taskset_plays_episodes_of_our_environment(
    tmp_path: Path,
) -> None:
    with ReasoningGym(processes=1) as gym:
        gcd, lcm = (
            gym.problem({"task": task, "seed": 7}, split="train")
            for task in ("gcd", "lcm")
        )
    replies = ByQuestion(
        {gcd.question: str(gcd.oracle), lcm.question: "<answer>0</answer>"}
    )
    with serving() as (openenv, _):
        async with answering(replies) as (url, _):
            traces = await run_shell(OF_OPENENV, tmp_path, URL=url, OPENENV=openenv)
    rewards = {
        t["task"]["data"]["name"]: t["rewards"]["openenv_reward"]["score"]
        for t in traces
    }
    assert rewards == {f"{openenv}#0": 1.0, f"{openenv}#1": 0.0}
    assert not [trace for trace in traces if trace["errors"]]
