"""Write research/verifier-audit.md and its data from a file of proofs.

reasoning-gym-environment prove --all -o proofs.json
python research/verifier_audit.py proofs.json

What the page tells of tasks that the file lacks, or that ran out of time, stays as it is, but for
the floors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from reasoning_gym_environment.proof.answers import TOLERATED_SHARE
from reasoning_gym_environment.proof.checks import Result
from reasoning_gym_environment.proof.findings import (
    DEGENERATE,
    Finding,
    Kind,
    known_findings,
)
from reasoning_gym_environment.proof.proving import Proofs
from reasoning_gym_environment.records import ATROPOS_SOLVED_SCORE
from reasoning_gym_environment.tasks.facts import LIBRARY, Floor, Floors, floors
from reasoning_gym_environment.util.values import group_by

UNEXPLAINED = "**unexplained**"
"""Why a finding that is not known is there."""

_HEAD = """\
# What reasoning-gym's verifiers pay for

<!-- generated: do not edit -->
{summary}. `reasoning-gym-environment prove --all -o proofs.json` and
`python research/verifier_audit.py proofs.json` write this page and, beside it,
[a row for every task](verifier-audit.json): whether its own answers have full credit, the answers
that reach [the floors](../docs/tasks.md#all-tasks), what wrong texts and right answers with
additions earn, which forms of a right answer lose credit, and the verifier's times. Answers pass
the processes that score rollouts, with screen, guards and limits. A wrong text is a finding if it
earns at least {score} on more than {share:.0%} of the items.
"""


def shown(answer: str) -> str:
    """Return an answer as a short literal."""
    text = repr(answer)
    return text if len(text) <= 24 else f"{text[:23]}…"


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def floor_cell(floor: Floor) -> str:
    """Return a floor with its interval and its number of items."""
    return f"{floor.solved:.0%} ({floor.low:.0%} - {floor.high:.0%} of {floor.items})"


def best_paid(task: Result, kinds: Collection[Kind]) -> str:
    """Return which of the kinds solves most items, and how many."""
    found = [(best, kind) for kind, best in task.degenerate.items() if kind in kinds]
    if not found:
        return "-"
    best, kind = max(found, key=lambda item: (item[0].solved, item[0].score))
    return (
        f"{best.solved:.0%} {kind}" if best.solved else f"0% (score {best.score:.2f})"
    )


def floor_cells(task: str) -> dict[str, str]:
    """Return the cells of a task's floors by column."""
    none = Floor(label="", items=0, solved=0.0, low=0.0, high=1.0)
    chance, no_reasoning = floors().get(task) or Floors(chance=none, no_reasoning=none)
    return {
        "chance": floor_cell(chance),
        "constant": shown(chance.label) if chance.solved else "",
        "no reasoning": floor_cell(no_reasoning),
        "strategy": no_reasoning.label if no_reasoning.solved else "",
    }


def row(task: Result) -> dict[str, str]:
    """Return the cells of a task by column."""
    and_more = (Kind.LISTING, Kind.APPENDED, Kind.DENIED, Kind.HEDGED, Kind.NEAR_MISS)
    lost = [form.replace("\n", "⏎") for form, kept in task.forms.items() if kept < 1.0]
    broken = {finding.level for finding in task.findings if finding.level is not None}
    count, late = len(task.levels) - 1, sum(level.late for level in task.levels)
    sound = f"{count - len(broken)}/{count}" if count else "-"
    degenerate = [kind for kind in DEGENERATE if kind not in and_more]
    loses_all = bool(lost) and len(lost) == len(task.forms)
    return {
        "task": task.task,
        "oracle": share(task.oracle),
        **floor_cells(task.task),
        "wrong texts": best_paid(task, degenerate),
        "right and more": best_paid(task, and_more),
        "forms that lose": "all" if loses_all else "  ".join(lost),
        "levels": f"{sound}, {late} late" if late else sound,
        "median ms, worst ms": f"{1000 * task.median_seconds:.2f}, "
        f"{1000 * task.worst_seconds:.1f}",
    }


def place(finding: Finding) -> str:
    return "default" if finding.level is None else f"level {finding.level}"


def explanation(task: str, kind: str) -> str:
    """Return the reason that is known today, whenever the task was proved."""
    return known_findings().get(task, {}).get(kind, UNEXPLAINED)


def finding_rows(results: Mapping[str, Result]) -> list[dict[str, str]]:
    """Return all findings; those of one kind share a row."""
    findings = [(name, one) for name, task in results.items() for one in task.findings]
    alike = group_by(lambda pair: (pair[0], pair[1].kind), findings)
    return [
        {
            "task": task,
            "finding": kind,
            "where": ", ".join(place(one) for _, one in group),
            "detail": group[0][1].shown,
            "why": explanation(task, kind),
        }
        for (task, kind), group in alike.items()
    ]


def number_of(rows: Iterable[Mapping[str, str]]) -> int:
    """Return how many findings share the rows."""
    return sum(len(one["where"].split(", ")) for one in rows)


def page_data(
    proofs: Proofs, earlier: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what the page tells, as plain JSON.

    Args:
        earlier: what it has told; kept of tasks that have no proof, or one that ran out of time.
    """
    earlier = earlier or {"tasks": (), "findings": ()}
    tried = dict(proofs.tasks)
    rows = {}
    for kept_row in earlier["tasks"]:
        name = kept_row["task"]
        if name not in tried or tried[name].verdict == "not_tried":
            tried.pop(name, None)
            rows[name] = kept_row | floor_cells(name)
    findings = [
        one | {"why": explanation(one["task"], one["finding"])}
        for one in earlier["findings"]
        if one["task"] in rows
    ]
    rows |= {name: row(result) for name, result in tried.items()}
    findings += finding_rows(tried)
    found = {(one["task"], one["finding"]) for one in findings}
    not_seen = {
        name: [
            kind
            for kind in sorted(known_findings().get(name, {}))
            if (name, kind) not in found
        ]
        for name in sorted(tried)
    }
    news = [one for one in findings if one["why"] == UNEXPLAINED]
    return {
        "summary": f"{LIBRARY} {proofs.versions[LIBRARY]}: {len(rows)} tasks, "
        f"{number_of(findings)} findings, {number_of(news)} of them unexplained",
        "tasks": [rows[name] for name in sorted(rows)],
        "findings": sorted(findings, key=itemgetter("task")),
        "not seen": [
            f"{name}: {', '.join(kinds)}" for name, kinds in not_seen.items() if kinds
        ],
    }


def as_markdown(data: Mapping[str, Any]) -> str:
    """Return the page in Markdown, from `page_data`."""
    table = ["| why | findings |", "| --- | --- |"]
    for why, own in group_by(lambda finding: finding["why"], data["findings"]).items():
        found = "; ".join(
            f"`{one['task']}` {one['finding']}: {one['detail']}" for one in own
        )
        table.append(
            "| {} | {} |".format(*(text.replace("|", "\\|") for text in (why, found)))
        )
    head = _HEAD.format(
        summary=data["summary"], score=ATROPOS_SOLVED_SCORE, share=TOLERATED_SHARE
    )
    lines = [
        head,
        *(table if data["findings"] else ["No findings."]),
        "",
        "Expected but not found: " + ("; ".join(data["not seen"]) or "nothing") + ".",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    proofs = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Proofs)
    page = Path(__file__).with_name("verifier-audit.md")
    stored = page.with_suffix(".json")
    data = page_data(proofs, json.loads(stored.read_text(encoding="utf-8")))
    page.write_text(as_markdown(data), encoding="utf-8")
    stored.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
