"""Figures, evaluations and two checkpoints in a real browser, on the invented run."""

import json
import math
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from browsing import (
    WebDriverWait,
    choose,
    open_section,
    opened,
    record_copies,
    until,
    violations,
)
from chromium import needs_chromium
from invented_run import (
    HACKED_TASK,
    RUN,
    START,
    TASKS,
    TRUNCATES,
    invented_groups,
    write_invented_evaluations,
    write_invented_run,
)
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from reasoning_gym_environment.commands.show import main as show
from reasoning_gym_environment.report.page import write_report
from reasoning_gym_environment.rollouts.figures import RunFigures
from reasoning_gym_environment.storage.run_record import record_path

pytestmark = [needs_chromium, pytest.mark.nightly]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("invented")
    write_invented_run(folder)
    write_invented_evaluations(folder)
    write_report([folder], folder / "report.html")
    return (folder / "report.html").as_uri()


PHONE, DESKTOP = 390, 1440
THEMES = ("light", "dark")


@contextmanager
def emulated(browser: Any, width: int, theme: str) -> Iterator[None]:
    """A window of this width in pixels and in this theme."""
    is_mobile = width == PHONE
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": is_mobile}
    colors = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", colors)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def overflow(browser: Any, selector: str) -> int:
    """By how many pixels an element's content is wider than it."""
    script = """const element = document.querySelector(arguments[0]);
        return element.scrollWidth - element.clientWidth"""
    return int(browser.execute_script(script, selector))


def rows(browser: Any, table: str) -> list[list[str]]:
    """The text of a table's cells."""
    found: list[list[str]] = browser.execute_script(
        """return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map(
            (row) => [...row.children].map((cell) => cell.textContent))""",
        table,
    )
    return found


def drawn(browser: Any, section: str) -> Any:
    """The first chart of a section, in the middle of the window."""
    open_section(browser, section)
    (chart, *_) = browser.find_elements("css selector", f"#{section} .chart")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    WebDriverWait(browser, 60, 0.05).until(
        lambda _: chart.find_elements("css selector", ".mark-symbol path")
    )
    return chart


def training_run(browser: Any) -> str:
    """The number of the training run in the page."""
    script = """return [...document.querySelectorAll("#run-table label")].find(
        (label) => label.textContent.startsWith("run ")).querySelector("input").dataset.key"""
    return str(browser.execute_script(script)).removeprefix("run ")


def test_the_table_has_the_figures_of_the_package(browser: Any, page: str) -> None:
    opened(browser, page)
    figures = RunFigures()
    for group in invented_groups():
        figures.add(group, "")
    expected = {row.measure: row for row in figures.all_figures()}
    found = {row[0]: row[1:] for row in rows(browser, "figures-table")}
    assert len(found) == len(expected)
    truncated = expected["truncated"]
    last, before, first, best = found["Truncated ▲ worse"][:4]
    for text, value in (
        (last, truncated.last),
        (before, truncated.before),
        (first, truncated.first),
        (best, truncated.best),
    ):
        assert value is not None
        assert text == f"{value:.1%}"
    choose(browser, "size", "100")
    assert not any("worse" in row[0] for row in rows(browser, "figures-table"))


def test_tasks_that_no_longer_fit_their_limit_stand_first(
    browser: Any, page: str
) -> None:
    opened(browser, page)
    run = training_run(browser)
    opened(browser, page, f"runs={run}&section=tasks")
    first = [row[0] for row in rows(browser, "task-table")[:5]]
    assert {*first} == {*TASKS["games"], HACKED_TASK}
    said = browser.find_element("id", "task-count").text
    assert said.startswith("12 tasks, ")
    assert "noise alone would mark up to 1" in said


def test_windows_that_are_entered_are_compared(browser: Any, page: str) -> None:
    opened(browser, page)
    begin = TRUNCATES
    for name, number in (("before-first", begin - 200), ("before-last", begin - 1)):
        choose(browser, name, str(number))
    for name, number in (("after-last", begin + 199), ("after-first", begin)):
        choose(browser, name, str(number))
    [truncated] = [
        row for row in rows(browser, "figures-table") if row[0].startswith("Truncated")
    ]
    groups = list(invented_groups())
    shares = [
        fmean(
            fmean(rollout.truncated for rollout in group.rollouts)
            for group in groups[first - 1 : first + 199]
        )
        for first in (begin, begin - 200)
    ]
    assert truncated[1:3] == [f"{share:.1%}" for share in shares]


def test_what_the_log_warns_of_stands_on_the_same_line_of_time(
    browser: Any, tmp_path: Path
) -> None:
    write_invented_run(tmp_path)
    path = record_path(tmp_path, RUN)
    record = json.loads(path.read_text())
    hangs = {
        "time": (START + timedelta(seconds=4 * 300)).isoformat(),
        "level": "WARNING",
        "text": "http://gpu:8000 hangs: <b>no answer</b> for 60 s",
    }
    wait = {
        "reason": "inference at http://gpu:8000/v1",
        "since": (START + timedelta(seconds=4 * 500)).isoformat(),
        "until": (START + timedelta(seconds=4 * 600)).isoformat(),
    }
    evaluation = {
        "text": "evaluation at step 90",
        "time": (START + timedelta(seconds=4 * 720)).isoformat(),
        "until": (START + timedelta(seconds=4 * 750)).isoformat(),
    }
    happened = {"warnings": [hangs], "waits": [wait], "events": [evaluation]}
    path.write_text(json.dumps({**record, **happened}))
    write_report([tmp_path], tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    events = browser.execute_script(
        "return document.getElementById('event-list').textContent"
    )
    assert events == (
        f"group 300, 00:20:00 WARNING: {hangs['text']}"
        f"group 500, 00:33:20 waited for {wait['reason']}, 00:33:20 to 00:40:00"
        "group 720, 00:48:00 evaluation at step 90, 00:48:00 to 00:50:00"
    )
    windows_and_brush = 4
    for section, others in (("figures", windows_and_brush), ("time", 0)):
        chart = drawn(browser, section)
        lines = chart.find_elements("css selector", ".mark-rule.role-mark line")
        assert len(lines) == 1
        spans = chart.find_elements("css selector", ".mark-rect.role-mark path")
        assert len(spans) == others + 2
    assert browser.get_log("browser") == []


def test_a_window_is_dragged_over_the_chart(browser: Any, page: str) -> None:
    opened(browser, page)
    plot = drawn(browser, "figures").find_element("css selector", "svg")
    width = plot.size["width"]
    actions = ActionChains(browser).move_to_element_with_offset(plot, -width // 4, 0)
    actions.click_and_hold().move_by_offset(width // 8, 0).move_by_offset(width // 8, 0)
    actions.release().perform()
    until(browser, "location.hash.includes('windows=')")
    ends = [browser.find_element("id", f"after-{end}") for end in ("first", "last")]
    first, last = (int(each.get_property("value")) for each in ends)
    assert 200 < first < 300 < 450 < last < 550


def test_a_window_is_moved_by_keyboard_on_the_chart(browser: Any, page: str) -> None:
    opened(browser, page)
    drawn(browser, "figures")
    bucket, tenth = round(1000 / 60), 100
    handle = browser.find_element("css selector", "[role=slider][data-end=after-first]")
    assert handle.get_attribute("aria-label") == "First group after"
    group = 901
    for key, moved in (
        (Keys.ARROW_LEFT, group - bucket),
        (Keys.ARROW_DOWN, group - 2 * bucket),
        (Keys.ARROW_RIGHT, group - bucket),
        (Keys.PAGE_DOWN, group - bucket - tenth),
        (Keys.HOME, 1),
        (Keys.PAGE_UP, 1 + tenth),
        (Keys.ARROW_UP, 1 + tenth + bucket),
        (Keys.END, 1000),
        (Keys.ARROW_RIGHT, 1000),
        (Keys.PAGE_DOWN, 900),
    ):
        handle.send_keys(key)
        assert handle.get_attribute("aria-valuenow") == str(moved)
        assert handle.get_attribute("aria-valuetext") == f"group {moved:,} of 1,000"
        assert browser.switch_to.active_element == handle
    limits = [handle.get_attribute(f"aria-value{end}") for end in ("min", "max")]
    assert limits == ["1", "1000"]
    last = browser.find_element("css selector", "[role=slider][data-end=before-last]")
    last.send_keys(Keys.HOME)
    assert last.get_attribute("aria-valuenow") == "801", "the first group before"
    last.send_keys(Keys.PAGE_UP)
    until(browser, "document.getElementById('before-last').value === '901'")
    assert browser.find_element("id", "after-first").get_property("value") == "900"
    by_keyboard = rows(browser, "figures-table")
    until(browser, "location.hash.endsWith('%3A800-900%2C899-999')")
    opened(browser, page)
    choose(browser, "before-last", "901")
    choose(browser, "after-first", "900")
    assert rows(browser, "figures-table") == by_keyboard


@pytest.mark.parametrize("axis", ["group", "step", "time"])
def test_handles_stand_on_the_ends_of_the_windows(
    browser: Any, page: str, axis: str
) -> None:
    opened(browser, page, f"x={axis}")
    script = """const center = ({ left, width }) => left + width / 2;
        const box = (element) => element.getBoundingClientRect();
        const windows = [...document.querySelectorAll("#figures-chart .mark-rect.role-mark path")];
        const drawn = windows.map(box).filter(({ width }) => width);  // not the brush
        const ends = drawn.flatMap(({ left, right }) => [left, right]);
        return [...document.querySelectorAll(".handle")].every(
            (handle, place) => Math.abs(center(box(handle)) - ends[place]) < 2)"""
    for width in (DESKTOP, PHONE):
        with emulated(browser, width, "light"):
            drawn(browser, "figures")
            WebDriverWait(browser, 60, 0.05).until(lambda b: b.execute_script(script))


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_axe_finds_nothing_in_the_figures_of_chosen_windows(
    browser: Any, page: str, width: int, theme: str
) -> None:
    with emulated(browser, width, theme):
        opened(browser, page)
        drawn(browser, "figures")
        handle = browser.find_element("css selector", "[data-end=after-first]")
        handle.send_keys(Keys.PAGE_DOWN)
        until(browser, "location.hash.includes('windows=')")
        assert violations(browser) == []
        assert overflow(browser, ":root") == 0


def test_the_axis_of_time_is_chosen(browser: Any, page: str) -> None:
    opened(browser, page)
    labels = {
        "": "trainer's step",
        "group": "number of the group",
        "time": "time in UTC",
    }
    for name, label in labels.items():
        choose(browser, "x", name)
        sections = ("figures", "time") if name else ("time",)
        for section in sections:
            assert f" by {label}" in drawn(browser, section).get_attribute("aria-label")
    assert browser.get_log("browser") == []


def test_an_evaluation_is_one_row_and_a_difficulty_one_line(
    browser: Any, page: str
) -> None:
    opened(browser, page)
    table = rows(browser, "run-table")
    steps = [f"step-{step}" for step in (0, 40, 80, 120)]
    assert [row[0].rpartition("/")[2] for row in table[1:]] == steps
    chart = drawn(browser, "evaluations")
    assert len(chart.find_elements("css selector", ".mark-symbol path")) == 12
    assert len(chart.find_elements("css selector", ".mark-line path")) == 3
    choose(browser, "difficulty", "0.75")
    chart = drawn(browser, "evaluations")
    assert len(chart.find_elements("css selector", ".mark-symbol path")) == 4


def test_items_that_changed_show_both_answers(browser: Any, page: str) -> None:
    opened(browser, page, "section=comparison&task=syllogism")
    names = [
        browser.find_element("css selector", f"#{name} option:checked")
        .text[-8:]
        .strip("/")
        for name in ("before", "after")
    ]
    assert names == ["step-80", "step-120"]
    lost = rows(browser, "item-table")
    assert lost[0][0].startswith("syllogism, ")
    oracle, before, after = lost[0][1:]
    assert oracle in before
    assert ", solved" in before
    assert ", solved" not in after
    browser.find_element("css selector", "#item-table tbody button").click()
    until(browser, "document.querySelectorAll('#history-table tbody tr').length === 4")
    assert [row[1] for row in rows(browser, "history-table")] == [
        "0",
        "40",
        "80",
        "120",
    ]
    link = browser.execute_script("return location.hash").removeprefix("#")
    opened(browser, page, link)
    assert len(rows(browser, "history-table")) == 4
    choose(browser, "items", "won")
    assert rows(browser, "item-table") != lost


def test_an_evaluations_difficulty_is_that_of_the_copied_command(
    browser: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_invented_evaluations(tmp_path)
    write_report([tmp_path], tmp_path / "report.html")
    page = (tmp_path / "report.html").as_uri()
    opened(browser, page, "where=task:syllogism difficulty:0.75,none kind:evaluation")
    until(browser, "document.getElementById('found').textContent.startsWith('160 of')")
    opened(browser, page, "where=task:syllogism&difficulty=0.75")
    until(browser, "document.getElementById('found').textContent.startsWith('80 of')")
    record_copies(browser)
    browser.execute_script("document.getElementById('copy-command').click()")
    until(
        browser,
        "document.getElementById('selection-said').textContent.includes('selects 80')",
    )
    (command,) = browser.execute_script("return copies")
    assert show(shlex.split(command)[2:]) == 0
    assert "5 of 80 matching rollouts" in capsys.readouterr().err


@pytest.fixture(scope="module")
def page_of_runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two runs with long names that differ in all settings, and four evaluations."""
    folder = tmp_path_factory.mktemp("runs")
    for number, (name, mode, tasks) in enumerate(
        (
            ("curriculum-with-a-target-of-half-and-a-long-name", "curriculum", 12),
            ("the-same-on-fixed-levels-with-a-name-that-is-longer", "random", 3),
        )
    ):
        run = f"{number}-0123456789"
        own = folder / run
        own.mkdir()
        write_invented_run(own, 200, run=run, seed=number)
        record = json.loads(record_path(own, run).read_text())
        record["settings"] |= {
            "name": name,
            "complexity_mode": mode,
            "seed": 1_000_000 + number,
            "model_name": f"Organization/A-Model-of-7B-Parameters-Instruct-{number}",
            "tasks": [f"task_with_a_long_name_{each}" for each in range(tasks)],
        }
        record_path(own, run).write_text(json.dumps(record))
    write_invented_evaluations(folder, items=1)
    write_report([folder], folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_table_of_runs_fits_the_page(
    browser: Any, page_of_runs: str, width: int, theme: str
) -> None:
    with emulated(browser, width, theme):
        opened(browser, page_of_runs, "section=run")
        assert len(rows(browser, "run-table")) == 6
        assert overflow(browser, "#run-table") == 0
        assert overflow(browser, ":root") == 0
        assert violations(browser) == []


@pytest.mark.nightly
def test_nothing_overflows_and_axe_finds_nothing(browser: Any, page: str) -> None:
    links = (
        "return [...document.querySelectorAll('nav a')].map((a) => a.dataset.section)"
    )
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened(browser, page)
        top = browser.execute_script(
            "return document.querySelector('#figures-chart .chart').getBoundingClientRect().top"
        )
        assert top < 700
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        for section in browser.execute_script(links):
            open_section(browser, section)
            width = "return document.documentElement.scrollWidth"
            assert browser.execute_script(width) == 390
            assert violations(browser) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    opened(browser, page)
    browser.execute_script("document.querySelector('#item-table tbody button').click()")
    for section in ("figures", "comparison"):
        open_section(browser, section)
        assert violations(browser) == []
    assert browser.get_log("browser") == []


def test_runs_are_chosen_by_name_and_setting_and_compared_at_equal_steps(
    browser: Any, tmp_path: Path
) -> None:
    for name, seed, truncates in (("base", 0, math.inf), ("tuned", 1, 200)):
        folder = tmp_path / name
        folder.mkdir()
        write_invented_run(
            folder, 400, run=f"{name}-0123456789", truncates=truncates, seed=seed
        )
        path = record_path(folder, f"{name}-0123456789")
        record = json.loads(path.read_text())
        record["settings"] |= {"name": name, "seed": seed, "tasks": ["gcd", "maze"]}
        path.write_text(json.dumps(record))
    write_report([tmp_path], tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    assert browser.find_element("id", "title").text == "2 runs side by side"
    head = browser.execute_script(
        "return document.querySelector('#run-table thead').textContent"
    )
    assert head.startswith("RunSeedSolved"), "the model and the tasks are the same"
    names = [row[:2] for row in rows(browser, "run-table")]
    assert names == [["base base-012", "0"], ["tuned tuned-01", "1"]]
    choose(browser, "figures-run", "1")
    caption = browser.find_element("css selector", "#figures figcaption .title")
    assert caption.text == "Solved of tuned tuned-01"
    open_section(browser, "time")
    charts = browser.find_elements("css selector", "#time figure")
    title, note = charts[-1].find_elements("css selector", "figcaption span")
    assert title.text == "Solved share less that of base base-012"
    assert re.match(r"at last \N{MINUS SIGN}\d", note.text)
    browser.execute_script(
        "document.querySelector(`#task-table [data-key='sort differs']`).click()"
    )
    assert "table=differs" in browser.execute_script("return location.hash")
    assert browser.get_log("browser") == []
