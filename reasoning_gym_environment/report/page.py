"""The report page: one HTML file that shows a whole report, or follows a run over HTTP.

The file holds the index of all groups, and the texts of groups in compressed chunks. The page
unpacks a chunk when one of its rollouts is shown, so it opens quickly whatever the texts' length.
"""

from __future__ import annotations

import json
import math
import re
import time
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from ..errors import FixableError
from ..rollouts.figures import Figure, RunFigures
from ..scoring.channels import CHANNELS
from ..storage.rows import StoredGroup
from ..util.files import replacing, require_free, require_not_read
from .data import ReportData, read_report_data
from .health import RunHealth
from .identity import TRAINING, category_of, run_of
from .index import GroupIndex
from .pairs import embedded_pairs
from .reader_notes import notes_of


class ReportedRun(NamedTuple):
    """A training run of a report, with its figures and its curriculum's target, if it has one."""

    run: str
    name: str
    figures: RunFigures
    target: float | None

    def all_figures(self) -> list[Figure]:
        return self.figures.all_figures(target=self.target)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "figures": [row.to_json() for row in self.all_figures()],
            "tasks": [row.to_json() for row in self.figures.task_figures()],
        }


def write_report(
    paths: Sequence[Path], output: Path, *, force: bool = True
) -> list[ReportedRun]:
    """Write a page from dumps, evaluation samples and metrics.json files.

    Returns:
        The figures of each training run.

    Args:
        force: whether to replace an existing page.

    Raises:
        FixableError: a file can't be read, has other content, or no file holds rollouts; or the
            page can't be written, or would replace a file that it may not.
    """
    if output.suffix not in (".html", ".htm"):
        raise FixableError(f"{output} must end in .html")
    require_not_read(output, paths)
    require_free(output, force=force)
    data = read_report_data(paths)
    index, chunks = embed(data)
    packed = [
        f'id="index">{pack(index)}',
        *(f'class="chunk">{pack(chunk)}' for chunk in chunks),
    ]
    scripts = "\n".join(
        f'<script type="text/plain" {attributes}</script>' for attributes in packed
    )
    page = _page("file", scripts, connects="'none'")
    with replacing(output) as partial:
        partial.write_text(page, encoding="utf-8", errors="replace")
    return _reported_runs(data.groups, index["runs"])


def _reported_runs(
    groups: Sequence[StoredGroup], runs: Sequence[Mapping[str, Any]]
) -> list[ReportedRun]:
    """Return the training runs with their figures."""
    figures = {
        run["id"]: ReportedRun(run["id"], run["name"], RunFigures(), run["target"])
        for run in runs
        if run["kind"] == TRAINING
    }
    for group in groups:
        run, _ = run_of(group)
        if run in figures:
            figures[run].figures.add(group, category_of(group))
    return list(figures.values())


def live_page() -> str:
    """Return the page that loads its index and its texts from `api/` beside its address."""
    return _page("http", "", connects="'self'")


def embed(data: ReportData) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the index of all groups, and rows by identifier in chunks of 25 groups.

    The rows have the texts of at most 10,000 rollouts, cut where they are too long. In the index,
    `at` is the number of a group's chunk.
    """
    kept = thin_out(data.groups)
    lengths = [len(rollout.text) for group in kept for rollout in group.rollouts]
    longest = fitting_length(lengths)
    index = GroupIndex()
    chunk_of = {id(group): place // 25 for place, group in enumerate(kept)}
    chunks: list[dict[str, Any]] = [{} for _ in range(0, len(kept), 25)]
    health: dict[str, RunHealth] = {}
    for group in data.groups:
        run, _ = run_of(group)
        health.setdefault(run, RunHealth()).add(group)
        chunk = chunk_of.get(id(group))
        identifier = index.add(group, chunk)
        if chunk is not None:
            chunks[chunk][identifier] = row_of(group, longest)
    cut = sum(length > longest for length in lengths)
    about = {
        "files": [asdict(source) for source in data.sources],
        "recorded": data.recorded,
        "held": " ".join(_held(data, len(lengths), longest, cut)),
    }
    batch = {**index.batch(), **about, "pairs": embedded_pairs(index)}
    now = time.time()
    for run in batch["runs"]:
        entry = index.runs[run["id"]]
        run["notes"] = notes_of(entry)
        trains = run["kind"] == TRAINING
        run_health = health[run["id"]]
        run["health"] = run_health.lines(
            entry.record, trains=trains, ended=run["ended"], now=now
        )
    return batch, chunks


def _held(
    data: ReportData,
    shown_rollouts: int,
    longest: int,
    cut: int,
) -> Iterator[str]:
    total = sum(source.rollouts for source in data.sources)
    if shown_rollouts < total:
        yield (
            f"This page holds the texts of {shown_rollouts:,} of {total:,} rollouts, in groups at "
            "equal distances; its figures cover all."
        )
    if cut:
        yield f"{cut:,} texts longer than {longest:,} characters are cut in the middle."
    if not data.ordered:
        yield (
            "Successful and failed groups are in separate files and some rows have no time, so "
            "the order of training is unknown."
        )


def thin_out(
    groups: Sequence[StoredGroup], max_rollouts: int = 10_000
) -> list[StoredGroup]:
    """Return groups at equal distances with about `max_rollouts` at most."""
    rollouts = sum(len(group.rollouts) for group in groups)
    kept = len(groups)
    if rollouts > max_rollouts:
        kept = max(1, len(groups) * max_rollouts // rollouts)
    return [groups[number * len(groups) // kept] for number in range(kept)]


def fitting_length(lengths: Sequence[int], max_characters: int = 40_000_000) -> int:
    """Return the length to which texts are cut, so that all have `max_characters` at most.

    The default keeps a page below about 20 MB.

    Example:
        >>> fitting_length([10, 400_000, 400_000], max_characters=100_000)
        25000
    """
    longest = 50_000
    while sum(min(length, longest) for length in lengths) > max_characters:
        longest //= 2
    return longest


def clip(text: str, longest: int) -> str:
    """Replace the middle of a text that is too long with a note."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[… {len(text) - longest:,} characters omitted …]\n{text[-half:]}"


def row_of(group: StoredGroup, longest: int) -> dict[str, Any]:
    """Return the stored row without what is too long; `cut` says whether anything is missing."""
    row: dict[str, Any] = finite(group.to_json())
    texts = [(row, "oracle")]
    for rollout in row["rollouts"]:
        texts += [
            (rollout, "answer"),
            *((message, "content") for message in rollout["conversation"]),
        ]
    for place, name in texts:
        if len(place[name] or "") > longest:
            place[name] = clip(place[name], longest)
            row["cut"] = True
    return row


def finite(value: Any) -> Any:
    """Return JSON in which numbers that only Python's JSON holds, such as NaN, are texts."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return (
        str(value) if isinstance(value, float) and not math.isfinite(value) else value
    )


def pack(value: object) -> str:
    """Return a value as JSON, deflated, in base64: nothing in it is markup."""
    plain = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    return b64encode(zlib.compress(plain)).decode("ascii")


def _page(source: str, data: str, *, connects: str) -> str:
    """Return the page; only the package's own scripts and style run in it, by their hashes."""
    names = (  # one module, in this order
        *(
            "text",
            "estimators",
            "differences",
            "source",
            "data",
            "filter",
            "table",
            "charts",
            "runs",
            "tasks",
        ),
        *(
            "time",
            "notes",
            "marks",
            "figures",
            "evaluations",
            "distributions",
            "comparison",
            "rollouts",
            "rollout",
        ),
        "main",
    )
    style = _asset("style.css")
    module = [_channels(), *(_asset(f"{name}.js") for name in names)]
    scripts = [_chart_library(), "\n".join(module)]
    allowed = " ".join(map(_source_hash, scripts))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {_source_hash(style)}; "
        f"img-src data:; connect-src {connects}; base-uri 'none'; form-action 'none'"
    )
    return Template(_asset("page.html")).substitute(
        source=source,
        policy=policy,
        style=style,
        data=data,
        scripts="\n".join(
            f'<script type="module">{script}</script>' for script in scripts
        ),
    )


def _channels() -> str:
    """Return the table of what separates thought from reply, as a line of JavaScript."""
    table = [channel._asdict() for channel in CHANNELS]
    # In a script a page's own tags are escaped.
    return f"const CHANNELS = {json.dumps(table)};".replace("<", "\\u003c")


@cache
def _chart_library() -> str:
    """Return Vega 6.4.0, Vega-Lite 6.4.3 and Vega-Embed 7.3.0 as one script with their licenses."""
    parts = [
        f"/*\n{_asset(f'vega/LICENSE.{name}.txt').strip()}\n*/\n{_asset(f'vega/{name}.min.js')}"
        for name in ("vega", "vega-lite", "vega-embed")
    ]
    # The page has no source maps, and its policy forbids loading them.
    return re.sub(
        r"^//# sourceMappingURL=.*$", "", "\n".join(parts), flags=re.MULTILINE
    )


@cache
def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
