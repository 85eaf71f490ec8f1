"""verl's own data loader and reward managers read our rows and call our reward function."""

import asyncio
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from injected import advantages, injected_scores
from integration_programs import (
    ATROPOS,
    OWN_TASKS,
    UNMAKABLE,
    WITH_OWN_TASKS,
    loaded,
    page_program,
    run_python,
    shown_output,
)
from served_rewards import served_rewards

from reasoning_gym_environment import ReasoningGym
from reasoning_gym_environment.commands.problems import main as write_problems
from reasoning_gym_environment.demo.server import build_tokenizer
from reasoning_gym_environment.errors import ConfigurationError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.processes,
    # Hydra and torchdata use what is going to be removed.
    pytest.mark.filterwarnings("ignore"),
]

OURS = "pkg://reasoning_gym_environment.integrations.verl"
FUNCTION = [f"reward.custom_reward_function.path={OURS}"]
STREAM = [f"data.custom_cls.path={OURS}", "data.custom_cls.name=ReasoningGymDataset"]
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
    with ReasoningGym(processes=1, task_modules=[OWN_TASKS]) as gym:
        yield gym


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write eight problems with the command; return the file."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    write_problems([*TASK, "--count", "8", "--format", "verl", "-o", str(path)])
    return str(path)


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    with served_rewards(folder, "--task-modules", OWN_TASKS) as url:
        yield url


def configured(*overrides: str) -> Any:
    """Compose the trainer's configuration as its command does."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", list(overrides))


def loader_of(config: Any, tokenizer: Any, *, workers: int, batch: int) -> Any:
    """Build the loader as verl's trainers do."""
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
    from verl.utils.dataset.rl_dataset import collate_fn

    size = config.data.train_max_samples
    dataset = create_rl_dataset(
        config.data.train_files, config.data, tokenizer, None, max_samples=size
    )
    return StatefulDataLoader(
        dataset=dataset,
        batch_size=batch,
        num_workers=workers,
        drop_last=True,
        collate_fn=collate_fn,
        sampler=create_rl_sampler(config.data, dataset),
    )


def rollouts(batch: dict[str, Any], completions: Sequence[str], tokenizer: Any) -> Any:
    """Return verl's batch of one completion for each prompt."""
    import torch
    from tensordict import TensorDict
    from verl import DataProto

    made = tokenizer(
        list(completions), padding=True, padding_side="right", return_tensors="pt"
    )
    tensors = {
        "prompts": torch.zeros((len(completions), 1), dtype=torch.int64),
        "responses": made["input_ids"],
        "attention_mask": torch.nn.functional.pad(
            made["attention_mask"], (1, 0), value=1
        ),
    }
    others = {key: value for key, value in batch.items() if key != "dummy_tensor"}
    return DataProto(TensorDict(tensors, batch_size=len(completions)), others)


def recipe_of(row: dict[str, Any]) -> dict[str, Any]:
    recipe: dict[str, Any] = json.loads(row["ground_truth"])
    return recipe


def answers(batch: dict[str, Any], gym: ReasoningGym) -> list[str]:
    """Return a right answer for each prompt, but for the first one."""
    oracles = [gym.problem(recipe_of(row)).oracle for row in batch["reward_model"]]
    return ["no idea", *(f"<answer>{oracle}</answer>" for oracle in oracles[1:])]


def test_the_page_program_scores_a_row_by_verls_configuration(
    rows: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.parquet").symlink_to(rows)
    assert run_python(page_program("verl"), tmp_path) == shown_output("verl")


@pytest.mark.parametrize("manager", ["naive", "dapo"])
def test_verls_loader_reads_the_rows_and_its_reward_managers_score(
    manager: str, rows: str, tokenizer: Any, gym: ReasoningGym
) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    name = f"reward.reward_manager.name={manager}"
    config = configured(*FUNCTION, f"data.train_files={rows}", name)
    [first, second] = loader_of(config, tokenizer, workers=2, batch=4)
    asked = {
        recipe_of(row)["seed"]
        for batch in (first, second)
        for row in batch["reward_model"]
    }
    assert len(asked) == 8
    assert first["raw_prompt"][0][-1]["role"] == "user"
    data = rollouts(first, answers(first, gym), tokenizer)
    reward_manager = load_reward_manager(config, tokenizer)

    async def score_all() -> list[dict[str, Any]]:
        reward_manager.loop = asyncio.get_running_loop()
        return [
            await reward_manager.run_single(data[n : n + 1]) for n in range(len(data))
        ]

    scored = asyncio.run(score_all())
    assert [each["reward_score"] for each in scored] == [0.0, 1.0, 1.0, 1.0]
    statuses = [each["reward_extra_info"]["status"] for each in scored]
    assert statuses == ["no_answer", "solved", "solved", "solved"]


@pytest.mark.parametrize("manager", ["naive", "remote"])
def test_reward_workers_on_ray_score_in_process_and_over_http(
    manager: str,
    rows: str,
    url: str,
    tokenizer_folder: str,
    tokenizer: Any,
    gym: ReasoningGym,
) -> None:
    import ray
    from verl.experimental.reward_loop import RewardLoopManager

    model = f"actor_rollout_ref.model.path={tokenizer_folder}"
    name = f"reward.reward_manager.name={manager}"
    served = f"+reward.custom_reward_function.reward_kwargs.url={url}"
    workers = "reward.num_workers=1"
    ray.init(num_cpus=4, include_dashboard=False)
    try:
        for more in ([], [served]):
            config = configured(
                *FUNCTION, f"data.train_files={rows}", model, name, workers, *more
            )
            [batch, _] = loader_of(config, tokenizer, workers=0, batch=4)
            reward_loop = RewardLoopManager(config)
            found = reward_loop.compute_rm_score(
                rollouts(batch, answers(batch, gym), tokenizer)
            )
            assert found.batch["rm_scores"].sum(dim=1).tolist() == [0.0, 1.0, 1.0, 1.0]
            assert found.non_tensor_batch["acc"].tolist() == [0.0, 1.0, 1.0, 1.0]
            assert set(found.non_tensor_batch["status"]) == {"no_answer", "solved"}
            for worker in reward_loop.reward_loop_workers:
                ray.kill(worker)
    finally:
        ray.shutdown()


def test_a_fork_scores_after_its_parent_did(gym: ReasoningGym) -> None:
    from reasoning_gym_environment.integrations.verl import compute_score

    [problem] = gym.problems("chain_sum", level=1)
    call = (
        "",
        f"<answer>{problem.oracle}</answer>",
        json.dumps(problem.recipe.to_json()),
    )
    solved = {"score": 1.0, "acc": 1.0, "status": "solved"}
    assert compute_score(*call) == solved
    with ProcessPoolExecutor(
        2, mp_context=multiprocessing.get_context("fork")
    ) as executor:
        forks = [executor.submit(compute_score, *call) for _ in range(4)]
        assert [fork.result(timeout=300) for fork in forks] == [solved] * 4


def test_a_task_of_ones_own_is_scored_here_and_by_a_service(
    gym: ReasoningGym, url: str, tmp_path: Path
) -> None:
    [problem] = gym.problems("due_date", level=1)
    right = f"<answer>{problem.oracle}</answer>"
    program = f"""
import os
os.environ.update({WITH_OWN_TASKS!r})
from reasoning_gym_environment.integrations.verl import compute_score
recipe = {json.dumps(problem.recipe.to_json())!r}
if __name__ == "__main__":
    print([compute_score("", reply, recipe, **served)["score"]
        for served in ({{}}, {{"url": {url!r}}}) for reply in ({right!r}, "no idea")])
"""
    assert run_python(program, tmp_path) == "[1.0, 0.0, 1.0, 0.0]"


def test_an_unscored_completion_says_so() -> None:
    from reasoning_gym_environment.integrations.verl import compute_score

    unscored = {"score": pytest.approx(0.0), "acc": 0.0, "status": "unscored"}
    assert compute_score("", "<answer>x</answer>", UNMAKABLE) == unscored


def test_a_failure_of_ours_trains_neither_its_row_nor_its_groups_others(
    gym: ReasoningGym, tokenizer: Any
) -> None:
    """Scored by verl's reward manager; verl's own GRPO would count the failures as 0."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage
    from verl.trainer.ppo.reward import load_reward_manager

    config = configured(*FUNCTION, "algorithm.adv_estimator=reasoning_gym_grpo")
    [problem] = gym.problems("chain_sum", level=1)
    recipe = json.dumps(problem.recipe.to_json())
    groups = injected_scores()
    scores = [score for group in groups for score in group]
    truths = [UNMAKABLE if score is None else recipe for score in scores]
    count = len(scores)
    batch = {
        "data_source": np.array(["chain_sum"] * count, dtype=object),
        "reward_model": np.array([{"ground_truth": t} for t in truths], dtype=object),
        "extra_info": np.array([{}] * count, dtype=object),
    }
    right = f"<answer>{problem.oracle}</answer>"
    texts = [right if score else "no idea" for score in scores]
    data = rollouts(batch, texts, tokenizer)

    async def score_all() -> list[dict[str, Any]]:
        manager = load_reward_manager(config, tokenizer)  # which takes this loop
        return [await manager.run_single(data[n : n + 1]) for n in range(count)]

    rewards = torch.zeros(data.batch["responses"].shape)
    rewards[:, -1] = torch.tensor(
        [scored["reward_score"] for scored in asyncio.run(score_all())]
    )

    def trained(estimator: str) -> list[list[float]]:
        tensors = {
            "token_level_rewards": rewards.clone(),
            "response_mask": torch.ones(rewards.shape),
        }
        uid = np.repeat(np.arange(len(groups)), len(groups[0])).astype(object)
        proto = DataProto.from_dict(tensors, {"uid": uid})
        made = compute_advantage(proto, estimator, config=config.algorithm)
        rows = made.batch["advantages"][:, -1].reshape(len(groups), -1)
        return [[float(value) for value in row] for row in rows]

    for group, ours, verls in zip(
        groups, trained(config.algorithm.adv_estimator), trained("grpo"), strict=True
    ):
        assert ours == pytest.approx(advantages(group), abs=1e-4)
        if None in group and {*group} != {None, 0.0}:  # all 0 is no signal for either
            assert ours != pytest.approx(verls, abs=1e-2)


REGISTERED = """
from hydra import compose, initialize_config_module
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.utils import create_rl_dataset

OURS = "reasoning_gym_environment.integrations.verl"
with initialize_config_module("verl.trainer.config", version_base=None):
    config = compose(
        "ppo_trainer",
        [
            "data.train_files=rows.parquet",
            f"data.custom_cls.path=pkg://{OURS}",
            "data.custom_cls.name=ReasoningGymDataset",
        ],
    )
rows = create_rl_dataset(config.data.train_files, config.data, None, None)
print(len(rows), get_adv_estimator_fn("reasoning_gym_grpo").__module__ == OURS)
"""


def test_the_trainer_that_loads_our_data_set_knows_our_estimator(
    rows: str, tmp_path: Path
) -> None:
    """verl's reward workers load the reward function, in processes of their own."""
    (tmp_path / "rows.parquet").symlink_to(rows)
    assert run_python(REGISTERED, tmp_path) == "8 True"


def test_an_answer_that_is_code_is_not_run(gym: ReasoningGym, tmp_path: Path) -> None:
    from reasoning_gym_environment.integrations.verl import compute_score

    [problem] = gym.problems("countdown", level=0)
    attack = f"<answer>__import__('pathlib').Path('{tmp_path}/ran').touch()</answer>"
    scored = compute_score("", attack, json.dumps(problem.recipe.to_json()))
    assert (scored["score"] < 0.1, scored["status"]) == (True, "rejected")
    assert not (tmp_path / "ran").exists()


def test_a_recipe_that_is_none_is_refused(url: str) -> None:
    from reasoning_gym_environment.integrations.verl import compute_score

    with pytest.raises(
        ConfigurationError, match="a recipe must be the text of a JSON object"
    ):
        compute_score("", "<answer>x</answer>", "42")
    with pytest.raises(ConfigurationError, match=r"status 422: .*'gdc'"):
        compute_score("", "<answer>x</answer>", '{"task": "gdc", "seed": 1}', url=url)


def streaming(url: str, stream: str, *more: str) -> Any:
    files = [f"data.train_files={url}/{stream}", "data.train_max_samples=400"]
    return configured(
        *FUNCTION, *STREAM, *files, "data.dataloader_num_workers=0", *more
    )


def test_a_level_rises_with_right_answers(
    url: str, tokenizer: Any, gym: ReasoningGym
) -> None:
    from verl.trainer.ppo.reward import get_custom_reward_fn

    options = [
        f"+data.reasoning_gym.options.{option}"
        for option in (
            "tasks=[chain_sum]",
            "complexity_mode=curriculum",
        )
    ]
    config = streaming(url, "rising", *options, "actor_rollout_ref.rollout.n=4")
    score = get_custom_reward_fn(config)
    loader = loader_of(config, tokenizer, workers=0, batch=4)
    assert len(loader) == 100
    levels = []
    for batch, _ in zip(loader, range(15), strict=False):
        rows = zip(batch["reward_model"], batch["extra_info"], strict=True)
        for row, extra_info in rows:
            levels.append(recipe_of(row)["level"])
            right = f"<answer>{gym.problem(recipe_of(row)).oracle}</answer>"
            for _ in range(4):  # each could be in another process
                assert (
                    score("", right, row["ground_truth"], extra_info)["status"]
                    == "solved"
                )
    assert max(levels[-10:]) > max(levels[:10])


def test_prompts_that_are_too_long_are_not_asked(url: str, tokenizer: Any) -> None:
    tasks = "+data.reasoning_gym.options.tasks=[chain_sum]"
    short = [tasks, "data.max_prompt_length=8"]
    loader = loader_of(streaming(url, "short", *short), tokenizer, workers=0, batch=1)
    with pytest.raises(
        ConfigurationError, match=r"have more than data\.max_prompt_length"
    ):
        next(iter(loader))


def test_mistakes_in_the_settings_of_a_stream_name_the_setting(
    url: str, tokenizer: Any
) -> None:
    for override, message in {
        "data.train_max_samples=-1": "set data.train_max_samples",
        "data.dataloader_num_workers=8": "data.dataloader_num_workers must be 0",
        "+data.reasoning_gym.options.group_size=8": r"group_size must be 1, .*rollout\.n",
        f"data.train_files={url}": "must be the address of a reward service and a stream's name",
    }.items():
        with pytest.raises(ConfigurationError, match=message):
            loader_of(streaming(url, "none", override), tokenizer, workers=0, batch=1)


def test_a_file_is_read_as_ever_beside_a_stream(rows: str, tokenizer: Any) -> None:
    config = configured(*FUNCTION, *STREAM, f"data.train_files={rows}")
    assert len(loader_of(config, tokenizer, workers=0, batch=1)) == 8


def test_it_does_not_import_atropos(tmp_path: Path) -> None:
    names = loaded("reasoning_gym_environment.integrations.verl", tmp_path)
    assert "verl" in names
    assert "atroposlib" not in names & ATROPOS


def test_a_draft_of_gpt_oss_is_no_answer(gym: ReasoningGym) -> None:
    """verl decodes without special tokens: the channels' names stay."""
    from reasoning_gym_environment.integrations.verl import compute_score

    [problem] = gym.problems("chain_sum", level=1)
    recipe = json.dumps(problem.recipe.to_json())
    draft = f"analysismaybe <answer>{problem.oracle}</answer>, let me check"
    whole = f"{draft}assistantfinal<answer>{problem.oracle}</answer>"
    scores = [
        compute_score("", text, recipe, reply_after="assistantfinal")["score"]
        for text in (draft, whole)
    ]
    assert scores == [0.0, 1.0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"solution_str": None}, "completion must be text, got None"),
        ({"ground_truth": 5}, "must be the text of a JSON object, got 5"),
        ({"extra_info": [1]}, r"extra_info of a row must be a mapping, got \[1\]"),
        ({"extra_info": {"curriculum_url": 5}}, "curriculum_url must be the address"),
        ({"url": 5}, "url must begin with http:// or https://, got 5"),
    ],
)
def test_wrong_types_of_a_row_are_named(
    changes: dict[str, Any], says: str, gym: ReasoningGym
) -> None:
    from reasoning_gym_environment.integrations.verl import compute_score

    [problem] = gym.problems("chain_sum", level=1)
    row: dict[str, Any] = {
        "solution_str": f"<answer>{problem.oracle}</answer>",
        "ground_truth": json.dumps(problem.recipe.to_json()),
    }
    with pytest.raises(ConfigurationError, match=says):
        compute_score("", **{**row, **changes})
