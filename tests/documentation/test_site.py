"""The site is built without a warning and asks nothing of the network."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from chromium import chromium, needs_chromium
from page_blocks import ROOT

pytest.importorskip("mkdocs", reason="needs the extra `docs`")
pytestmark = [pytest.mark.processes, pytest.mark.nightly]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", *build], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there_and_the_reference_has_the_docstrings(site: Path) -> None:
    written = {page.stem for page in (ROOT / "docs").glob("*.md")}
    beside = {"index", "architecture", "contributing", "changelog", "license"}
    assert written | beside <= {page.stem for page in site.glob("*.html")}
    assert (site / "research" / "curriculum.html").exists()
    page = (site / "reference.html").read_text()
    for name in (
        "ReasoningGym",
        "ProblemStream",
        "AsyncReasoningGym",
        "Score",
        "Recipe",
    ):
        assert re.search(rf"<h3 id=\"[\w.]*\.{name}\"", page), name


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]+src=[\"']?http|<link[^>]+stylesheet[^>]+http"
    )
    assert [
        page.name for page in site.rglob("*.html") if loaded.search(page.read_text())
    ] == []
    assert not any("mermaid" in page.read_text() for page in site.rglob("*.html"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@needs_chromium
def test_the_search_works_from_disk_and_finds_the_words_of_the_field(
    site: Path, browser: Any
) -> None:
    browser.implicitly_wait(20)
    browser.get(f"{(site / 'index.html').as_uri()}?q=sync_dumps")
    found = browser.find_element("css selector", ".md-search-result__item a")
    assert found.get_attribute("href").startswith(site.as_uri())
    assert browser.get_log("browser") == []
    for word in ("reward hacking", "LoRA", "GRPO", "curriculum", "pass@k", "advantage"):
        browser.get(f"{(site / 'index.html').as_uri()}?q={quote(word)}")
        browser.find_element("css selector", ".md-search-result__item a")
        links = browser.find_elements("css selector", ".md-search-result__item a")
        pages = [re.split("[?#]", link.get_attribute("href"))[0] for link in links]
        assert (site / "glossary.html").as_uri() in pages, word


def violations(page: Path, scheme: str, browser: Any) -> list[tuple[str, str]]:
    """What axe finds in a page, with the elements that have it."""
    axe = pytest.importorskip("axe_core_python.selenium")
    browser.get(page.as_uri())
    browser.execute_script(f"document.body.dataset.mdColorScheme = '{scheme}'")
    browser.execute_script(axe.Axe().axe_script)
    found = browser.execute_async_script(
        "const [options, done] = arguments; axe.run(document, options).then(done)",
        {"rules": {"link-in-text-block": {"enabled": True}}},  # off by default
    )
    return [
        (violation["id"], node["html"])
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


@needs_chromium
@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize(
    "page", ["index", "data", "first-model", "leaderboard", "python", "tasks"]
)
def test_axe_finds_nothing_in_light_and_dark(
    page: str, scheme: str, site: Path, browser: Any
) -> None:
    """Pages with code, output, wide tables and links in text."""
    assert violations(site / f"{page}.html", scheme, browser) == []


@needs_chromium
def test_the_leaderboard_sorts_by_the_column_that_is_clicked(
    site: Path, browser: Any
) -> None:
    browser.get("about:blank")
    browser.get_log("browser")  # of the pages before
    browser.get((site / "leaderboard.html").as_uri())
    table = browser.find_element("css selector", "table")
    head = table.find_element("xpath", ".//th[normalize-space()='rank']")
    ranks = [
        [
            cell.text
            for cell in table.find_elements("css selector", "tbody td:first-child")
        ]
        for _ in range(2)
        if browser.execute_script("arguments[0].click(); return true", head)
    ]
    assert len(ranks[0]) > 1
    assert ranks[0] == sorted(ranks[0], key=int, reverse=True)
    assert ranks[1] == ranks[0][::-1]
    assert browser.get_log("browser") == []
