"""The proofs as text, JSON, and a page of the documentation in Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from ..records import UPSTREAM_THRESHOLD
from ..tasks.facts import LIBRARY, Floor, Floors, floors
from ..util.values import group_by
from .answers import TOLERATED_SHARE
from .checks import Result
from .findings import DEGENERATE, Finding, Kind
from .run import Proofs

COLUMNS = (
    *("task", "oracle", "chance", "constant", "no reasoning", "strategy", "wrong texts"),
    *("right and more", "forms that lose", "levels", "median ms, worst ms"),
)
"""Of the row of a task in the page's data."""

_HEAD = """\
# What reasoning-gym's verifiers pay for

<!-- generated: do not edit -->
{summary}. `python -m reasoning_gym_environment prove --all --page docs/verifier-audit.md`
writes this page and, beside it, [a row for every task](verifier-audit.json): whether its own
answers have full credit, the answers that reach [the floors](tasks.md#all-tasks), what wrong texts
and right answers with additions earn, which forms of a right answer lose credit, and the verifier's
times. Answers pass the processes that score rollouts, with screen, guards and limits. A wrong text
is a finding if it earns at least {score} on more than {share:.0%} of the items.
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
    return f"{best.solved:.0%} {kind}" if best.solved else f"0% (score {best.score:.2f})"


def row(task: Result) -> dict[str, str]:
    """Return the cells of a task by column."""
    none = Floor(label="", items=0, solved=0.0, low=0.0, high=1.0)
    chance, no_reasoning = floors().get(task.task) or Floors(chance=none, no_reasoning=none)
    and_more = (Kind.LISTING, Kind.APPENDED, Kind.DENIED, Kind.HEDGED, Kind.NEAR_MISS)
    lost = [form.replace("\n", "⏎") for form, kept in task.forms.items() if kept < 1.0]
    broken = {finding.level for finding in task.findings if finding.level is not None}
    count, late = len(task.levels) - 1, sum(level["late"] for level in task.levels)
    sound = f"{count - len(broken)}/{count}" if count else "-"
    cells = (
        task.task,
        share(task.oracle),
        floor_cell(chance),
        shown(chance.label) if chance.solved else "",
        floor_cell(no_reasoning),
        no_reasoning.label if no_reasoning.solved else "",
        best_paid(task, [kind for kind in DEGENERATE if kind not in and_more]),
        best_paid(task, and_more),
        "all" if lost and len(lost) == len(task.forms) else "  ".join(lost),
        f"{sound}, {late} late" if late else sound,
        f"{1000 * task.median_seconds:.2f}, {1000 * task.worst_seconds:.1f}",
    )
    return dict(zip(COLUMNS, cells, strict=True))


def place(finding: Finding) -> str:
    return "default" if finding.level is None else f"level {finding.level}"


def summary(proofs: Proofs) -> str:
    """Return the proofs in one line."""
    findings = [finding for task in proofs.tasks.values() for finding in task.findings]
    news = sum(not finding.explanation for finding in findings)
    return (
        f"{LIBRARY} {proofs.versions[LIBRARY]}: {len(proofs.tasks)} tasks, {len(findings)} "
        f"findings, {news} of them unexplained"
    )


def unseen(proofs: Proofs) -> list[str]:
    """Return the expected findings that were not found: repaired faults, or luck."""
    return [f"{t.task}: {', '.join(t.unseen)}" for t in proofs.tasks.values() if t.unseen]


def as_text(proofs: Proofs) -> str:
    """Return each task's verdict; all checks of a single task, else those that haven't passed."""
    lines = []
    for task in proofs.tasks.values():
        lines.append(f"{task.task}: {task.verdict.replace('_', ' ')}")
        for name, check in task.checks.items():
            if len(proofs.tasks) == 1 or check.verdict not in ("passed", "known"):
                verdict = check.verdict.replace("_", " ")
                lines.append(f"  {name.replace('_', ' '):13} {verdict:9}  {check.reason}")
                lines += [f"  {'':24} {check.example}"] if check.example else []
    counts = Counter(task.verdict.replace("_", " ") for task in proofs.tasks.values())
    lines += [f"not seen: {line}" for line in unseen(proofs)]
    return "\n".join([*lines, ", ".join(f"{count} {name}" for name, count in counts.items())])


def as_json(proofs: Proofs) -> str:
    """Return the results as JSON, without what has been drawn so far."""
    return json.dumps(
        {"versions": proofs.versions, "tasks": msgspec.to_builtins(proofs.tasks)}, indent=1
    )


def finding_rows(proofs: Proofs) -> list[dict[str, str]]:
    """Return all findings; those of one kind and reason share a row."""
    findings = [(name, one) for name, task in proofs.tasks.items() for one in task.findings]
    alike = group_by(lambda pair: (pair[0], pair[1].kind, pair[1].explanation), findings)
    return [
        {
            "task": task,
            "finding": kind,
            "where": ", ".join(place(one) for _, one in group),
            "detail": group[0][1].shown,
            "why": explanation or "**unexplained**",
        }
        for (task, kind, explanation), group in alike.items()
    ]


def page_data(proofs: Proofs) -> dict[str, Any]:
    """Return what the documentation tells, as plain JSON."""
    return {
        "summary": summary(proofs),
        "tasks": [row(task) for task in proofs.tasks.values()],
        "findings": finding_rows(proofs),
        "not seen": unseen(proofs),
    }


def as_markdown(data: Mapping[str, Any]) -> str:
    """Return the page of the documentation, in Markdown, from `page_data`."""
    table = ["| why | findings |", "| --- | --- |"]
    for why, own in group_by(lambda finding: finding["why"], data["findings"]).items():
        found = "; ".join(f"`{one['task']}` {one['finding']}: {one['detail']}" for one in own)
        table.append("| {} | {} |".format(*(text.replace("|", "\\|") for text in (why, found))))
    head = _HEAD.format(summary=data["summary"], score=UPSTREAM_THRESHOLD, share=TOLERATED_SHARE)
    lines = [
        head,
        *(table if data["findings"] else ["No findings."]),
        "",
        "Expected but not found: " + ("; ".join(data["not seen"]) or "nothing") + ".",
        "",
    ]
    return "\n".join(lines)
