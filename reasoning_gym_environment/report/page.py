"""One self-contained HTML file with a whole report.

Single rollouts are embedded as a small index and as compressed chunks of texts. The page unpacks
a chunk when one of its rollouts is shown, so it opens quickly whatever the length of the texts.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from ..errors import FixableError
from ..scoring.extraction import split_thought
from ..storage.rows import StoredGroup, StoredRollout
from ..util.files import replacing, require_not_read
from ._sections import SHAPES, Chart, Sections, build_sections, interval, shape_of, words
from .data import ReportData, category_of, read_report_data, rollouts_of, split_of

_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)
_ASSETS = files(__package__) / "assets"
_CHART_LIBRARY = ("vega", "vega-lite", "vega-embed")
"""Versions 6.4.0, 6.4.3 and 7.3.0 as published; their licenses are beside them."""

_SCRIPTS = ("theme.js", "text.js", "charts.js", "rollout.js", "samples.js")

_MAX_ROLLOUTS = 10_000
_MAX_CHARACTERS = 40_000_000
"""Of all texts together; keeps the page below about 20 MB."""

_MAX_TEXT = 50_000
_EXCERPT = 60
_CHUNK_GROUPS = 25
_SHOWN = (
    "score",
    "raw_score",
    "raw_form_score",
    "tagged_form_score",
    "length_factor",
    "tokens",
    "completion_tokens",
    "verify_seconds",
    "status",
    "detail",
    "finish_reason",
)


def write_report(paths: Sequence[Path], output: Path) -> None:
    """Write a page from dumps, evaluation samples and metrics.json files.

    Raises:
        FixableError: a file can't be read, has other content, or no file holds rollouts; or the
            page can't be written or would replace another kind of file.
    """
    if output.suffix not in (".html", ".htm"):
        raise FixableError(f"{output} must end in .html")
    require_not_read(output, paths)
    data = read_report_data(paths)
    page = _render(build_sections(data), embed_samples(data))
    with replacing(output) as partial:
        partial.write_text(page, encoding="utf-8", errors="replace")


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """The embedded rollouts.

    Attributes:
        index: columns for the list and its filters.
        chunks: texts of 25 groups each, as JSON, deflated, in base64.
        shown: number of rollouts.
        longest: longer texts are cut in the middle to this number of characters.
        cut: number of cut texts.
    """

    index: Mapping[str, Any]
    chunks: Sequence[str]
    shown: int
    longest: int
    cut: int


def embed_samples(data: ReportData) -> Samples:
    """Select at most 10,000 rollouts, cut long texts, and pack them."""
    groups = thin_out(data.groups)
    lengths = [len(rollout.text) for rollout in rollouts_of(groups)]
    longest = fitting_length(lengths)
    samples = [group_sample(group, longest) for group in groups]
    starts = range(0, len(samples), _CHUNK_GROUPS)
    return Samples(
        index=_index(groups),
        chunks=[_pack(samples[start : start + _CHUNK_GROUPS]) for start in starts],
        shown=len(lengths),
        longest=longest,
        cut=sum(length > longest for length in lengths),
    )


def thin_out(groups: Sequence[StoredGroup], most: int = _MAX_ROLLOUTS) -> list[StoredGroup]:
    """Return groups at equal distances with about `most` rollouts at most."""
    rollouts = sum(len(group.rollouts) for group in groups)
    kept = len(groups) if rollouts <= most else max(1, len(groups) * most // rollouts)
    return [groups[number * len(groups) // kept] for number in range(kept)]


def fitting_length(lengths: Sequence[int], most: int = _MAX_CHARACTERS) -> int:
    """Return the maximum length of a text at which all texts have at most `most` characters.

    Example:
        >>> fitting_length([10, 400_000, 400_000], most=100_000)
        25000
    """
    longest = _MAX_TEXT
    while sum(min(length, longest) for length in lengths) > most:
        longest //= 2
    return longest


def clip(text: str, longest: int) -> str:
    """Replace the middle of a text that is too long with a note."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[… {len(text) - longest:,} characters omitted …]\n{text[-half:]}"


def group_sample(group: StoredGroup, longest: int) -> dict[str, Any]:
    oracle = group.oracle
    mode = group.scoring.get("score_mode")
    return {
        "category": category_of(group.task),
        "level": group.recipe.level,
        "seed": group.recipe.seed,
        "time": group.time,
        "file": str(group.file),
        "oracle": None if oracle is None else clip(oracle, longest),
        "score_mode": None if mode is None else str(mode),
        "prompt": [
            {"role": m["role"], "content": clip(m["content"], longest)} for m in group.prompt
        ],
        "rollouts": [_rollout_sample(rollout, longest) for rollout in group.rollouts],
    }


def _rollout_sample(rollout: StoredRollout, longest: int) -> dict[str, Any]:
    thought, rest = split_thought(rollout.text)
    answer = rollout.answer
    return {
        "thought": clip(thought, longest),
        "rest": clip(rest, longest),
        "answer": None if answer is None else clip(answer, longest),
        **{name: getattr(rollout, name) for name in _SHOWN},
    }


def _index(groups: Sequence[StoredGroup]) -> dict[str, Any]:
    """Return columns: task, split and size of each group; status and so on of each rollout."""
    rollouts = rollouts_of(groups)
    tasks = sorted({group.task for group in groups})
    places = {task: place for place, task in enumerate(tasks)}
    return {
        "chunk_groups": _CHUNK_GROUPS,
        "tasks": tasks,
        "group_task": [places[group.task] for group in groups],
        "group_split": [split_of(group) for group in groups],
        "group_size": [len(group.rollouts) for group in groups],
        "status": [rollout.status.value for rollout in rollouts],
        "score": [round(rollout.score, 4) for rollout in rollouts],
        "tokens": [rollout.length for rollout in rollouts],
        "answer": [(rollout.answer or "")[:_EXCERPT] for rollout in rollouts],
    }


def _pack(value: object) -> str:
    plain = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    return b64encode(zlib.compress(plain)).decode("ascii")


def _render(sections: Sections, samples: Samples) -> str:
    """Render the page; only the package's own scripts and style may run in it, by their hashes."""
    style = _asset("style.css")
    scripts = [_chart_library(), "\n".join(_asset(name) for name in _SCRIPTS)]
    templates = Environment(
        loader=DictLoader({"page": _asset("page.html.j2")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"words": words, "interval": interval, "share": _percent, "json": embed}
    templates.filters["shape"] = lambda number: SHAPES[shape_of(number)]
    return templates.get_template("page").render(
        sections=sections,
        charts=_with_specs(sections.charts),
        samples=samples,
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        policy=_content_security_policy(style, scripts),
    )


@cache
def _chart_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed, each with its license, as one script."""
    parts = [
        f"/*\n{_asset(f'vega/LICENSE.{name}.txt').strip()}\n*/\n{_asset(f'vega/{name}.min.js')}"
        for name in _CHART_LIBRARY
    ]
    # The page has no source maps, and its policy forbids loading them.
    return _SOURCE_MAP.sub("", "\n".join(parts))


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _with_specs(charts: Mapping[str, Chart]) -> dict[str, Any]:
    """Return what the page's script draws: specifications by name, and each chart's data."""
    specs = {chart.spec for chart in charts.values()}
    return {
        "specs": {name: json.loads(_asset(f"charts/{name}.json")) for name in sorted(specs)},
        "charts": {place: asdict(chart) for place, chart in charts.items()},
    }


def embed(value: object) -> Markup:
    """Return JSON for a script element, without characters that could end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _content_security_policy(style: str, scripts: Sequence[str]) -> str:
    """Return a policy that loads nothing, and allows only these scripts and this style."""
    allowed = " ".join(_source_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_source_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _source_hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _percent(value: float) -> str:
    return f"{value:.1%}"
