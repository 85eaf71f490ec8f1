"""`show`: stored rollouts for people to read."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigurationError
from ..records import Status
from ..storage.dumps import coverage, read_groups, stored_files
from ..storage.rendering import RolloutFilter, parse_condition, render_rollout
from ..storage.rows import StoredGroup
from ..tasks.catalogue import known_categories, require_known
from ..util.command_line import Parser, number

STATUSES = [status.value for status in Status]


def main(arguments: Sequence[str]) -> int:
    """Print matching rollouts; return 1 if there are none."""
    options = build_parser().parse(arguments)
    wanted = build_filter(options)
    files = stored_files(options.files)
    groups = [group for path in files for group in read_groups(path).groups]
    shown, matching = print_rollouts(groups, options, wanted)
    sys.stdout.flush()  # the count comes last
    more = "" if shown == matching else "; --limit 0 shows all"
    print(f"{shown} of {matching} matching rollouts{more}", file=sys.stderr)
    if training := [group for group in groups if not group.is_sample]:
        print(f"The files hold {coverage(training)}", file=sys.stderr)
    return 0 if matching else 1


def build_parser() -> Parser:
    parser = Parser("show", "Print rollouts of dumps or evaluation samples.")
    parser.option("files", "dumps, samples, or folders", nargs="+", metavar="PATH", type=Path)
    parser.option("--task", "tasks, separated by commas", default="")
    parser.option("--status", f"statuses, separated by commas: {', '.join(STATUSES)}", default="")
    parser.option("--score", "condition on the reward: '<0.5', '>=1', '=0'", metavar="TEST")
    parser.option("--limit", "rollouts to print; 0 for all", type=number(int, ge=0), default=5)
    parser.flag("--full", "print reasoning in full, and system prompts")
    return parser


def build_filter(options: Namespace) -> RolloutFilter:
    """Return the filter; raises ConfigurationError for an unknown status or a bad condition."""
    statuses = [name for name in options.status.split(",") if name]
    for name in statuses:
        if name not in STATUSES:
            raise ConfigurationError(f"--status must be among {', '.join(STATUSES)}, got {name!r}")
    try:
        score = parse_condition(options.score) if options.score else None
    except ValueError as error:
        raise ConfigurationError(f"--score {error}") from None
    return RolloutFilter(
        tasks=[name for name in options.task.split(",") if name],
        statuses=[Status(name) for name in statuses],
        score=score,
    )


def print_rollouts(
    groups: Sequence[StoredGroup], options: Namespace, wanted: RolloutFilter
) -> tuple[int, int]:
    """Print matching rollouts; return how many were printed and how many match."""
    matching = 0
    known = {*known_categories(), *(group.task for group in groups)}
    require_known(wanted.tasks, known, "--task", what="task")
    for group in groups:
        for index, rollout in enumerate(group.rollouts):
            if not wanted.matches(group.task, rollout):
                continue
            matching += 1
            if options.limit == 0 or matching <= options.limit:
                print_safely(render_rollout(group, index, full=options.full) + "\n")
    return min(matching, options.limit or matching), matching


def print_safely(text: str) -> None:
    """Print a text, escaping characters that the terminal's encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))
