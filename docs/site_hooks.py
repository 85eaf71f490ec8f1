"""MkDocs hooks: pages for the files beside docs/, and links to them that work on the site."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}
"""What lies at the top of the repository, and its page."""

BESIDE = (
    *("examples/*.*", "deploy/*.*", "benchmarks/*.md"),
    "reasoning_gym_environment/proof/*.schema.json",
    *(f"research/**/*.{suffix}" for suffix in ("md", "svg", "json", "csv", "txt")),
)
"""Files that the pages link to; they are on the site as they are, at the same path."""

_TARGET = re.compile(r"(\]\()([^)#\s:]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to from outside of docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source == "LICENSE":
            text = f"# Licence\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    for path in sorted(path for pattern in BESIDE for path in ROOT.glob(pattern)):
        name, out = path.relative_to(ROOT).as_posix(), InclusionLevel.NOT_IN_NAV
        files.append(
            File.generated(config, name, abs_src_path=str(path), inclusion=out)
        )
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Point links at pages: `docs/data.md` in README, `../README.md` in docs/."""
    uri = page.file.src_uri
    at_top = {name: source for source, name in PAGES.items()}
    source = at_top.get(uri, uri if (ROOT / uri).is_file() else f"docs/{uri}")

    def target(match: re.Match[str]) -> str:
        path = normpath(join(dirname(source), match[2]))
        return match[1] + relpath(
            PAGES.get(path, path.removeprefix("docs/")), dirname(uri) or "."
        )

    return _TARGET.sub(target, markdown)
