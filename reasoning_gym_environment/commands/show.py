"""`show`: stored rollouts for people to read."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent

from ..report.filter import filter_rollouts
from ..scoring.channels import split_thought
from ..storage.dumps import coverage, read_groups, stored_files
from ..storage.rows import StoredGroup, StoredRollout
from ..util.command_line import Parser, number
from ..util.values import escape_control_characters
from .export import add_where_option


def main(arguments: Sequence[str]) -> int:
    """Print matching rollouts; return 1 if there are none."""
    options = build_parser().parse(arguments)
    files = stored_files(options.files)
    groups = [group for path in files for group in read_groups(path)[0]]
    matching = 0
    for group, places in filter_rollouts(groups, options.where):
        for place in places:
            matching += 1
            if options.limit == 0 or matching <= options.limit:
                text = render_rollout(group, place, full=options.full) + "\n"
                # A terminal's encoding may lack characters of a model.
                encoding = sys.stdout.encoding or "utf-8"
                print(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()  # the count comes last
    printed = min(matching, options.limit or matching)
    hint = "" if printed == matching else "; --limit 0 shows all"
    print(f"{printed} of {matching} matching rollouts{hint}", file=sys.stderr)
    training = [group for group in groups if not group.is_sample]
    if training:
        print(f"The files hold {coverage(training)}", file=sys.stderr)
    return 0 if matching else 1


def build_parser() -> Parser:
    parser = Parser("show", "Print rollouts of dumps or evaluation samples.")
    parser.option(
        "files",
        "dumps, samples, or folders",
        nargs="+",
        metavar="PATH",
        type=Path,
    )
    add_where_option(parser)
    parser.option(
        "--limit",
        "rollouts to print; 0 for all",
        type=number(int, ge=0),
        default=5,
    )
    parser.flag("--full", "print reasoning in full, and system prompts")
    return parser


def render_rollout(group: StoredGroup, number: int, *, full: bool) -> str:
    """Return a rollout, numbered from 0 in its group, as text that is safe to print.

    Args:
        full: include the whole thought and the system prompt.
    """
    rollout = group.rollouts[number]
    recipe = group.recipe
    level = "" if recipe.level is None else f", level {recipe.level:g}"
    parameters = f", {json.dumps(recipe.parameters)}" if recipe.parameters else ""
    name = f"{recipe.task} (seed {recipe.seed}{level}{parameters})"
    title = f"── {name}, rollout {number + 1} of {len(group.rollouts)} ".ljust(80, "─")
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
    """Replace the middle of a long text, but 300 characters at each end, with a note."""
    omitted = len(text) - 600
    if omitted <= 300:
        return text
    note = f"[… {omitted:,} of {len(text):,} characters omitted; --full shows them …]"
    return f"{text[:300].rstrip()}\n{note}\n{text[-300:].lstrip()}"


def explain_reward(rollout: StoredRollout, scoring: Mapping[str, object]) -> str:
    """Return how the reward was calculated; `scoring` has the settings that are known."""
    raw, bare, tagged = (
        None if score is None else f"{score:.4g}"
        for score in (
            rollout.raw_score,
            rollout.raw_form_score,
            rollout.tagged_form_score,
        )
    )
    verifier = f"verifier {raw}" if raw else "unscored"
    if bare or tagged:
        verifier += f" (bare {bare or 'not tried'}, tagged {tagged or 'not tried'})"
    if is_paid_form(rollout):
        earned = rollout.score / rollout.length_factor
        verifier += f", right in another form, which earns {earned:.4g}"
    mode = f", mode {scoring['score_mode']}" if "score_mode" in scoring else ""
    factor = f"length factor {rollout.length_factor:.4g}"
    return f"{rollout.score:.4g}: {verifier}{mode}, {factor}"


def is_paid_form(rollout: StoredRollout) -> bool:
    """Return whether a right answer has earned more than the verifier gives its form."""
    rounding = 0.001
    given = (rollout.raw_score or 0.0) * rollout.length_factor
    is_paid = rollout.length_factor > 0 and rollout.score > given + rounding
    return rollout.solved and is_paid
