"""Makes one HTML file that shows a whole report and needs nothing else."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from ..errors import FixableError
from ..util.files import replacing, require_not_read
from .charts import SHAPES, Chart, interval, shape_of, words
from .contents import Contents, contents_of
from .material import read_material
from .samples import Samples, samples_of

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
