"""Mistakes in a command line or a file are reported before the heavy imports."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_settings import checked, given

from reasoning_gym_environment.atropos.config import ReasoningGymEnvConfig, ServerConfig
from reasoning_gym_environment.cli import COMMANDS, SERVING, main
from reasoning_gym_environment.commands import problems
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.settings import (
    RETIRED_OPTIONS,
    RunFlags,
    Settings,
    build_settings,
    default_settings,
    list_options,
    read_environment,
)
from reasoning_gym_environment.util.command_line import Given

OPTIONS = list_options()
KEY = "sk-0123456789"


def refused(*arguments: str) -> str:
    """Return the error message of a command with these options."""
    with pytest.raises(FixableError) as raised:
        checked("serve", *arguments)
    return str(raised.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--limit 20",
            "--limit is for `evaluate` alone, got 20 for `serve`: leave it out",
        ),
        (
            "--openai.base_ulr x",
            "unknown option --openai.base_ulr; did you mean --openai.base_url",
        ),
        ("--grop_size 3", "unknown option --grop_size; did you mean --env.group_size?"),
        (
            "--openai.base_url http://me:hunter2@localhost/v1",
            "openai.base_url must have no user name or password, which logs would show: use an API "
            "key",
        ),
        (
            "--env.rollout_server_url :8000",
            "rollout_server_url must be a URL that starts with",
        ),
        ("--nonsense", "unknown option --nonsense; see --help-all"),
        ("--env.temperature -0.5", "temperature must be a number ≥ 0, got '-0.5'"),
        ("--env.group_size 0", "group_size must be an integer ≥ 1, got '0'"),
        ("--openai.timeout 0", "openai.timeout must be an integer ≥ 1, got '0'"),
        (
            "--openai.num_max_requests_at_once 0",
            "openai.num_max_requests_at_once must be an ",
        ),
        (
            "--openai.num_requests_for_eval -1",
            "openai.num_requests_for_eval must be an integer ≥",
        ),
        ("--env.group_size 2.5", "group_size must be an integer ≥ 1, got '2.5'"),
        ("--env.group_size None", "group_size must be an integer ≥ 1, got None"),
        (
            "--env.eval_difficulties 2",
            "eval_difficulties must be numbers from 0 to 1, got '2'",
        ),
        ("--env.task_weights gcd", "task_weights must be weights such as "),
        (
            "--env.task_weights gdc=1",
            "task_weights: unknown task or category 'gdc'; did you mean",
        ),
    ],
)
def test_a_mistake_in_an_option_is_one_sentence(options: str, said: str) -> None:
    """Those that mistakes.json has not."""
    assert refused(*options.split()).startswith(said)


def test_groups_of_one_are_refused_where_equal_scores_are_not_sent() -> None:
    said = "group_size must be ≥ 2 with ensure_scores_are_not_same, got 1"
    one, drop = ("--env.group_size", "1"), "--env.ensure_scores_are_not_same"
    for command, options in (("serve", ()), ("process", (drop, "true"))):
        with pytest.raises(FixableError, match=said):
            checked(command, *one, *options)
    for command, options in (
        ("serve", (drop, "false")),
        ("process", ()),
        ("evaluate", ()),
    ):
        checked(command, *one, *options)


@pytest.mark.parametrize("steps", ["0", "-1"])
def test_no_groups_to_collect_are_refused_by_process_alone(steps: str) -> None:
    with pytest.raises(FixableError, match=f"total_steps must be ≥ 1, got {steps}: "):
        checked("process", "--env.total_steps", steps)
    checked("serve", "--env.total_steps", steps)  # -1 takes the trainer's


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    names = (
        "dataset: gsm\nenviroment: {}\n"
        "env: {group_sise: 4, temperature: -1, max_eval_samples: 9, model_name: m}\n"
        "openai: [{base_ulr: x, timeout: 0}, {}]"
    )
    values = "env: {temperature: -1}\nopenai: {timeout: 0}\nlimit: 0"
    tasks = "env: {include_tasks: gdc, task_parameters: {lmc: {a: 1}}}\nlimit: 3"
    file = tmp_path / "file.yaml"
    for content, parts in (
        (
            names,
            [
                "'dataset'; it is no longer a setting: name tasks or",
                "'enviroment'",
                "'group_sise'; did you mean group_size",
                "max_eval_samples is no longer a setting: set num_eval_samples_per_task",
                "'model_name' below `env:`; it belongs below `openai:`",
                "'base_ulr'; did you mean base_url",
                "temperature must be a number ≥ 0, got -1",
                "openai.timeout must be an integer ≥ 1, got 0",
            ],
        ),
        (values, ["limit must", "temperature must", "openai.timeout must"]),
        (tasks, ["include_tasks: ", "task_parameters: ", "--limit is for `evaluate`"]),
    ):
        file.write_text(content)
        first, *sentences = refused("--config", str(file)).splitlines()
        assert first == f"{len(parts)} mistakes:"
        for part, sentence in zip(parts, sentences, strict=True):
            assert part in sentence


FORM = "must be settings as `name: value`, below `env:` or `openai:`, got "


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1, 2]", f"FILE: the file {FORM}list"),
        ("words", f"FILE: the file {FORM}str"),
        ("enviroment: {}", "FILE: unknown section 'enviroment'; the sections are env"),
        ("env: [1]", f"FILE: env {FORM}list"),
        (
            "openai: {base_ulr: x}",
            "FILE: unknown setting 'base_ulr'; did you mean base_url?",
        ),
        ("openai: [3]", f"FILE: a server below openai {FORM}int"),
        ("openai: 3", "FILE: openai must be a server's settings or a list of them"),
        ("env: {include_tasks: 5}", "include_tasks must be names, as a list or "),
        (
            "env: {include_tasks: [gdc]}",
            "include_tasks: unknown task or category 'gdc'",
        ),
        (
            "openai: [{difficulty: 1}]",
            "FILE: unknown setting 'difficulty' below `openai:`; it belongs below `env:`",
        ),
        (
            "env: {}\nopenai: {}\nenv: {}",
            "--config FILE: env is set twice, the second time in",
        ),
        (f"openai: {{api_key: {KEY}: 1}}", "--config FILE is not valid YAML (line 1)"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(
    tmp_path: Path, content: str, said: str
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(content)
    assert refused("--config", str(file)).replace(str(file), "FILE").startswith(said)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes(b"\xff\xfe")
    assert (
        refused(f"--config={file}") == f"--config {file} can't be read: it is not UTF-8"
    )


def test_options_win_over_the_file_at_all_its_servers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.yaml"
    server = "openai: [{model_name: a, base_url: b}]"
    file.write_text(f"env: {{seed: 1, top_p: 0.5}}\n{server}\nslurm: true")
    options = ["--config", str(file), "--env.seed", "2", "--openai.model_name", "c"]
    assert given(*options) == Given(
        env={"seed": "2", "top_p": 0.5},
        env_options=frozenset({"seed"}),
        servers=[{"model_name": "c", "base_url": "b"}],
        flags={"slurm": True},
    )
    file.write_text("openai: [{model_name: a}, {model_name: b}]\nenv:")
    assert len(given("--config", str(file)).servers) == 2
    assert [server["model_name"] for server in given(*options).servers] == ["c", "c"]
    [warning] = caplog.messages
    assert warning.startswith("--openai.model_name applies to all 2 servers of ")
    caplog.clear()
    timeout = given("--config", str(file), "--openai.timeout", "9").servers
    assert [server["timeout"] for server in timeout] == ["9", "9"]
    assert caplog.messages == []  # the file has no value of its own for either
    assert refused("--config", str(file), "--openai.base_url", "b") == (
        f"--openai.base_url sets one server, but {file} has 2: set it in the file"
    )


def test_options_that_have_no_effect_load_with_a_line_for_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.yaml"
    servers = "[{health_check: false, model_name: a}, {health_check: true}]"
    file.write_text(
        f"env: {{custom_thinking_prompt: Think., seed: 1}}\nopenai: {servers}"
    )
    assert given("--config", str(file)) == Given(
        env={"seed": 1}, servers=[{"model_name": "a"}, {}]
    )
    assert caplog.messages == [
        f"{file}: custom_thinking_prompt has no effect: set system_prompt",
        f"{file}: health_check has no effect: servers are checked at the start",
    ]


def test_options_of_a_command_that_have_no_effect_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = ("--openai.health_check", "--env.custom_thinking_prompt", "Think.")
    assert given(*options, "--env.seed", "1").env == {"seed": "1"}
    assert [message.split()[0] for message in caplog.messages] == [
        "--env.custom_thinking_prompt",
        "--openai.health_check",
    ]


def test_retired_options_are_neither_in_the_help_nor_proposed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    retired = [
        f"{section}.{name}"
        for section, options in RETIRED_OPTIONS.items()
        for name in options
    ]
    texts = [help_of(command, "--help-all", capsys) for command in SERVING]
    texts += [refused(f"--{name}s") for name in retired]
    for name in retired:
        assert not [text for text in texts if re.search(rf"{name}\b", text)]
    env = ReasoningGymEnvConfig()
    of_atropos = default_settings(
        environment=Settings(env=env, servers=[ServerConfig()], flags=RunFlags())
    )
    assert not {*retired} & {option.name for option in list_options(of_atropos)}
    settings = build_settings(Given(servers=[{"model_name": "a"}]), of_atropos)
    assert settings.servers[0].model_name == "a"


@pytest.mark.parametrize(
    "options", [f"--openai.api_key=a {KEY}", f"--openai.api_key a {KEY}"]
)
def test_a_value_out_of_place_after_the_key_is_not_shown(options: str) -> None:
    assert KEY not in refused(*options.split())


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("use_wandb", "No", False),
        ("use_wandb", 3, None),
        ("seed", 3.0, 3),
        ("seed", [3], None),
        ("temperature", "1e-3", 0.001),
        ("replica", 3, "3"),
        ("reasoning_effort", "hihg", None),
        ("max_reasoning_tokens", 3, None),
        ("worker_timeout", "soon", None),
    ],
)
def test_values_are_converted_to_their_type(name: str, value: Any, read: Any) -> None:
    one = Given(env={name: value})
    if read is not None:
        assert getattr(build_settings(one, default_settings()).env, name) == read
        return
    with pytest.raises(FixableError, match=f"^{name} must be "):
        build_settings(one, default_settings())


def test_several_mistakes_are_all_named() -> None:
    said = refused("--env.top_p", "2", "--env.worker_timeout", "soon")
    assert said == (
        "worker_timeout must be a number, got 'soon'; top_p must be a number > 0 and ≤ 1, got '2'"
    )


def help_of(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([command, option]) == 0
    return capsys.readouterr().out


def test_the_short_help_has_a_line_for_each_option_and_counts_the_omitted_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short, whole = (help_of("serve", name, capsys) for name in ("--help", "--help-all"))
    in_short, in_whole = (
        re.findall(r"^  --([\w.]+)", text, re.M) for text in (short, whole)
    )
    names = [option.name for option in OPTIONS]
    assert {*names} <= {*in_whole}
    shown = [name for name in names if name in in_short]
    assert 18 <= len(shown) <= 24
    assert all(len(line) <= 120 for line in short.splitlines())
    assert f"--help-all has {len(OPTIONS) - len(shown)} more." in short
    headings = [
        line[:-1]
        for line in short.splitlines()
        if line.endswith(":") and line[0] != " "
    ]
    assert headings == [
        *(
            "For example",
            "Common options",
            "Tasks and difficulty",
            "Scoring",
            "Evaluation",
        ),
        *("Storage", "Inference server", "Other options"),
    ]


def test_the_help_of_evaluate_is_about_evaluation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short, whole = (
        help_of("evaluate", name, capsys) for name in ("--help", "--help-all")
    )
    in_short, in_whole = (
        re.findall(r"^  --([\w.]+)", text, re.M) for text in (short, whole)
    )
    for name in ("env.eval_temperature", "env.eval_difficulties"):
        assert name in in_short[:15]
    assert "env.data_dir_to_save_evals" in in_short[:20]
    assert "in training" not in short
    of_evaluation, of_training = whole.split("\nOnly in training:\n")
    names = re.findall(r"^  --([\w.]+)", of_training, re.M)
    assert {"env.group_size", "env.total_steps", "env.complexity_mode"} <= {*names}
    assert not {*names} & {*in_short}
    assert "--help-all" in of_evaluation
    assert {option.name for option in OPTIONS} <= {*in_whole}


def test_the_help_shows_the_commands_own_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = {
        command: help_of(command, "--help-all", capsys)
        for command in ("serve", "process")
    }
    for command, name, end in (
        ("serve", "env.group_size", "[8; ≥ 1]"),
        ("serve", "env.max_token_length", "[8192; ≥ 2]"),
        ("serve", "env.steps_per_eval", "[25]"),
        ("serve", "openai.model_name", "DeepHermes-3-Llama-3-8B-Preview]"),
        ("serve", "env.complexity_mode", "[unset; random, curriculum, fixed]"),
        ("serve", "env.dump_all_rollouts", "is set. [True]"),
        ("serve", "env.max_dump_gb", "[2.0; > 0]"),
        ("process", "env.dump_all_rollouts", "is set. [True]"),
        ("process", "env.max_dump_gb", "[no limit; > 0]"),
    ):
        own = texts[command].partition(f"  --{name}")[2].partition("\n  --")[0]
        assert " ".join(own.split()).endswith(end), name


HEAVY = ("transformers", "atroposlib", "reasoning_gym", "wandb", "openai", "numpy")
MISTAKES = (
    ["serve", "--env.seed", "x"],
    ["evaluate", "--env.include_tasks", "sudok"],
    ["evalute"],
)


@pytest.mark.processes
def test_help_and_mistakes_import_nothing_heavy() -> None:
    code = f"""
import contextlib, io, sys
from reasoning_gym_environment.cli import main
for arguments in {[*([command, "--help"] for command in COMMANDS), ["tasks"], *MISTAKES]!r}:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
        main(arguments)
    print(arguments, [name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == len(COMMANDS) + 1 + len(MISTAKES)
    assert [line for line in lines if not line.endswith(" []")] == []


@pytest.mark.processes
def test_a_mistake_is_the_only_line_and_the_status_is_2() -> None:
    program = [sys.executable, "-m", "reasoning_gym_environment", "serve"]
    done = subprocess.run(
        [*program, "--env.sampling", "best"], capture_output=True, text=True
    )
    said = "error: sampling must be one of uniform, signal, got 'best'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["prove", "gcd", "-o", "FILE/proof.json"], "FILE/proof.json"),
        (["demo", "--data-dumps-dir", "FILE"], "--data-dumps-dir"),
    ],
)
def test_a_slow_command_checks_its_output_folder_first(
    tmp_path: Path, command: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main([argument.replace("FILE", str(file)) for argument in command]) == 2
    assert capsys.readouterr().err == (
        f"error: {named.replace('FILE', str(file))}: {file} is not writable "
        f"({file} is a file); choose another folder\n"
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("./mine.py, installed", ["{folder}/mine.py", "installed"]),
        ("[more/, ../mine.py]", ["{folder}/more", "{folder}/../mine.py"]),
        ("/abs/mine.py", ["/abs/mine.py"]),
    ],
)
def test_modules_of_a_file_are_relative_to_it_and_those_of_an_option_are_not(
    tmp_path: Path, given: str, found: list[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"env:\n  task_modules: {given}\n")
    needed = ["--count", "1", "-o", "x", "--config", str(file)]
    options = problems.build_parser().parse(needed)
    expected = [name.format(folder=tmp_path) for name in found]
    assert read_environment(options).task_modules == expected
    options = problems.build_parser().parse([*needed, "--task-modules", "./b.py,c"])
    assert read_environment(options).task_modules == ["./b.py", "c"]


def test_a_model_at_an_endpoint_needs_no_file() -> None:
    options = ["--model", "good", "--url", "http://other:1/v1", "--limit", "20"]
    settings = checked("evaluate", *options)
    [server] = settings.servers
    assert (server.model_name, server.base_url) == ("good", "http://other:1/v1")
    assert settings.flags.limit == 20
    with pytest.raises(
        FixableError, match="--limit: results on a --suite need all its items"
    ):
        checked("evaluate", *options, "--suite", "small")
