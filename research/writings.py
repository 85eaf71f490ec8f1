"""Write the right and a wrong answer of every task in sixty ways, and check what each earns.

    python -m research.writings research/writings.csv

Every cell of the table has a rule: a writing keeps the right answer right, or it changes the value,
or the question asks for another form. No writing makes a wrong answer right, or pays it more than
the plain one. The script ends with the cells that their rule doesn't explain; `--draw 200` prints
so many cells with their texts, to be read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import json
import pickle
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.records import Problem, Recipe, Status, Verdict
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.scoring.characters import KEEPS_ITS_CHARACTERS
from reasoning_gym_environment.scoring.grading import verify_bare
from reasoning_gym_environment.tasks.facts import PLAIN_NUMBERS, known_categories

MOST_SEEDS = 60
"""Items of a task among which the one is looked for to which most writings apply."""


class Rule(Enum):
    """What a writing does to an answer."""

    WRAPPER = "a mark around the answer isn't part of it"
    CHARACTERS = "characters that look alike are alike, except where labels hold them"
    NUMBER = "an equal number is right where the question asks for a plain number"
    GRID = "blank lines and the rules of a table aren't part of a grid"
    CHANGES = "another value"
    UNIT = "a unit is right on gsm_symbolic alone"
    LIST = "a list as Python writes it"


class Writing(NamedTuple):
    """One way to write an answer; the text is unchanged where the way doesn't apply."""

    name: str
    rule: Rule
    write: Callable[[str], str]


NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
DASHES = {
    "minus": "\N{MINUS SIGN}",
    "hyphen": "\N{HYPHEN}",
    "non-breaking hyphen": "\N{NON-BREAKING HYPHEN}",
    "en dash": "\N{EN DASH}",
    "em dash": "\N{EM DASH}",
    "small hyphen": "\N{SMALL HYPHEN-MINUS}",
    "full-width hyphen": "\N{FULLWIDTH HYPHEN-MINUS}",
}
BLANKS = {
    "no-break space": "\N{NO-BREAK SPACE}",
    "narrow no-break space": "\N{NARROW NO-BREAK SPACE}",
    "thin space": "\N{THIN SPACE}",
}
INVISIBLE = {
    "zero-width space": "\N{ZERO WIDTH SPACE}",
    "byte order mark": "\N{ZERO WIDTH NO-BREAK SPACE}",
    "left-to-right mark": "\N{LEFT-TO-RIGHT MARK}",
    "right-to-left mark": "\N{RIGHT-TO-LEFT MARK}",
    "word joiner": "\N{WORD JOINER}",
}
WRAPPERS = {
    "plain": "{}",
    "bold": "**{}**",
    "italic": "*{}*",
    "bold italic": "***{}***",
    "underscores": "__{}__",
    "code": "`{}`",
    "fence": "```\n{}\n```",
    "math": "${}$",
    "display math": "$${}$$",
    "brackets of LaTeX": r"\({}\)",
    "display brackets": r"\[{}\]",
    "box": r"\boxed{{{}}}",
    "text": r"\text{{{}}}",
    "mathrm": r"\mathrm{{{}}}",
    "text in a box": r"$\boxed{{\text{{{}}}}}$",
    "answer is": "The answer is {}",
    "answer:": "Answer: {}",
    "bold answer:": "**Final answer:** {}",
    "double quotes": '"{}"',
    "curly quotes": "\N{LEFT DOUBLE QUOTATION MARK}{}\N{RIGHT DOUBLE QUOTATION MARK}",
    "single curly quotes": "\N{LEFT SINGLE QUOTATION MARK}{}\N{RIGHT SINGLE QUOTATION MARK}",
    "full stop": "{}.",
    "ideographic full stop": "{}\N{IDEOGRAPHIC FULL STOP}",
    "bullet": "\N{BULLET} {}",
    "star bullet": "* {}",
}
CHANGES = {
    "percent": "{}%",
    "percent of LaTeX": r"{} \%",
    "plus-minus": "\N{PLUS-MINUS SIGN}{}",
    "factorial": "{}!",
    "root": "\N{SQUARE ROOT}{}",
    "root of LaTeX": r"\sqrt{{{}}}",
    "thousand": "{} thousand",
    "k": "{}k",
    "dozen": "{} dozen",
    "less than": "< {}",
    "square": "{}**2",
}


def _around(mark: str) -> Callable[[str], str]:
    return lambda text: f"{mark}{text}{mark}"


def _formatted(form: str) -> Callable[[str], str]:
    return form.format


def _if_number(write: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: write(text) if NUMBER.fullmatch(text) else text


def _with_dashes(dash: str) -> Callable[[str], str]:
    sign = re.compile(r"(?<![A-Za-z0-9])-(?=[\d ])|(?<=e)-(?=\d)")
    return lambda text: sign.sub(dash, text)


def _with_blanks(blank: str) -> Callable[[str], str]:
    return lambda text: text.replace(" ", blank)


def _grouped(separator: str) -> Callable[[str], str]:
    def write(text: str) -> str:
        whole, point, places = text.partition(".")
        if not NUMBER.fullmatch(text) or len(whole.lstrip("-")) < 4:
            return text
        return f"{int(whole):,}".replace(",", separator) + point + places

    return write


def _with_digits(zero: str) -> Callable[[str], str]:
    digits = {ord("0") + value: chr(ord(zero) + value) for value in range(10)}
    return lambda text: text.translate(digits)


def _exponent(text: str) -> str:
    return (
        f"{float(text):.15e}" if float(text) == float(f"{float(text):.15e}") else text
    )


def _in_json(text: str) -> str:
    return json.dumps({"answer": text}, ensure_ascii=False)


def _is_grid(text: str) -> bool:
    return "\n" in text.strip() and "\n\n" not in text and "\n " not in text


def _with_blank_lines(text: str) -> str:
    return text.strip().replace("\n", "\n\n") if _is_grid(text) else text


def _as_table(text: str) -> str:
    rows = [line.split() for line in text.strip().split("\n")]
    if not _is_grid(text) or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return text
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _python_quotes(text: str) -> str:
    return text.replace('"', "'") if text.startswith('["') and "'" not in text else text


WRITINGS = (
    *(Writing(name, Rule.WRAPPER, _formatted(form)) for name, form in WRAPPERS.items()),
    Writing("JSON", Rule.WRAPPER, _in_json),
    Writing("name", Rule.WRAPPER, _if_number("x = {}".format)),
    *(
        Writing(name, Rule.CHARACTERS, _around(mark))
        for name, mark in INVISIBLE.items()
    ),
    *(
        Writing(name, Rule.CHARACTERS, _with_blanks(blank))
        for name, blank in BLANKS.items()
    ),
    *(
        Writing(name, Rule.CHARACTERS, _with_dashes(dash))
        for name, dash in DASHES.items()
    ),
    Writing(
        "full-width digits", Rule.CHARACTERS, _with_digits("\N{FULLWIDTH DIGIT ZERO}")
    ),
    Writing(
        "Arabic digits", Rule.CHARACTERS, _with_digits("\N{ARABIC-INDIC DIGIT ZERO}")
    ),
    Writing("comma", Rule.NUMBER, _grouped(",")),
    *(
        Writing(f"thousands with {name}", Rule.NUMBER, _grouped(blank))
        for name, blank in BLANKS.items()
    ),
    Writing("thousands of LaTeX", Rule.NUMBER, _grouped("{,}")),
    Writing("small space of LaTeX", Rule.NUMBER, _grouped(r"\,")),
    Writing("apostrophe", Rule.NUMBER, _grouped("'")),
    Writing("exponent", Rule.NUMBER, _if_number(_exponent)),
    Writing("sum", Rule.UNIT, _if_number("0 + {0} = {0}".format)),
    Writing("blank lines", Rule.GRID, _with_blank_lines),
    Writing("table", Rule.GRID, _as_table),
    Writing("Python's quotes", Rule.LIST, _python_quotes),
    *(
        Writing(name, Rule.CHANGES, _if_number(_formatted(form)))
        for name, form in CHANGES.items()
    ),
)

EXPLAINED: dict[tuple[str, str], str] = {
    ("codeio", "*"): "its answer is any JSON: quotes, objects and `e+00` are content",
    ("complex_arithmetic", "exponent"): "its verifier reads it",
    ("emoji_mystery", "*"): "its labels have curly quotes and end in a full stop",
    (
        "fraction_simplification",
        "text in a box",
    ): "the label has dollars, too: they pair up wrong",
    ("n_queens", "underscores"): "its empty squares are underscores",
    ("polynomial_equations", "exponent"): "its verifier reads it",
    ("pool_matrix", "exponent"): "its verifier reads it",
    ("power_function", "exponent"): "its verifier reads it",
    ("rubiks_cube", "single curly quotes"): "its moves have apostrophes",
    ("sentence_reordering", "*"): "its labels have curly quotes and end in a full stop",
    ("simple_equations", "name"): "its questions name another variable",
}
"""Cells that differ from their rule, with the reason; `*` for every writing."""

WRONG_SCORE = {"advanced_geometry": 0.01, "gsm_symbolic": 0.01, "power_function": 0.01}
"""What the library pays for any wrong answer, by task, unless that is nothing."""

UNREADABLE_SCORE = 0.01
"""What verifiers pay for a text that they can't read, even where a guard pays 0 for its value."""


class Case(NamedTuple):
    """A problem with a right and a wrong answer, if it has them."""

    problem: Problem
    right: str | None
    wrong: str | None


def right_answer(problem: Problem) -> str | None:
    """Return a right answer; None for tasks whose items hold none."""
    if problem.oracle:
        return problem.oracle.strip()
    metadata = pickle.loads(problem.entry)["metadata"]
    example: str | None = metadata.get("example_answer") or metadata.get(
        "example_correct_answer"
    )
    if example is None and "possible_answer" in metadata:
        example = json.dumps(
            {str(k): v for k, v in metadata["possible_answer"].items()}
        )
    return example


def _writings_that_apply(text: str) -> int:
    return sum(writing.write(text) != text for writing in WRITINGS)


async def find_case(pool: TaskPool, task: str) -> Case:
    """Return the item of a task to which most writings apply, and a wrong answer like its own."""
    answers = []
    for seed in range(2, MOST_SEEDS, 2):
        # The library fails on some items.
        with contextlib.suppress(GenerationError):
            problem = await pool.generate(Recipe(task=task, seed=seed))
            if problem.fault is None:
                answers.append((problem, right_answer(problem)))
    known = [(problem, answer) for problem, answer in answers if answer]
    if not known:
        return Case(answers[0][0], None, "0")
    # The longest of equals: a right answer of one letter is part of many texts.
    problem, right = max(
        known, key=lambda pair: (_writings_that_apply(pair[1]), len(pair[1]))
    )
    others = sorted({answer for _, answer in known} - {right}, key=_writings_that_apply)
    candidates = [*reversed(others), "0", "1"]
    verdicts = await verify_bare(problem, candidates, pool)
    wrong = [
        text
        for text, verdict in zip(candidates, verdicts, strict=True)
        if verdict.status is not Status.SOLVED
    ]
    return Case(problem, right, wrong[0] if wrong else None)


def _expects_solved(task: str, writing: Writing) -> bool:
    match writing.rule:
        case Rule.CHANGES:
            return False
        case Rule.CHARACTERS:
            return task not in KEEPS_ITS_CHARACTERS
        case Rule.NUMBER:
            return task in PLAIN_NUMBERS
        case Rule.UNIT:
            return task == "gsm_symbolic"
    return True


class Cell(NamedTuple):
    """A writing of a right or wrong answer, with its verdict and what its rule expects."""

    task: str
    writing: Writing
    is_right: bool
    text: str
    verdict: Verdict
    is_explained: bool


async def cells_of(pool: TaskPool, task: str) -> list[Cell]:
    """Score all writings of one task's right and wrong answer."""
    case = await find_case(pool, task)
    cells = []
    for is_right, answer in ((True, case.right), (False, case.wrong)):
        if answer is None:
            continue
        applied = [
            w for w in WRITINGS if w.name == "plain" or w.write(answer) != answer
        ]
        texts = [writing.write(answer) for writing in applied]
        verdicts = await verify_bare(case.problem, texts, pool)
        plain_score = verdicts[0].score or 0.0
        for writing, text, verdict in zip(applied, texts, verdicts, strict=True):
            is_solved = verdict.status is Status.SOLVED
            if is_right:
                expected = is_solved == _expects_solved(task, writing)
                if writing.rule is Rule.CHANGES:
                    expected &= (verdict.score or 0.0) <= WRONG_SCORE.get(task, 0.0)
            else:
                most = max(plain_score, UNREADABLE_SCORE)
                expected = not is_solved and (verdict.score or 0.0) <= most
            explained = expected or any(
                key in EXPLAINED for key in ((task, writing.name), (task, "*"))
            )
            cells.append(Cell(task, writing, is_right, text, verdict, explained))
    return cells


def _code(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return (
        "solved"
        if cell.verdict.status is Status.SOLVED
        else f"{cell.verdict.score or 0:.2g}"
    )


def write_table(path: Path, cells: Sequence[Cell]) -> None:
    """Write two lines a task, of its right and its wrong answer, with a column a writing."""
    by_place = {(cell.task, cell.is_right, cell.writing.name): cell for cell in cells}
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["task", "answer", *(writing.name for writing in WRITINGS)])
        for task in sorted({cell.task for cell in cells}):
            for is_right in (True, False):
                codes = [
                    _code(by_place.get((task, is_right, writing.name)))
                    for writing in WRITINGS
                ]
                table.writerow([task, "right" if is_right else "wrong", *codes])


def _line(cell: Cell) -> str:
    kind = "right" if cell.is_right else "wrong"
    earned = f"{cell.verdict.status.value} {cell.verdict.score or 0:.3g}"
    return f"{cell.task} {cell.writing.name} {kind} {earned} {cell.text!r:.160}"


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("--tasks", nargs="*", default=sorted(known_categories()))
    parser.add_argument("--draw", type=int, default=0)
    arguments = parser.parse_args()
    cells: list[Cell] = []
    settings = PoolSettings(processes=2, generation_timeout=60.0)
    async with TaskPool(settings, Counter()) as pool:
        for task in arguments.tasks:
            cells += await cells_of(pool, task)
    write_table(arguments.table, cells)
    for cell in random.Random(0).sample(cells, min(arguments.draw, len(cells))):
        print(_line(cell))
    unexplained = [cell for cell in cells if not cell.is_explained]
    for cell in unexplained:
        print("not explained:", _line(cell))
    print(
        f"{len(WRITINGS)} writings, {len(cells)} cells, {len(unexplained)} not explained"
    )
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
