"""The audit as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from .report import COLUMNS, finding_rows, row, summary, unseen
from .run import Audit, unexplained

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


def _table(rows: Sequence[Mapping[str, str]], marked: Sequence[bool]) -> str:
    """Rows that are marked stand out."""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "\n".join(
        f"<tr{' class=news' if news else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in line.values())
        + "</tr>"
        for line, news in zip(rows, marked, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def as_html(audit: Audit) -> str:
    """A self-contained page; what is unexplained stands out."""
    news = {finding.task for finding in unexplained(audit)}
    tasks = _table([row(task) for task in audit.tasks], [t.task in news for t in audit.tasks])
    found = finding_rows(audit)
    findings = (
        _table(found, ["unexplained" in r["why"] for r in found]) if found else "<p>None.</p>"
    )
    legend = "".join(f"<li><b>{escape(n)}</b>: {escape(says)}</li>" for n, says in COLUMNS.items())
    title = "What reasoning-gym's verifiers pay for"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><p>{escape(summary(audit))}</p>"
        f"<ul>{legend}</ul>{tasks}<h2>Findings</h2>{findings}"
        f"<p>Known and not found this time: {escape('; '.join(unseen(audit))) or 'nothing'}.</p>"
        "</body></html>\n"
    )
