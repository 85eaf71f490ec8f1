"""`show` prints what was asked for, and nothing a terminal would obey."""

import subprocess
import sys
from pathlib import Path

import pytest
from stored_values import attempt, stored, write_dump

from reasoning_gym_environment.commands.show import main
from reasoning_gym_environment.errors import FixableError

SELECTION = "The files hold a selection: 2 of the 4 groups of the run\n"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    rows = [
        stored(attempt(1.0, "right"), attempt(0.25, "poor"), task="gcd"),
        stored(attempt(0.0, "\x1b[31mwrong"), attempt(None, "lost"), task="dice"),
    ]
    for number, row in zip((1, 4), rows, strict=True):
        row["number"] = number
    return write_dump(tmp_path / "dump.jsonl", rows, torn=True)


def replies(output: str) -> list[str]:
    return [
        line.split()[1] for line in output.splitlines() if line.startswith("reply ")
    ]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", ["right", "poor", r"\x1b[31mwrong", "lost"]),
        ("task:dice,lcm", [r"\x1b[31mwrong", "lost"]),
        ("task:gcd category:games,arithmetic kind:training", ["right", "poor"]),
        ("status:solved,unscored", ["right", "lost"]),
        ('task:"gcd" status:wrong reward:0.25', ["poor"]),
        ("reward:<0.5", ["poor", r"\x1b[31mwrong"]),
        ('reward:0.2..0.5,>=1 run:"a run"', ["right", "poor"]),
        (
            "group:4 level:none tokens:<=4 step:none problems:fresh",
            [r"\x1b[31mwrong", "lost"],
        ),
        ("level:0 step:0", []),
        ("WRONG", [r"\x1b[31mwrong"]),
        ("task:gcd question 2", ["right", "poor"]),
        ('"task:gcd"', []),
    ],
)
def test_what_matches_is_printed(
    where: str, expected: list[str], dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(dump), "--where", where]) == (0 if expected else 1)
    printed = capsys.readouterr()
    assert replies(printed.out) == expected
    assert (
        printed.err
        == f"{len(expected)} of {len(expected)} matching rollouts\n{SELECTION}"
    )
    assert "\x1b" not in printed.out


def test_the_category_of_an_own_task_is_its_module_as_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [stored(attempt(1.0, text), task=text) for text in ("my_task", "gcd")]
    rows[0]["source"] = "my_tasks"
    assert (
        main(
            [
                str(write_dump(tmp_path / "own.jsonl", rows)),
                "--where",
                "category:my_tasks",
            ]
        )
        == 0
    )
    assert replies(capsys.readouterr().out) == ["my_task"]


def test_a_limit_says_how_many_more_there_are(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(dump), str(dump), "--limit", "1"]) == 0
    printed = capsys.readouterr()
    assert replies(printed.out) == ["right"]
    assert printed.err == "1 of 4 matching rollouts; --limit 0 shows all\n" + SELECTION
    assert main([str(dump), "--limit", "0"]) == 0
    assert len(replies(capsys.readouterr().out)) == 4


def test_a_folder_stands_for_the_dumps_in_it(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(
        FixableError, match="run holds no dumps and no evaluation samples; give"
    ):
        main([str(folder)])
    dump.rename(folder / "reasoning_gym_environment_rollouts_r_0000.jsonl")
    assert main([str(folder)]) == 0
    assert len(replies(capsys.readouterr().out)) == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "status:right",
            "--where: unknown status 'right'; the files have solved, unscored, wrong",
        ),
        ("task:gcd,gdc", "unknown task 'gdc'; did you mean gcd"),
        ("run:b", "unknown run 'b'; the files have a run"),
        (
            "taks:gcd",
            "unknown field 'taks'; did you mean task, tokens, status?, or quote 'taks:gcd' to",
        ),
        ("level:", "level must be a number, a comparison such as >=2, a range"),
        ("reward:half", "or none, got 'half'"),
    ],
)
def test_an_unknown_condition_is_refused_with_what_there_is(
    options: str, said: str, dump: Path
) -> None:
    with pytest.raises(FixableError) as raised:
        main([str(dump), "--where", options])
    assert said in str(raised.value)


def piped(dump: Path, encoding: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "reasoning_gym_environment",
            "show",
            str(dump),
            "--limit",
            "0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONIOENCODING": encoding},
    )


@pytest.mark.processes
def test_a_closed_pipe_ends_the_command_quietly(tmp_path: Path) -> None:
    long = write_dump(
        tmp_path / "long.jsonl", [stored(*[attempt(1.0, "x" * 10_000)] * 100)]
    )
    with piped(long, "utf-8") as show:
        assert show.stdout is not None
        assert show.stderr is not None
        assert show.stdout.readline().decode().startswith("── gcd")
        show.stdout.close()
        assert show.stderr.read() == b""
        assert show.wait() == 0


@pytest.mark.processes
def test_an_encoding_that_lacks_a_character_gets_its_escape(tmp_path: Path) -> None:
    with piped(
        write_dump(tmp_path / "dump.jsonl", [stored(attempt(1.0, "é"))]), "ascii"
    ) as show:
        output, _ = show.communicate()
    assert rb"reply     \xe9" in output
    assert show.returncode == 0
