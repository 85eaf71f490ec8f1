"""The page in a real browser: it loads without console messages, and its controls work."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium, needs_chromium
from report_files import row, write

from reasoning_gym_environment.report.page import write_report

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.keys import Keys  # noqa: E402 - only where selenium is there
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402 - the same

pytestmark = needs_chromium

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "</pre></article></main></body></html><h1>gone</h1>",
    "<svg onload='window.hacked = 1'><!--",
    "{{ 7 * 7 }} ${window.hacked = 1} javascript:window.hacked=1",
    "&lt;b&gt; ]]> \\u003c \u2028 \u2029",
)
HIDDEN = "a\x00b\u202ec\ud800d\u200be"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


def training_rows() -> list[dict[str, Any]]:
    """Twelve groups of eight with levels, on three tasks of two categories."""
    tasks = ("gcd", "lcm", "sudoku")
    return [
        row(
            [float(number > i) for i in range(8)],
            task=tasks[number % 3],
            number=number,
            level=float(number // 6),
            question=f"Question {number}?",
        )
        for number in range(12)
    ]


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The page of rollouts of every kind, opened anew for each test by `opened`."""
    folder = tmp_path_factory.mktemp("report")
    rows = training_rows()
    rows += [row([1.0], task="gcd", evaluation=True), row([None], task="bf", evaluation=True)]
    rows[-1]["rollouts"][0] |= {"finish_reason": "error", "detail": "the server was down"}
    rows[0]["scoring"] = {"score_mode": "binary"}
    rows[0]["rollouts"][1] |= {"raw_score": 0.75}
    hostile = [*HOSTILE, HIDDEN]
    rows.append(
        row(
            [0.0] * len(hostile),
            task=HOSTILE[0],
            texts=[f"<think>{text}</think>{text}<answer>{text}</answer>" for text in hostile],
            oracle=HOSTILE[1],
            question=HOSTILE[2],
            detail=HOSTILE[3],
            time="2026-01-02T00:00:00+00:00",
        )
    )
    output = folder / "report.html"
    write_report([write(folder, rows)], output)
    return output


@pytest.fixture
def opened(browser: Any, page: Path) -> Any:
    browser.get(page.as_uri())
    until(browser, "document.documentElement.dataset.charts === 'drawn'")
    return browser


def until(browser: Any, condition: str) -> None:
    WebDriverWait(browser, 30, 0.05).until(lambda b: b.execute_script(f"return {condition}"))


def texts(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    found: list[str] = browser.execute_script(script, selector)
    return found


def choose(browser: Any, name: str, value: str) -> None:
    """Set a filter as a user does, and wait for what it leaves."""
    script = """const field = document.getElementById("filters").elements[arguments[0]];
        document.getElementById("found").textContent = "";
        field.value = arguments[1]; field.dispatchEvent(new Event("input", {bubbles: true}))"""
    browser.execute_script(script, name, value)
    until(browser, "document.getElementById('found').textContent.includes(' of ')")


def click(browser: Any, element: Any) -> None:
    """In the middle of the window, where nothing lies above it."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def in_window(browser: Any, name: str) -> bool:
    """Whether the middle of the element of that id can be seen."""
    script = """const element = document.getElementById(arguments[0]);
        const {left, top, width, height} = element.getBoundingClientRect();
        const seen = document.elementFromPoint(left + width / 2, top + height / 2);
        return element.contains(seen)"""
    return bool(browser.execute_script(script, name))


def found(browser: Any) -> str:
    return str(browser.find_element("id", "found").text)


def test_the_console_stays_silent_and_nothing_is_loaded(opened: Any) -> None:
    assert opened.get_log("browser") == []
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_every_chart_is_drawn(opened: Any) -> None:
    charts = opened.find_elements("css selector", "[data-chart]")
    places = {chart.get_attribute("data-chart") for chart in charts}
    assert places >= {"category", "task/arithmetic", "status/training", "time/solved", "level"}
    assert all(chart.find_elements("css selector", "svg g path") for chart in charts)


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("task", "sudoku", "32 rollouts of 105"),
        ("status", "unscored", "1 rollout of 105"),
        ("split", "evaluation", "2 rollouts of 105"),
        ("lowest", "0.5", "61 rollouts of 105"),
        ("highest", "0", "44 rollouts of 105"),
        ("text", "QUESTION 11?", "8 rollouts of 105"),
        ("text", "thought 7", "12 rollouts of 105"),
        ("text", "nobody said this", "0 rollouts of 105"),
    ],
)
def test_a_filter_keeps_matching_rollouts(opened: Any, name: str, value: str, left: str) -> None:
    choose(opened, name, value)
    assert found(opened) == left


def test_filters_work_together_and_are_reset(opened: Any) -> None:
    choose(opened, "task", "gcd")
    choose(opened, "status", "solved")
    choose(opened, "split", "training")
    assert found(opened) == "17 rollouts of 105"
    click(opened, opened.find_element("css selector", "button[type=reset]"))
    until(opened, "document.getElementById('found').textContent === '105 rollouts of 105'")


def test_the_list_is_read_by_keyboard(opened: Any) -> None:
    opened.find_element("name", "text").send_keys(Keys.TAB, Keys.TAB)
    rows = opened.switch_to.active_element
    assert rows.get_attribute("id") == "rows"
    for keys, place in (
        ((Keys.ARROW_DOWN, Keys.ARROW_DOWN), 2),
        ((Keys.ARROW_UP,), 1),
        ((Keys.PAGE_DOWN,), 51),
        ((Keys.END,), 104),
        ((Keys.HOME,), 0),
    ):
        rows.send_keys(*keys)
        assert rows.get_attribute("aria-activedescendant") == f"rollout-{place}"
        assert in_window(opened, f"rollout-{place}")
    rows.send_keys(Keys.ENTER)
    assert opened.switch_to.active_element.get_attribute("id") == "detail"


def test_a_rollout_shows_all_its_parts(opened: Any) -> None:
    choose(opened, "text", "question 4?")
    detail = opened.find_element("id", "detail")
    until(opened, "document.querySelectorAll('.siblings button').length === 8")
    for said in ("Question 4?", "42", "= reward 1.00", "level 0", "20 tokens"):
        assert said in detail.text
    thought = detail.find_element("css selector", ".thought")
    assert not thought.find_element("css selector", "pre").is_displayed()
    click(opened, thought.find_element("css selector", "summary"))
    assert thought.find_element("css selector", "pre").text == "thought 0"
    click(opened, detail.find_elements("css selector", ".siblings button")[7])
    until(opened, "document.getElementById('detail').textContent.includes('Score 0.00')")


def test_a_reward_is_explained(opened: Any) -> None:
    choose(opened, "task", "bf")
    until(opened, "document.querySelector('.reward')")
    said = opened.find_element("css selector", ".reward").text
    assert "The server gave no completion." in said
    assert "the server was down" in said
    assert "mean of the group" not in said
    choose(opened, "task", "")
    choose(opened, "text", "question 0?")
    until(opened, "document.querySelectorAll('.siblings button').length === 8")
    click(opened, opened.find_elements("css selector", ".siblings button")[1])
    told = "Score 0.75 in score mode binary"
    until(opened, f"document.getElementById('detail').textContent.includes('{told}')")


def test_hostile_text_is_text(opened: Any) -> None:
    for text in HOSTILE:
        choose(opened, "text", text.partition("</script>")[2] or text)
        until(opened, "document.querySelector('.thought pre')")
        shown = "".join(texts(opened, ".thought pre"))
        assert shown.replace("U+2028", "\u2028").replace("U+2029", "\u2029") in HOSTILE
    assert opened.execute_script("return window.hacked") is None
    assert len(opened.find_elements("css selector", "h1, article, main")) == 3
    assert not opened.find_elements("css selector", "#detail img, #detail svg, #detail script")
    assert opened.get_log("browser") == []


def test_characters_that_hide_are_named(opened: Any) -> None:
    choose(opened, "task", HOSTILE[0])
    click(opened, opened.find_elements("css selector", ".siblings button")[len(HOSTILE)])
    until(opened, "document.querySelector('.hidden-character')")
    assert texts(opened, ".thought pre") == ["aU+0000bU+202EcU+D800dU+200Be"]


def test_the_page_runs_no_script_but_its_own(opened: Any) -> None:
    opened.execute_script(
        """const script = document.createElement("script");
        script.textContent = "window.hacked = 1"; document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hacked = 1'>")"""
    )
    assert opened.execute_script("return window.hacked") is None
    assert "Content Security Policy" in str(opened.get_log("browser"))


def test_a_mark_leads_to_its_tasks_rollouts(opened: Any) -> None:
    mark = "[data-chart='task/games'] .mark-symbol path"
    click(opened, opened.find_element("css selector", mark))
    until(opened, "document.getElementById('found').textContent.startsWith('32 rollouts')")


def test_a_mark_shows_its_figures(opened: Any) -> None:
    marks = "[data-chart='task/other'] .mark-symbol path"
    mark = opened.find_element("css selector", marks)
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    webdriver.ActionChains(opened).move_to_element(mark).perform()
    until(opened, "document.querySelector('.vg-tooltip.visible')")
    said = texts(opened, ".vg-tooltip.visible td.value")
    assert said[:3] == [HOSTILE[0], "training", "0.0%"]
    assert opened.execute_script("return window.hacked") is None


def test_charts_take_the_colors_of_the_theme(opened: Any) -> None:
    def fill() -> Any:
        return opened.execute_script(
            "return document.querySelector('[data-chart=\"status/training\"] .mark-rect path')"
            ".getAttribute('fill')"
        )

    light = fill()
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        WebDriverWait(opened, 30, 0.05).until(lambda _: fill() != light)
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_nothing_overflows_on_a_phone(browser: Any, page: Path) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(page.as_uri())
        until(browser, "document.documentElement.dataset.charts === 'drawn'")
        assert browser.execute_script("return document.documentElement.scrollWidth") == 360
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
