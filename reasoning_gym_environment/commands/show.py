"""`show`: stored rollouts for people to read."""

from __future__ import annotations

import json
import operator
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from ..errors import ConfigurationError, did_you_mean
from ..records import Status
from ..report.data import EVALUATION, TRAINING, category_of, split_of
from ..scoring.extraction import split_thought
from ..storage.dumps import coverage, read_groups, stored_files
from ..storage.rows import StoredGroup, StoredRollout
from ..tasks.facts import known_categories
from ..util.command_line import Parser, number
from ..util.values import escape_control_characters

FIELDS: Mapping[str, Callable[[StoredGroup, StoredRollout], str | float | None]] = {
    "kind": lambda group, _: split_of(group),
    "run": lambda group, _: group.run,
    "task": lambda group, _: group.task,
    "category": lambda group, _: category_of(group),
    "problems": lambda group, _: "again" if group.asked_again else "fresh",
    "status": lambda _, rollout: rollout.status.value,
    "level": lambda group, _: group.recipe.level,
    "difficulty": lambda group, _: group.difficulty,
    "step": lambda group, _: group.step,
    "group": lambda group, _: group.number,
    "reward": lambda _, rollout: round(rollout.score, 4),
    "tokens": lambda _, rollout: rollout.length,
}
"""What a condition can be about: names, then numbers. The report's page has the same fields."""


def main(arguments: Sequence[str]) -> int:
    """Print matching rollouts; return 1 if there are none."""
    options = build_parser().parse(arguments)
    files = stored_files(options.files)
    groups = [group for path in files for group in read_groups(path)[0]]
    matching = 0
    for group, places in select(groups, options.where):
        for place in places:
            matching += 1
            if options.limit == 0 or matching <= options.limit:
                text = render_rollout(group, place, full=options.full) + "\n"
                encoding = sys.stdout.encoding or "utf-8"  # it may lack characters of a model
                print(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()  # the count comes last
    shown = min(matching, options.limit or matching)
    more = "" if shown == matching else "; --limit 0 shows all"
    print(f"{shown} of {matching} matching rollouts{more}", file=sys.stderr)
    if training := [group for group in groups if not group.is_sample]:
        print(f"The files hold {coverage(training)}", file=sys.stderr)
    return 0 if matching else 1


def build_parser() -> Parser:
    parser = Parser("show", "Print rollouts of dumps or evaluation samples.")
    parser.option("files", "dumps, samples, or folders", nargs="+", metavar="PATH", type=Path)
    add_where_option(parser)
    parser.option("--limit", "rollouts to print; 0 for all", type=number(int, ge=0), default=5)
    parser.flag("--full", "print reasoning in full, and system prompts")
    return parser


def add_where_option(parser: Parser) -> None:
    """Add `--where`, as of every command that selects rollouts."""
    parser.option(
        "--where",
        f"conditions such as 'task:maze,gcd level:>=3 reward:0..0.5 status:wrong'; fields are "
        f"{', '.join(FIELDS)}; other words are searched in questions and completions",
        default="",
        metavar="TEXT",
    )


def select(groups: Sequence[StoredGroup], where: str) -> Iterator[tuple[StoredGroup, list[int]]]:
    """Yield each group with the places of its rollouts that meet all conditions, unless none does.

    Several values of a field, separated by commas or in several conditions, are alternatives.

    Raises:
        ConfigurationError: a field or a value is unknown.
    """
    tests: defaultdict[str, list[Callable[[Any], bool]]] = defaultdict(list)
    words = []
    for term in re.findall(r'(?:"[^"]*"|[^\s"])+|"', where):
        field, colon, values = term.partition(":")
        if not colon or not re.fullmatch("[a-z]+", field):
            words.append(term.strip('"'))
        elif field not in FIELDS:
            hint = did_you_mean(field, FIELDS, otherwise=f"fields are {', '.join(FIELDS)}")
            quoted = f"or quote {term!r} to search for it"
            raise ConfigurationError(f"--where: unknown field {field!r}; {hint}, {quoted}")
        else:
            given = re.findall(r'"[^"]*"|[^,"]+', values) or [""]
            tests[field] += [_test(field, value.strip('"'), groups) for value in given]
    text = " ".join(words).lower()
    for group in groups:
        asked = any(text in m["content"].lower() for m in group.prompt if m["role"] != "system")
        places = [
            place
            for place, rollout in enumerate(group.rollouts)
            if asked or text in rollout.text.lower()
            if all(any(t(FIELDS[f](group, rollout)) for t in own) for f, own in tests.items())
        ]
        if places:
            yield group, places


def _test(field: str, value: str, groups: Sequence[StoredGroup]) -> Callable[[Any], bool]:
    """Return the test of a field's value that a condition stands for."""
    fixed: Mapping[str, Iterable[str]] = {
        "task": known_categories(),
        "category": known_categories().values(),
        "problems": ("fresh", "again"),
        "status": [status.value for status in Status],
        "kind": (TRAINING, EVALUATION),
        "run": (),
    }
    if field in fixed:
        there = {str(FIELDS[field](group, r)) for group in groups for r in group.rollouts}
        known = {*fixed[field], *there}
        if value not in known:
            listed = f"the files have {', '.join(sorted(there)) or 'none'}"
            hint = did_you_mean(value, sorted(known), otherwise=listed)
            raise ConfigurationError(f"--where: unknown {field} {value!r}; {hint}")
        return lambda own: bool(own == value)
    if value == "none":
        return lambda own: own is None
    figure = r"(-?\d+(?:\.\d+)?)"
    if found := re.fullmatch(rf"{figure}\.\.{figure}", value):
        low, high = map(float, found.groups())
        return lambda own: own is not None and low <= own <= high
    if not (found := re.fullmatch(rf"(<=|>=|<|>|){figure}", value)):
        raise ConfigurationError(
            f"--where: {field} must be a number, a comparison such as >=2, a range such as 2..5, "
            f"or none, got {value!r}"
        )
    names = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "": "eq"}
    compare, bound = getattr(operator, names[found[1]]), float(found[2])
    return lambda own: own is not None and bool(compare(own, bound))


def render_rollout(group: StoredGroup, number: int, *, full: bool) -> str:
    """Return a rollout, numbered from 0 in its group, as text that is safe to print.

    Args:
        full: include the whole thought and the system prompt.
    """
    rollout, recipe = group.rollouts[number], group.recipe
    level = "" if recipe.level is None else f", level {recipe.level:g}"
    parameters = f", {json.dumps(recipe.parameters)}" if recipe.parameters else ""
    name = f"{recipe.task} (seed {recipe.seed}{level}{parameters})"
    title = f"── {name}, rollout {number + 1} of {len(group.rollouts)} ".ljust(100, "─")
    thought, reply = split_thought(rollout.text)
    system = [m["content"] for m in rollout.conversation if m["role"] == "system"]
    parts = [
        *([("system", text) for text in system] if full else []),
        ("question", rollout.question),
        ("thought", thought if full else abbreviate(thought)),
        ("reply", reply),
        ("answer", "(none)" if rollout.answer is None else rollout.answer),
        ("oracle", "(none)" if group.oracle is None else group.oracle),
        ("status", ": ".join(filter(None, (rollout.status.value, rollout.detail)))),
        ("reward", explain_reward(rollout, group.scoring)),
        (
            "tokens",
            f"{rollout.completion_tokens:,} written, {rollout.tokens:,} with the prompt; "
            f"ended by {rollout.finish_reason}",
        ),
    ]
    margin = " " * 10
    sections = [
        f"{name:<10}" + indent(text.strip("\n"), margin).removeprefix(margin)
        for name, text in parts
        if text.strip()
    ]
    return escape_control_characters("\n".join([title, *sections]))


def abbreviate(text: str) -> str:
    """Replace the middle of a long text, but 300 characters at each end, with a note.

    Example:
        >>> len(abbreviate("x" * 10_000)) < 1000
        True
    """
    omitted = len(text) - 600
    if omitted <= 300:
        return text
    note = f"[… {omitted:,} of {len(text):,} characters omitted; --full shows them …]"
    return f"{text[:300].rstrip()}\n{note}\n{text[-300:].lstrip()}"


def explain_reward(rollout: StoredRollout, scoring: Mapping[str, object]) -> str:
    """Return how the reward was calculated; `scoring` has the settings that are known.

    Example:
        >>> rollout = StoredRollout(conversation=[], score=0.5, answer="4", status=Status.SOLVED,
        ...     detail="", raw_score=1.0, raw_form_score=1.0, tagged_form_score=None,
        ...     length_factor=0.5, verify_seconds=0.1, finish_reason="stop", tokens=9,
        ...     completion_tokens=4)
        >>> explain_reward(rollout, {"score_mode": "binary"})
        '0.5: verifier 1 (bare 1, tagged not tried), mode binary, length factor 0.5'
    """
    raw, bare, tagged = (
        None if score is None else f"{score:.4g}"
        for score in (rollout.raw_score, rollout.raw_form_score, rollout.tagged_form_score)
    )
    verifier = f"verifier {raw}" if raw else "unscored"
    if bare or tagged:
        verifier += f" (bare {bare or 'not tried'}, tagged {tagged or 'not tried'})"
    mode = f", mode {scoring['score_mode']}" if "score_mode" in scoring else ""
    factor = f"length factor {rollout.length_factor:.4g}"
    return f"{rollout.score:.4g}: {verifier}{mode}, {factor}"
