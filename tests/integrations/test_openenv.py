"""OpenEnv's own client, and TRL with it, against a server process of ours."""

import json
import math
import os
import re
import shlex
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import pytest
import reasoning_gym
from integration_programs import ATROPOS, OWN_TASKS, UNMAKABLE, loaded, run_python
from openenv import GenericEnvClient
from openenv_server import serving
from page_blocks import ROOT, blocks
from process_tree import descendants, survivors
from reasoning_gym.composite import DatasetSpec

from reasoning_gym_environment import ReasoningGym
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.integrations.openenv import (
    ReasoningGymAction,
    ReasoningGymEnvironment,
    ReasoningGymObservation,
    SharedStream,
)
from reasoning_gym_environment.proof.endpoint_proof import prove_endpoint
from reasoning_gym_environment.proof.endpoints import protocol_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

CHECK_ID = re.compile(r"`((?:static|runtime|semantic|hub|statistical)\.\w+)`")
COMPOSITE: dict[str, Any] = {"dataset_name": "composite", "seed": 1, "size": 1}
PAGE = ROOT / "docs" / "frameworks.md"
TINY_MODEL = """
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from pathlib import Path
from reasoning_gym_environment.demo.server import build_tokenizer

folder = build_tokenizer(Path("model"))
tokenizer = AutoTokenizer.from_pretrained(folder)
content = "{{ message['content'] }}"
with_tools = content + "{{ message['tool_calls'] or '' }}"
tokenizer.chat_template = tokenizer.chat_template.replace(content, with_tools)
tokenizer.save_pretrained(folder)
size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **size)).save_pretrained(folder)
"""


def page_blocks(language: str) -> list[str]:
    """The blocks of the section that run here: the client, or the server."""
    return [
        block.text
        for block in blocks(PAGE, "OpenEnv")
        if block.language == language and "test-integrations" in block.reason
    ]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server whose stream asks gcd at the level that the results ask for."""
    stream = ["--env.include_tasks", "gcd", "--env.complexity_mode", "curriculum"]
    with serving(*stream, "--env.task_modules", OWN_TASKS, "--group-size", "4") as (
        url,
        _,
    ):
        yield url


@pytest.fixture(scope="module")
def gym() -> Iterator[ReasoningGym]:
    with ReasoningGym(processes=1) as gym:
        yield gym


@pytest.fixture
def session(gym: ReasoningGym) -> ReasoningGymEnvironment:
    """An environment in this process."""
    return ReasoningGymEnvironment(gym, SharedStream(gym, ["gcd"]))


def connected(url: str) -> Any:
    return GenericEnvClient(base_url=url).sync()


def solution(question: str) -> str:
    numbers = re.findall(r"\d+", question)
    return str(math.gcd(*map(int, numbers)))


def test_an_address_that_others_reach_needs_the_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = "a-token-of-24-characters"
    monkeypatch.setenv("REASONING_GYM_OPENENV_TOKEN", token)
    with serving("--host", "0.0.0.0", "--env.include_tasks", "gcd") as (public, _):
        url = public.replace("0.0.0.0", "127.0.0.1")
        found = [
            httpx.get(f"{url}/{path}").status_code
            for path in ("health", "metadata", "web")
        ]
        assert found == [200, 401, 401]
        with pytest.raises(ConnectionError, match="401"), connected(url):
            pass
        with connected(url.replace("//", f"//token:{token}@")) as env:
            assert "Greatest Common Divisor" in env.reset().observation["question"]


def test_an_address_may_be_of_ipv6() -> None:
    with serving("--host", "::1", "--env.include_tasks", "gcd") as (url, _):
        assert url.startswith("http://[::1]:")
        assert httpx.get(f"{url}/health").status_code == 200


def test_fields_are_those_of_reasoning_gym_env() -> None:
    """As in its models.py, with the fields of OpenEnv's base classes."""
    assert set(ReasoningGymAction.model_fields) == {"answer", "metadata"}
    assert set(ReasoningGymObservation.model_fields) == {
        *("question", "score", "correct_answer", "dataset_metadata"),
        *("done", "reward", "metadata"),
    }
    wire = ReasoningGymObservation(question="?", reward=0.0).model_dump()
    assert ReasoningGymObservation(**wire) == ReasoningGymObservation(
        question="?", reward=0.0
    )
    assert ReasoningGymAction.model_json_schema()["required"] == ["answer"]


def test_an_episode_has_the_observations_of_reasoning_gym_env(url: str) -> None:
    with connected(url) as env:
        asked = env.reset(dataset_name="gcd", seed=42, size=2, episode_id="mine")
        assert (asked.reward, asked.done) == (0.0, False)
        question = asked.observation.pop("question")
        nothing = dict.fromkeys(("score", "correct_answer", "dataset_metadata"))
        assert asked.observation == {**nothing, "metadata": {}}
        state = env.state()
        assert (state["episode_id"], state["step_count"]) == ("mine", 0)
        scored = env.step({"answer": solution(question)})
        assert (scored.reward, scored.done) == (1.0, True)
        assert scored.observation["question"] is None
        assert scored.observation["score"] == 1.0
        assert scored.observation["correct_answer"] == solution(question)
        assert scored.observation["dataset_metadata"]["source_dataset"] == "gcd"
        assert scored.observation["metadata"]["status"] == "solved"
        assert env.state()["step_count"] == 1
        with pytest.raises(
            RuntimeError, match="no question to answer: call reset first"
        ):
            env.step({"answer": solution(question)})


def test_an_episode_of_a_task_of_ones_own(url: str) -> None:
    with connected(url) as env:
        answer, rewards = "no idea", []
        for _ in range(2):
            env.reset(dataset_name="due_date", seed=42, size=1)
            scored = env.step({"answer": answer})
            answer = scored.observation["correct_answer"]
            rewards.append(scored.reward)
    assert rewards == [0.0, 1.0]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("{right}", "solved"),
        (" {right}\n", "solved"),
        ("<think>hm</think>so: <answer>{right}</answer>", "solved"),
        ("hm</think>{right}", "solved"),
        ("<answer>1</answer><answer>{right}</answer>", "several_answers"),
        ("", "no_answer"),
        ("no idea", "wrong"),
    ],
)
def test_an_answer_is_bare_or_in_its_tags(
    answer: str, status: str, session: ReasoningGymEnvironment
) -> None:
    right = solution(session.reset().question or "")
    observation = session.step(ReasoningGymAction(answer=answer.format(right=right)))
    assert observation.metadata["status"] == status
    assert observation.reward == float(status == "solved")


def test_an_answer_is_bare_or_in_a_box_where_the_server_reads_boxes() -> None:
    options = ("--env.include_tasks", "gcd", "--env.answer_format", "boxed")
    replies = (
        "{right}",
        r"<think>\boxed{{1}}</think>so $\boxed{{{right}}}$",
        r"\boxed{{",
    )
    rewards = []
    with serving(*options) as (url, _), connected(url) as env:
        for reply in replies:
            right = solution(env.reset().observation["question"])
            rewards.append(env.step({"answer": reply.format(right=right)}).reward)
    assert rewards == [1.0, 1.0, 0.0]


def test_an_answer_that_a_client_parsed_is_its_text() -> None:
    answers = [
        ReasoningGymAction.model_validate({"answer": a}).answer
        for a in (4, [1, 2], "4")
    ]
    assert answers == ["4", "[1, 2]", "4"]


def test_items_are_those_of_the_library(session: ReasoningGymEnvironment) -> None:
    """None of these three questions is evaluation's, which would be drawn again."""
    config = {"min_animals": 5, "max_animals": 15}
    first = session.reset(
        dataset_name="leg_counting", dataset_config=config, seed=41, size=3
    ).question
    ours = [first, *(session.reset().question for _ in range(3))]
    library = reasoning_gym.create_dataset("leg_counting", seed=41, size=3, **config)
    assert ours == [library[index]["question"] for index in (0, 1, 2, 0)]


def test_items_of_a_composite_are_those_of_the_library(
    session: ReasoningGymEnvironment,
) -> None:
    specs: list[dict[str, Any]] = [
        {"name": "gcd", "weight": 2},
        {"name": "lcm", "config": {"max_numbers": 2}},
    ]
    first = session.reset(
        dataset_name="composite", dataset_specs=specs, seed=5, size=6
    ).question
    ours = [first, *(session.reset().question for _ in range(5))]
    library = reasoning_gym.create_dataset(
        "composite",
        seed=5,
        size=6,
        datasets=[DatasetSpec(**{"weight": 1, "config": {}, **spec}) for spec in specs],
    )
    assert ours == [library[index]["question"] for index in range(6)]


def test_a_dataset_can_have_a_level(session: ReasoningGymEnvironment) -> None:
    found = []
    for level in (0, 3):
        session.reset(dataset_name="chain_sum", seed=1, size=1, level=level)
        found.append(session.step(ReasoningGymAction(answer="0")).dataset_metadata)
    easy, hard = (metadata["recipe"] for metadata in found if metadata)
    assert (easy["level"], hard["level"]) == (0, 3)
    assert easy["parameters"] != hard["parameters"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"dataset_name": "gcd", "seed": 1},
            "seed and size must be given with dataset_name 'gcd'",
        ),
        ({"dataset_name": "gdc", "seed": 1, "size": 1}, "unknown task 'gdc'"),
        (
            {"dataset_name": "gcd", "seed": 1, "size": 0},
            "size must be an integer ≥ 1, got 0",
        ),
        (
            {"dataset_name": "gcd", "seed": 1, "size": 1, "level": 9},
            "level of gcd must be from 0",
        ),
        (
            {"dataset_name": "composite", "seed": 1, "size": 1},
            "dataset_specs must be given",
        ),
        (
            {**COMPOSITE, "dataset_specs": [{"name": "gcd", "weight": 0}] * 2},
            "dataset_specs: the sum of the weights must be > 0 and finite, got 0.0",
        ),
        (
            {**COMPOSITE, "dataset_specs": [{"name": "gcd", "weight": 1e308}] * 2},
            "dataset_specs: the sum of the weights must be > 0 and finite, got inf",
        ),
        (
            {
                "dataset_name": "composite",
                "seed": 1,
                "size": 1,
                "dataset_specs": [{"nme": "gcd"}],
            },
            "unknown setting 'nme'; did you mean name?",
        ),
        (
            {**COMPOSITE, "dataset_specs": [{"name": "gcd"}] * 257},
            "dataset_specs: the most are 256 datasets, got 257",
        ),
        (
            {**COMPOSITE, "dataset_specs": {}},
            "dataset_specs must be a list, got {}",
        ),
        (
            {**COMPOSITE, "dataset_specs": [5]},
            "dataset_specs.0 must be a mapping, got 5",
        ),
        (
            {"dataset_name": "gcd", "seed": 1, "size": 1, "dataset_config": []},
            "dataset_config must be a mapping, got []",
        ),
        ({"level": 1}, "dataset_name is missing"),
        ({"sede": 1}, "unknown setting 'sede'; did you mean seed?"),
    ],
)
def test_wrong_arguments_of_reset_are_named(
    given: dict[str, Any], says: str, session: ReasoningGymEnvironment
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        session.reset(**given)


def test_a_failure_of_scoring_is_no_reward(session: ReasoningGymEnvironment) -> None:
    session.reset()
    asked, session._problem = session._problem, json.loads(UNMAKABLE)
    with pytest.raises(RuntimeError, match="cannot score the answer now, step again: "):
        session.step(ReasoningGymAction(answer="1"))
    session._problem = asked
    assert session.step(ReasoningGymAction(answer="x")).reward == 0.0


def test_sessions_with_one_seed_are_a_group_and_levels_follow_their_results(
    url: str,
) -> None:
    def play(number: int) -> tuple[str, int, float]:
        with connected(url) as env:
            question = env.reset(seed=number // 4).observation["question"]
            level = env.state()["level"]
            return question, level, env.step({"answer": solution(question)}).reward

    with ThreadPoolExecutor(8) as pool:
        played = list(pool.map(play, range(160)))
    questions = [question for question, _, _ in played]
    groups = [questions[start : start + 4] for start in range(0, 160, 4)]
    assert all(len(set(group)) == 1 for group in groups)
    assert len(set(questions)) > 35
    assert {reward for _, _, reward in played} == {1.0}
    levels = [level for _, level, _ in played]
    assert sum(levels[-40:]) > sum(levels[:40])


def test_a_group_needs_a_seed(url: str) -> None:
    with (
        connected(url) as env,
        pytest.raises(RuntimeError, match="seed is missing: with groups"),
    ):
        env.reset()
    reply = httpx.post(f"{url}/reset", json={})
    assert reply.status_code == 422
    assert "seed is missing" in reply.json()["detail"]


def test_hostile_answers_leave_the_server_alive(url: str) -> None:
    with connected(url) as env:
        for answer in ("__import__('os')._exit(3)", "9**9**9**9"):
            env.reset(dataset_name="countdown", seed=3, size=1)
            assert env.step({"answer": answer}).reward < 0.1
        env.reset(seed=10**6)
        assert env.step({"answer": "0"}).reward == 0.0


def test_a_number_that_json_lacks_is_refused(url: str) -> None:
    body = '{"action": {"answer": "4"}, "timeout_s": NaN}'
    headers = {"Content-Type": "application/json"}
    reply = httpx.post(f"{url}/step", content=body, headers=headers)
    assert reply.status_code == 422
    assert reply.json()["detail"][0]["loc"] == ["body", "timeout_s"]


def test_one_more_session_is_refused() -> None:
    with serving("--sessions", "1") as (url, _), connected(url) as first:
        first.reset()
        with pytest.raises(RuntimeError, match="CAPACITY_REACHED"):
            connected(url).reset()


async def test_a_signal_ends_the_server_and_its_workers() -> None:
    with serving() as (url, server), connected(url) as env:
        env.reset()
        workers = descendants(server.pid)
        assert workers
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=20)
    assert not await survivors(workers)


def test_the_page_program_asks_a_question(tmp_path: Path) -> None:
    block = page_blocks("sh")[0].replace("\\\n", "")
    install, start = block.strip().splitlines()
    assert install.startswith("pip install '.[openenv]'")
    name, command, *options = shlex.split(start)
    assert (name, command, options[:2]) == (
        *("reasoning-gym-environment", "openenv"),
        ["--port", "8000"],
    )
    with serving(*options[2:]) as (url, _):
        os.environ["OPENENV"] = url
        line = run_python(page_blocks("python")[0], tmp_path)
    [shown] = [
        block.text for block in blocks(PAGE, "OpenEnv") if block.language == "text"
    ]
    assert line == shown.strip()


def test_the_example_trains_with_trl(url: str, tmp_path: Path) -> None:
    run_python(TINY_MODEL, tmp_path)
    os.environ.update(OPENENV=url, MODEL="model")
    program = ROOT / "examples" / "train_with_openenv.py"
    summary = run_python(program.read_text(encoding="utf-8"), tmp_path)
    assert "train_loss" in summary


def test_it_does_not_import_atropos(tmp_path: Path) -> None:
    assert (
        not loaded("reasoning_gym_environment.integrations.openenv", tmp_path) & ATROPOS
    )


def test_the_check_ids_on_the_page_of_certificates_are_those_of_the_policy() -> None:
    page = (ROOT / "docs" / "certificate.md").read_text(encoding="utf-8")
    policy = files("openenv") / "validation" / "policies" / "severity-v2.json"
    entries = json.loads(policy.read_text(encoding="utf-8"))["entries"]
    named = set(CHECK_ID.findall(page))
    assert len(named) > 5
    assert named <= {entry["check_id"] for entry in entries}


async def test_prove_judges_episodes_of_its_rows_and_names_those_of_other_questions() -> (
    None
):
    with ReasoningGym(processes=1) as gym:
        problems = gym.problems("gcd", count=6)
    rows: list[Any] = [
        {
            "recipe": problem.recipe.to_json(),
            "question": problem.question,
            "answer": problem.oracle,
        }
        for problem in problems
    ]
    rows.append({**rows[0], "question": "Who?"})
    with serving() as (server, _):
        url = f"{server}/step"
        result = await prove_endpoint(
            url, protocol_of(url, anywhere=False), rows, items=20, seconds=120
        )
    assert (result.verdict, result.findings, result.oracle) == ("proved", [], 1.0)
    reasons = [one.reason for one in result.not_checked]
    assert reasons[0] == "row 7: reset asks another question than the row"
