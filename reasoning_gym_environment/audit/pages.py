"""The audit as text, JSON, Markdown and one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from typing import Any

from ..records import UPSTREAM_THRESHOLD
from ..tasks.facts import Floor, Floors
from ..util.values import group_by
from .findings import DEGENERATE, TOLERATED_SHARE, Finding, Kind, TaskAudit
from .run import Audit

COLUMNS = {
    "task": "name in reasoning-gym's registry",
    "oracle": "share of the items whose own answer has full credit; - where there is none",
    "chance": "share of the items that the best constant answer solves, with its 95 % interval",
    "constant": "that answer",
    "no reasoning": "the same for the best of some hundred strategies that copy from the question, "
    "or add, subtract, multiply and sort its contents",
    "strategy": "that strategy",
    "wrong texts": "largest share of the items that a kind of wrong text solves, and the kind; the "
    "largest mean score where none is solved",
    "right and more": "the same for the right answer beside other answers or words, denied or in "
    "doubt",
    "forms that lose": "forms of a right answer that lose credit on some items",
    "levels": "levels of the ladder without a finding, and items that exceeded the deadline",
    "median ms, worst ms": "to score a right answer, over all levels",
}
"""The table's columns and their meaning."""

_HEAD = """\
# What reasoning-gym's verifiers pay for

<!-- generated: do not edit -->
{summary}. `python -m reasoning_gym_environment audit --markdown docs/verifier-audit.md --floors \
reasoning_gym_environment/tasks/chance_floors.json`
writes this page and, beside it, [a row for every task](verifier-audit.json): whether its own
answers have full credit, the answers that reach [the floors](tasks.md#all-tasks), what wrong texts
and right answers with additions earn, which forms of a right answer lose credit, and the verifier's
times. Answers pass the processes that score rollouts, with screen, guards and limits. A wrong text
is a finding if it earns at least {score} on more than {share:.0%} of the items.
"""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem;
       color: #1c1c1c; background: #fff; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd;
         vertical-align: top; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
th { position: sticky; top: 0; background: #f4f4f4; }
tr.news td { background: #fde8e8; }
@media (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #161616; } th { background: #262626; }
  th, td { border-color: #3a3a3a; } tr.news td { background: #4a1f1f; }
}
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


def best_paid(task: TaskAudit, kinds: Collection[Kind]) -> str:
    """Return which of the kinds solves most items, and how many."""
    found = [(best, kind) for kind, best in task.degenerate.items() if kind in kinds]
    if not found:
        return "-"
    best, kind = max(found, key=lambda item: (item[0].solved, item[0].score))
    return f"{best.solved:.0%} {kind}" if best.solved else f"0% (score {best.score:.2f})"


def row(task: TaskAudit) -> dict[str, str]:
    """Return the cells of a task by column."""
    chance, no_reasoning = task.floors
    and_more = (Kind.LISTING, Kind.APPENDED, Kind.DENIED, Kind.HEDGED)
    lost = [form.replace("\n", "⏎") for form, kept in task.forms.items() if kept < 1.0]
    broken = {finding.level for finding in task.findings if finding.level is not None}
    count, late = len(task.levels) - 1, sum(len(at.late) for at in task.levels)
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


def summary(audit: Audit) -> str:
    """Return the audit in one line."""
    findings = sum(len(task.findings) for task in audit.tasks)
    return (
        f"reasoning-gym {audit.library_version}: {len(audit.tasks)} tasks, {findings} findings, "
        f"{len(audit.unexplained)} of them unexplained"
    )


def unseen(audit: Audit) -> list[str]:
    """Return the expected findings that were not found: repaired faults, or luck."""
    return [f"{task.task}: {', '.join(task.unseen)}" for task in audit.tasks if task.unseen]


def as_text(audit: Audit) -> str:
    """Return an aligned table and the unexplained findings."""
    table = [{name: name for name in COLUMNS}, *(row(task) for task in audit.tasks)]
    widths = {name: max(len(line[name]) for line in table) for name in COLUMNS}
    lines = ["  ".join(f"{line[n]:{w}}" for n, w in widths.items()).rstrip() for line in table]
    news = [f"UNEXPLAINED {f.task}, {place(f)}: {f.kind}: {f.detail}" for f in audit.unexplained]
    old = [f"not seen: {line}" for line in unseen(audit)]
    return "\n".join([*lines, "", *old, *news, summary(audit)])


def as_json(audit: Audit) -> str:
    """Return the whole audit as JSON."""
    whole = {
        "library_version": audit.library_version,
        "tasks": [_task_json(task) for task in audit.tasks],
        "unexplained": len(audit.unexplained),
    }
    return json.dumps(whole, indent=1)


def _task_json(task: TaskAudit) -> dict[str, Any]:
    """Return a task's audit with the counts of each level in place of its items."""
    levels = [
        {
            "level": proof.level,
            "items": len(proof.problems),
            "below": len(proof.wrong_oracles),
            "none": proof.without_oracle,
            "error": next(iter(proof.errors), ""),
            "late": len(proof.late),
        }
        for proof in task.levels
    ]
    floors = _floors_json(task.floors)
    whole = asdict(replace(task, levels=()))
    del whole["floors"]
    return {
        **whole,
        "floor": floors["chance"],
        "no_reasoning_floor": floors["no_reasoning"],
        "levels": levels,
    }


def chance_floors(audit: Audit) -> str:
    """Return the contents of `tasks/chance_floors.json`."""
    floors = {task.task: _floors_json(task.floors) for task in audit.tasks}
    return json.dumps({"reasoning_gym": audit.library_version, "floors": floors}, indent=1) + "\n"


def _floors_json(floors: Floors) -> dict[str, dict[str, Any]]:
    return {
        kind: {k: round(v, 3) if isinstance(v, float) else v for k, v in own._asdict().items()}
        for kind, own in floors._asdict().items()
    }


def finding_rows(audit: Audit) -> list[dict[str, str]]:
    """Return all findings; those of one kind and reason share a row."""
    findings = [finding for task in audit.tasks for finding in task.findings]
    alike = group_by(lambda f: (f.task, f.kind, f.explanation), findings)
    return [
        {
            "task": task,
            "finding": kind,
            "where": ", ".join(place(one) for one in group),
            "detail": group[0].detail,
            "why": explanation or "**unexplained**",
        }
        for (task, kind, explanation), group in alike.items()
    ]


def page_data(audit: Audit) -> dict[str, Any]:
    """Return what the documentation tells, as plain JSON."""
    return {
        "summary": summary(audit),
        "tasks": [row(task) for task in audit.tasks],
        "findings": finding_rows(audit),
        "not seen": unseen(audit),
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


def _html_table(rows: Sequence[Mapping[str, str]], marked: Sequence[bool]) -> str:
    """Return a table whose marked rows stand out."""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "\n".join(
        f"<tr{' class=news' if news else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in line.values())
        + "</tr>"
        for line, news in zip(rows, marked, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def as_html(audit: Audit) -> str:
    """Return a self-contained page on which unexplained findings stand out."""
    news = {finding.task for finding in audit.unexplained}
    tasks = _html_table([row(task) for task in audit.tasks], [t.task in news for t in audit.tasks])
    found = finding_rows(audit)
    findings = (
        _html_table(found, ["unexplained" in r["why"] for r in found]) if found else "<p>None.</p>"
    )
    legend = "".join(f"<li><b>{escape(n)}</b>: {escape(says)}</li>" for n, says in COLUMNS.items())
    title = "What reasoning-gym's verifiers pay for"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><p>{escape(summary(audit))}</p>"
        f"<ul>{legend}</ul>{tasks}<h2>Findings</h2>{findings}"
        f"<p>Expected but not found: {escape('; '.join(unseen(audit))) or 'nothing'}.</p>"
        "</body></html>\n"
    )
