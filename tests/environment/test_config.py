"""Invalid settings are named with the way out; valid ones are read from lists and text."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from atroposlib.envs.base import APIServerConfig
from command_settings import checked, given
from huggingface_hub.utils import http_backoff
from pydantic import ValidationError

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.atropos.config import load_tokenizer, quiet_hub
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.util.command_line import describe_validation


def refusal(**settings: Any) -> str:
    """What the command line says of these settings."""
    with pytest.raises(ValidationError) as raised:
        ReasoningGymEnvConfig(**settings)
    return describe_validation(raised.value, ReasoningGymEnvConfig.model_fields)


def test_a_value_out_of_range_is_named_with_its_setting() -> None:
    for name, values in {
        "temperature": [-0.5],
        "eval_temperature": [-1.0],
        "top_p": [0.0, 1.5],
        "length_penalty_start": [1.0, -0.25],
        "num_eval_samples_per_task": [0],
        "eval_attempts": [0],
        "eval_difficulties": ["0.5,1.5", [-0.25], ["nan"], "hard"],
        "rollout_save_score_threshold": [1.25],
        "task_processes": [0],
        "generation_timeout": [0.0],
        "verify_timeout": [-3.0],
        "group_size": [0],
        "max_token_length": [1],
        "max_eval_workers": [0],
        "max_num_workers": [0],
        "inference_weight": [float("nan"), float("inf")],
        "max_num_workers_per_node": [0],
        "max_batches_offpolicy": [0],
        "eval_limit_ratio": [-0.5, 1.5],
        "min_batch_allocation": [-0.1, 1.5],
        "seed": ["many"],
        "complexity_mode": ["hard"],
        "difficulty": [1.5],
        "curriculum_target_accuracy": [1.0],
        "sampling": ["greedy"],
        "task_parameters": ["chain_sum=3", "[3]"],
    }.items():
        for value in values:
            said = refusal(**{name: value})
            assert name in said, (name, value)
            assert str(value) in said, (name, value)
            assert "\n" not in said, (name, value)


def test_the_defaults_of_the_command_line_are_valid() -> None:
    config, _ = ReasoningGymEnv.config_init()
    assert ReasoningGymEnvConfig(**config.model_dump()) == config


def test_a_contradiction_or_an_unknown_setting_is_named() -> None:
    for said, settings in {
        "unknown setting 'inclde_tasks'; did you mean include_tasks": {
            "inclde_tasks": "gcd"
        },
        "batch_size must be ≥ group_size (8), got 4": {
            "batch_size": 4,
            "group_size": 8,
        },
        "rollout_save_score_threshold must be < 1 with dump_rollouts, got 1": {
            "dump_rollouts": True,
            "rollout_save_score_threshold": 1,
        },
        "difficulty must be a number from 0 to 1 with ": {"complexity_mode": "fixed"},
        "difficulty must be unset with complexity_mode unset, got 0.5": {
            "difficulty": 0.5
        },
        "difficulty must be unset with complexity_mode random, got 0": {
            "complexity_mode": "random",
            "difficulty": 0,
        },
        "inference_weight must be a number > 0 or -1, got 0": {"inference_weight": 0},
        "max_num_workers must be a number > 0 or -1, got -2": {"max_num_workers": -2},
    }.items():
        assert said in refusal(**settings)


def test_values_come_as_text_and_as_they_are() -> None:
    tasks = ["gcd, games,", ["gcd", " games "], "gcd,games"]
    parameters = {"gcd": {"max_value": 9}}
    for name, values, read in (
        ("include_tasks", tasks, ["gcd", "games"]),
        ("exclude_tasks", tasks, ["gcd", "games"]),
        (
            "eval_difficulties",
            ["0.75, 0,0.75,", [0.75, 0.0], ["0", "0.75"]],
            [0.0, 0.75],
        ),
        (
            "task_weights",
            ["gcd=2, games=0.5", {"gcd": 2, "games": 0.5}],
            {"gcd": 2, "games": 0.5},
        ),
        ("task_parameters", [json.dumps(parameters), parameters], parameters),
    ):
        for value in values:
            assert getattr(ReasoningGymEnvConfig(**{name: value}), name) == read, (
                name,
                value,
            )


def test_a_bad_weight_is_named() -> None:
    for value, said in (
        ("gcd", "weights such as gcd=2,games=0.5, got 'gcd'"),
        ("gcd=lots", "weights such as gcd=2,games=0.5, got 'gcd=lots'"),
        ("gcd=-1", "got -1.0 for 'gcd'"),
        ({"gcd": float("nan")}, "got nan for 'gcd'"),
        ({"gcd": float("inf")}, "got inf for 'gcd'"),
    ):
        assert said in refusal(task_weights=value)


def test_what_the_loader_of_a_tokenizer_says_in_several_lines_is_whole(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(
        ConfigurationError, match=r"slow tokenizer to a fast one\. Give a name on "
    ):
        load_tokenizer(str(tmp_path))


def test_a_hub_that_does_not_answer_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = "http://127.0.0.1:1/config.json"
    with quiet_hub(), pytest.raises(Exception, match="refused"):
        http_backoff("HEAD", nowhere, base_wait_time=0)
    [said] = caplog.messages
    assert said.startswith("The Hugging Face hub doesn't answer: ")
    assert f"thrown while requesting HEAD {nowhere}" in said


def test_python_code_is_refused_what_would_stall(bench: Any) -> None:
    for server, testing, said in (
        ({}, True, "testing must be false: "),
        ({"timeout": 0}, False, "openai.timeout must be an integer ≥ 1, got 0"),
    ):
        servers = [APIServerConfig(**bench.server("http://127.0.0.1:1", **server))]
        with pytest.raises(ConfigurationError) as raised:
            ReasoningGymEnv(
                ReasoningGymEnvConfig(**bench.settings()), servers, testing=testing
            )
        assert str(raised.value).startswith(said)


def test_values_belong_to_their_option() -> None:
    for arguments, read in {
        "--env.total_steps -1": {"total_steps": "-1"},
        "--env.temperature -0.5 --env.sync_dumps": {
            "temperature": "-0.5",
            "sync_dumps": True,
        },
        "--env.total_steps -.5": {"total_steps": "-.5"},
        "--env.use_wandb --env.seed 3": {"use_wandb": True, "seed": "3"},
        "--env.use_wandb False --env.seed=None": {"use_wandb": "False", "seed": None},
        "--env.use_wandb=false": {"use_wandb": "false"},
    }.items():
        assert given(*arguments.split()).env == read


def test_a_command_line_that_cannot_be_read_is_refused() -> None:
    for arguments, said in {
        "-1": "unexpected '-1'; options start with --",
        "--env.seed 1 2": "unexpected '2' after the value of --env.seed;",
        "--env.sed 1": "unknown option --env.sed; did you mean --env.seed?",
        "--env.se 1": "unknown option --env.se; ",
        "--env.seed": "--env.seed needs a value",
        "--env.seed --env.use_wandb": "--env.seed needs a value",
        "--quiet=yes": "--quiet takes no value",
    }.items():
        with pytest.raises(ConfigurationError) as raised:
            given(*arguments.split())
        assert str(raised.value).startswith(said)


def test_options_override_the_settings_of_a_file(bench: Any) -> None:
    chosen = {
        "include_tasks": ["gcd", "lcm"],
        "exclude_tasks": ["lcm"],
        "task_weights": {"gcd": 2},
        "num_eval_samples_per_task": 3,
    }
    settings = bench.settings(data_dumps_dir="from_file", **chosen)
    file = bench.folder / "config.yaml"
    file.write_text(
        yaml.safe_dump({"env": settings, "openai": bench.server("http://x")})
    )
    given_folder = str(bench.folder / "given")
    options = ["--env.data_dumps_dir", given_folder, "--env.batch_size", "-1"]
    read = checked("evaluate", "--config", str(file), *options)
    assert (read.env.data_dumps_dir, read.env.batch_size) == (given_folder, -1)
    assert read.env.model_dump(include={*chosen}) == chosen
    assert [server.base_url for server in read.servers] == ["http://x/v1"]
