"""Makes one HTML file that shows a whole report and needs nothing else."""

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
from .charts import SHAPES, Chart, interval, shape_of, words
from .loading import Material, category_of, read_material, split_of
from .sections import Contents, contents_of

_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)
_ASSETS = files(__package__) / "assets"
_CHART_LIBRARY = ("vega", "vega-lite", "vega-embed")
"""Versions 6.4.0, 6.4.3 and 7.3.0, as their makers publish them; see the licences beside them."""

_SCRIPTS = ("theme.js", "text.js", "charts.js", "rollout.js", "samples.js")


def write_report(paths: Sequence[Path], output: Path) -> None:
    """Make a page from dumps, evaluation samples and metrics.json files.

    Raises:
        FixableError: a file can't be read, is something else, or no rollout is in any; or the
            page can't be written, or would replace what is no page.
    """
    if output.suffix not in (".html", ".htm"):
        raise FixableError(f"{output} is no name of a page; give one that ends in .html")
    require_not_read(output, paths)
    material = read_material(paths)
    contents = contents_of(material)
    page = render(contents, samples_of(material))
    with replacing(output) as partial:
        partial.write_text(page, encoding="utf-8", errors="replace")


def render(contents: Contents, samples: Samples) -> str:
    """Render the page; only the package's own scripts and style may run in it, by their hashes."""
    style = asset("style.css")
    scripts = [chart_library(), "\n".join(asset(name) for name in _SCRIPTS)]
    templates = Environment(
        loader=DictLoader({"page": asset("page.html.j2")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"words": words, "interval": interval, "share": share, "json": embed}
    templates.filters["shape"] = lambda number: SHAPES[shape_of(number)]
    return templates.get_template("page").render(
        contents=contents,
        charts=with_looks(contents.charts),
        samples=samples,
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        policy=content_security_policy(style, scripts),
    )


@cache
def chart_library() -> str:
    """Join Vega, Vega-Lite and Vega-Embed, each with its licence, to one script."""
    parts = [
        f"/*\n{asset(f'vega/LICENSE.{name}.txt').strip()}\n*/\n{asset(f'vega/{name}.min.js')}"
        for name in _CHART_LIBRARY
    ]
    # The maps of the sources stay behind, and the policy forbids to ask for them.
    return _SOURCE_MAP.sub("", "\n".join(parts))


def asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def with_looks(charts: Mapping[str, Chart]) -> dict[str, Any]:
    """Collect what the page's script draws: specifications by name, and each chart's values."""
    looks = {chart.looks for chart in charts.values()}
    return {
        "looks": {name: json.loads(asset(f"charts/{name}.json")) for name in sorted(looks)},
        "charts": {place: asdict(chart) for place, chart in charts.items()},
    }


def embed(value: object) -> Markup:
    """Write JSON that can stand inside a script element: nothing in it ends the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def content_security_policy(style: str, scripts: Sequence[str]) -> str:
    """Write the policy: nothing is loaded, and nothing runs or styles but these texts."""
    allowed = " ".join(source_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {source_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def source_hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def share(value: float) -> str:
    """Write a share in per cent, with one digit."""
    return f"{value:.1%}"


_MOST_ROLLOUTS = 10_000
_MOST_CHARACTERS = 40_000_000
"""Of all texts together: what keeps the page below about 20 MB."""

_LONGEST_TEXT = 50_000
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """What the page holds of the rollouts.

    Attributes:
        index: what the list and its filters need, as columns.
        chunks: texts of 25 groups each: JSON, deflated, in base64.
        shown: how many rollouts these are.
        longest: texts beyond so many characters are cut in the middle.
        cut: how many texts are.
    """

    index: Mapping[str, Any]
    chunks: Sequence[str]
    shown: int
    longest: int
    cut: int


def clip(text: str, longest: int) -> str:
    """Keep a text's beginning and end, with a note between them, where it is too long."""
    if len(text) <= longest:
        return text
    left_out = len(text) - longest
    half = longest // 2
    return f"{text[:half]}\n[… {left_out:,} characters left out …]\n{text[-half:]}"


def thin_out(groups: Sequence[StoredGroup], most: int = _MOST_ROLLOUTS) -> list[StoredGroup]:
    """Keep groups at equal distances, so many that they have at most `most` rollouts or so."""
    rollouts = sum(len(group.rollouts) for group in groups)
    kept = len(groups) if rollouts <= most else max(1, len(groups) * most // rollouts)
    return [groups[number * len(groups) // kept] for number in range(kept)]


def fitting_length(lengths: Sequence[int], most: int = _MOST_CHARACTERS) -> int:
    """Find the length that texts must be cut to so that they have `most` characters together.

    Example:
        >>> fitting_length([10, 400_000, 400_000], most=100_000)
        25000
    """
    longest = _LONGEST_TEXT
    while sum(min(length, longest) for length in lengths) > most:
        longest //= 2
    return longest


def rollout_sample(rollout: StoredRollout, longest: int) -> dict[str, Any]:
    thought, rest = split_thought(rollout.text)
    answer = rollout.answer
    return {
        "thought": clip(thought, longest),
        "rest": clip(rest, longest),
        "answer": None if answer is None else clip(answer, longest),
        **{name: getattr(rollout, name) for name in _SHOWN},
    }


def group_sample(group: StoredGroup, longest: int) -> dict[str, Any]:
    oracle = group.oracle
    mode = group.scoring.get("score_mode")
    return {
        "category": category_of(group),
        "level": group.recipe.level,
        "seed": group.recipe.seed,
        "time": group.time,
        "file": str(group.file),
        "oracle": None if oracle is None else clip(oracle, longest),
        "score_mode": None if mode is None else str(mode),
        "prompt": [
            {"role": m["role"], "content": clip(m["content"], longest)} for m in group.prompt
        ],
        "rollouts": [rollout_sample(rollout, longest) for rollout in group.rollouts],
    }


def pack(value: object) -> str:
    plain = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    return b64encode(zlib.compress(plain)).decode("ascii")


def index_of(groups: Sequence[StoredGroup]) -> dict[str, Any]:
    """Make columns of each group's task, split and size, and each rollout's status and the like."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
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


def samples_of(material: Material) -> Samples:
    """Thin the rollouts of the material out to 10,000 and cut them to fit into the page."""
    groups = thin_out(material.groups)
    shown = sum(len(group.rollouts) for group in groups)
    lengths = [len(rollout.text) for group in groups for rollout in group.rollouts]
    longest = fitting_length(lengths)
    samples = [group_sample(group, longest) for group in groups]
    starts = range(0, len(samples), _CHUNK_GROUPS)
    return Samples(
        index=index_of(groups),
        chunks=[pack(samples[start : start + _CHUNK_GROUPS]) for start in starts],
        shown=shown,
        longest=longest,
        cut=sum(length > longest for length in lengths),
    )
