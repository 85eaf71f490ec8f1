"""What serve, process and evaluate print and write, without API keys."""

import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.atropos.config import ServerConfig
from reasoning_gym_environment.atropos.launch import launch
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.settings import (
    build_settings,
    check_start,
    default_settings,
)
from reasoning_gym_environment.storage.dumps import read_groups
from reasoning_gym_environment.tasks.catalogue import UnknownTaskError
from reasoning_gym_environment.util.command_line import Given
from reasoning_gym_environment.util.concurrency import SWITCH_SECONDS
from reasoning_gym_environment.util.files import UnwritableError
from reasoning_gym_environment.util.outages import UnreachableError

KEY = "sk-0123456789abcdef"
HALF = ScriptedPolicy(["<answer>1</answer>", "no idea"])


async def said_by(bench: Any, *arguments: str) -> tuple[list[str], list[str]]:
    """The lines that a command prints, and those that it logs; it must do well.

    It is started, since wandb ends its run where a program ends, which a forked command doesn't do
    in full.
    """
    async with bench.started_command(*arguments) as running:
        assert await running.exit_code() == 0, running.said()
    return running.printed().splitlines(), running.said().splitlines()


@pytest.mark.nightly
@pytest.mark.usefixtures("wandb_of_a_launcher")
async def test_commands_keep_everything_but_the_api_key(
    bench: Any, tokenizer: Any
) -> None:
    """Under debug logging, and with wandb, which records a program's arguments."""
    settings = {
        "debug_logging": True,
        "use_wandb": True,
        "total_steps": 3,
        "rollout_save_score_threshold": 1.0,
        "data_dir_to_save_evals": "evals",
    }
    async with PolicyServer(HALF, tokenizer) as server:
        options = [*bench.options(server.url, **settings), "--openai.api_key", KEY]
        printed, logged = await said_by(bench, "process", *options)
        assert any("returns only text" in line for line in logged)
        assert any(
            " process: " in line and f"at {server.url}" in line for line in logged
        )
        assert any("gcd: answer '1'" in line for line in logged)
        assert not any("Traceback" in line or KEY in line for line in logged)
        files = sorted((bench.folder / "dumps").glob("*.jsonl"))
        assert sum(len(read_groups(file)[0]) for file in files) == 3
        assert printed == [
            "Wrote",
            *(f"  {file}" for file in files),
            "Inspect the groups:",
            f"  reasoning-gym-environment report {' '.join(map(str, files))} -o report.html",
        ]
        printed, logged = await said_by(bench, "evaluate", "--quiet", *options)
        assert logged == []
        assert any("solved" in line for line in printed)
        assert not any(KEY in line for line in printed)
    assert (bench.folder / "evals" / "run.json").exists()
    assert (
        "api_key: withheld"
        in (bench.folder / "evals" / "evaluate_config.yaml").read_text()
    )
    [run] = bench.folder.rglob("*.wandb")
    assert b"train/percent_correct" in run.read_bytes()
    written = [path for path in bench.folder.rglob("*") if path.is_file()]
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []
    made = {path.name for path in bench.folder.iterdir()}
    assert made == {"dumps", "evals", "log.txt", "out.txt", "wandb"}


def test_a_servers_settings_are_shown_without_the_key() -> None:
    server = ServerConfig(api_key=KEY, base_url="http://host/v1", model_name="m")
    _, [default_server] = ReasoningGymEnv.config_init()
    for shown in (repr(server), str(server), f"{server}"):
        assert "http://host/v1" in shown
        assert KEY not in shown
    assert default_server.api_key == ""


@pytest.mark.parametrize("key", [12345678, ["12345678"]])
def test_a_key_of_another_form_is_refused_without_it(key: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        build_settings(Given(servers=[{"api_key": key}]), default_settings())
    assert str(raised.value) == "openai.api_key must be text, got withheld"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.touch()
    return path


def test_an_unwritable_folder_is_named_with_its_setting(bench: Any, file: Path) -> None:
    for command, named, place, others in (
        ("serve", "data_path_to_save_groups", f"{file}/groups.jsonl", {}),
        ("process", "data_path_to_save_groups", f"{file}/groups.jsonl", {}),
        ("evaluate", "data_dir_to_save_evals", str(file), {}),
        ("evaluate", "data_dir_to_save_evals", f"{file}/below", {}),
        ("serve", "data_dumps_dir", str(file), {"dump_rollouts": True}),
        ("serve", "data_dumps_dir", str(file), {"steps_per_eval": 5}),
        ("process", "data_dumps_dir", str(file), {}),
        ("evaluate", "data_dumps_dir", str(file), {}),
    ):
        given = Given(env={**bench.settings(), named: place, **others})
        with pytest.raises(UnwritableError) as raised:
            check_start(command, build_settings(given, default_settings(command)))
        assert str(raised.value) == (
            f"{named}: {place.removesuffix('/groups.jsonl')} is not writable ({file} is a file); "
            "choose another folder"
        ), (command, named)
    assert list(bench.folder.iterdir()) == [file]


class NotingEnv(ReasoningGymEnv):
    """Notes how long its event loop waits for other threads, and ends."""

    waits: ClassVar[list[float]] = []

    async def process_manager(self) -> None:
        self.waits.append(sys.getswitchinterval())
        await self.close()


def test_commands_shorten_the_switch_interval(bench: Any) -> None:
    pythons = sys.getswitchinterval()
    try:
        settings = build_settings(
            Given(env=bench.settings()), default_settings("process")
        )
        launch(NotingEnv, "process", settings)
    finally:
        sys.setswitchinterval(pythons)
    assert NotingEnv.waits == [pytest.approx(SWITCH_SECONDS)]
    assert pythons > SWITCH_SECONDS


async def test_every_new_environment_checks_its_output_folders(
    bench: Any, file: Path
) -> None:
    with pytest.raises(UnwritableError, match="data_path_to_save_groups: "):
        async with bench.unprepared(
            "http://x", data_path_to_save_groups=str(file / "g.jsonl")
        ):
            pass


async def test_a_groups_file_that_cannot_be_is_named_with_its_setting(
    bench: Any,
) -> None:
    for name, why in (
        (f"{'x' * 300}.jsonl", "File name too long"),
        ("g.html", "its own page"),
    ):
        with pytest.raises(
            UnwritableError, match=f"^data_path_to_save_groups: .*{why}"
        ):
            async with bench.unprepared(
                "http://x", data_path_to_save_groups=str(bench.folder / name)
            ) as env:
                await env.setup()


def test_slurm_outside_a_job_names_the_variable_that_is_missing(bench: Any) -> None:
    config = ReasoningGymEnvConfig(**bench.settings())
    with pytest.raises(
        ConfigurationError, match="slurm: SLURM_JOB_NODELIST is not set"
    ):
        ReasoningGymEnv(config, [ServerConfig()], slurm=True)


async def test_a_folder_without_a_tokenizer_is_named(
    bench: Any, tmp_path: Path
) -> None:
    """It raises ValueError, where a folder that is missing raises OSError."""
    with pytest.raises(ConfigurationError) as raised:
        async with bench.unprepared("http://x", tokenizer_name=str(tmp_path)):
            pass
    said = str(raised.value)
    assert said.startswith(
        f"tokenizer_name '{tmp_path}' (or the server's) can't be loaded"
    )
    assert "\n" not in said


def test_an_environment_without_servers_is_refused(bench: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ReasoningGymEnv(ReasoningGymEnvConfig(**bench.settings()), [])
    assert str(raised.value) == "server_configs is empty: give the settings of a server"


async def test_task_names_are_checked_before_waiting_for_a_server(bench: Any) -> None:
    settings = {
        "include_tasks": "gcd,sudok",
        "rollout_server_url": "http://127.0.0.1:1",
    }
    for start in (ReasoningGymEnv.env_manager, ReasoningGymEnv.setup):
        async with bench.unprepared("http://127.0.0.1:1", **settings) as env:
            with pytest.raises(
                UnknownTaskError, match="unknown task or category 'sudok'"
            ):
                await start(env)


class ConfigWithOption(ReasoningGymEnvConfig):
    of_a_subclass: int = Field(3, description="An option of a subclass.", ge=1)


class WithOption(ReasoningGymEnv):
    env_config_cls = ConfigWithOption


def test_the_class_has_the_same_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cli` is how Atropos's environments are started; its own prints the key."""
    for arguments, said in (
        ([], "type a command after the program's name: serve, process, evaluate"),
        (["srve"], "unknown command 'srve'; did you mean serve?"),
        (
            ["serve", "--env.sed", "3"],
            "unknown option --env.sed; did you mean --env.seed?",
        ),
        (
            ["serve", "--openai.api_key", KEY, "--env.seed", "x"],
            "seed must be an integer, got 'x'",
        ),
    ):
        monkeypatch.setattr(sys, "argv", ["env.py", *arguments])
        with pytest.raises(SystemExit, match="2"):
            ReasoningGymEnv.cli()
        assert capsys.readouterr().err == f"error: {said}\n"
    assert KEY not in sys.argv
    monkeypatch.setattr(sys, "argv", ["env.py", "serve", "--help"])
    WithOption.cli()
    printed = capsys.readouterr().out
    assert re.search(
        r"--env.of_a_subclass +An option of a subclass \[3; ≥ 1\]", printed
    )


async def test_a_start_that_fails_leaves_no_file_behind(bench: Any) -> None:
    path = bench.folder / "groups.jsonl"
    async with bench.unprepared(
        "http://127.0.0.1:1", data_path_to_save_groups=str(path)
    ) as env:
        env.reach_seconds = 0.1
        with pytest.raises(UnreachableError):
            await env.setup()
        assert path.exists()
    assert not path.exists()
