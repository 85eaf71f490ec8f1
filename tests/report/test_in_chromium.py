"""The page in a real browser: its figures, its controls, and that it is safe with any text."""

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browsing import (
    WebDriverWait,
    choose,
    fragment,
    open_section,
    opened,
    record_copies,
    set_fragment,
    until,
    until_text,
    violations,
)
from chromium import needs_chromium
from report_files import row, write
from selenium.webdriver.common.keys import Keys

from reasoning_gym_environment.commands.show import main as show
from reasoning_gym_environment.evaluation.comparison import compare_samples
from reasoning_gym_environment.evaluation.estimators import share
from reasoning_gym_environment.report.data import read_report_data
from reasoning_gym_environment.report.filter import filter_rollouts
from reasoning_gym_environment.report.page import write_report
from reasoning_gym_environment.scoring.channels import (
    CHANNELS,
    in_channels,
    split_thought,
)
from reasoning_gym_environment.storage.dumps import read_groups
from reasoning_gym_environment.storage.rows import StoredGroup

pytestmark = [needs_chromium, pytest.mark.nightly]

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "</pre></article></main></body></html><h1>gone</h1>",
    "<svg onload='window.hacked = 1'><!--",
    "{{ 7 * 7 }} ${window.hacked = 1} javascript:window.hacked=1",
    "&lt;b&gt; ]]> \\u003c '; window.hacked = 1; '",
)
HIDDEN = "a\x00b\u202ec\ud800d\u200be\x1b[31m"
NAMED = "aU+0000bU+202EcU+D800dU+200BeU+001B[31m"


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
            tokens=20 + number,
        )
        for number in range(12)
    ]


def hostile_row() -> dict[str, Any]:
    hostile = [*HOSTILE, HIDDEN]
    group = row(
        [0.0] * len(hostile),
        task=HOSTILE[0] + HIDDEN,
        texts=[
            f"<think>{text}</think>{text}<answer>{text}</answer>" for text in hostile
        ],
        oracle=HOSTILE[1] + HIDDEN,
        question=HOSTILE[2] + HIDDEN,
        detail=HOSTILE[3] + HIDDEN,
        number=12,
        time="2026-01-02T00:00:00+00:00",
    )
    group["library_versions"] = {HOSTILE[4]: HOSTILE[5] + HIDDEN}
    group["run"] = HOSTILE[1] + HIDDEN
    return group


def evaluation_rows(solved: int) -> list[dict[str, Any]]:
    """Ten items of two tasks with two attempts each."""
    return [
        row(
            [float(number < solved), float(number < solved - 2)],
            task=("gcd", "sudoku")[number % 2],
            number=number,
            evaluation=True,
        )
        for number in range(20)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run, and two evaluations."""
    folder = tmp_path_factory.mktemp("report")
    write(folder, training_rows(), "reasoning_gym_environment_rollouts_r_0000.jsonl")
    for name, solved in (("step-1", 4), ("step-2", 18)):
        (folder / name).mkdir()
        write(folder / name, evaluation_rows(solved), "samples.jsonl")
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    output = folder / "report.html"
    write_report([folder], output)
    return output.as_uri()


@pytest.fixture(scope="module")
def training_groups(training_page: str) -> list[StoredGroup]:
    """The groups that the page shows."""
    return read_groups(Path(urlsplit(training_page).path).with_name("rollouts.jsonl"))[
        0
    ]


@pytest.fixture(scope="module")
def training_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("training")
    rows = training_rows()
    rows.append(row([None], task="bf", number=12))
    rows[-1]["rollouts"][0] |= {
        "finish_reason": "error",
        "detail": "the server was down",
    }
    rows[0]["scoring"] = {"score_mode": "binary", "solved_threshold": None}
    rows[0]["rollouts"][1] |= {"raw_score": 0.75}
    write_report([write(folder, rows)], folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("hostile")
    write_report(
        [write(folder, [*training_rows(), hostile_row()])], folder / "report.html"
    )
    return (folder / "report.html").as_uri()


def texts(browser: Any, selector: str) -> list[str]:
    script = (
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    )
    found: list[str] = browser.execute_script(script, selector)
    return found


def click(browser: Any, element: Any) -> None:
    """In its section, in the middle of the window, where nothing lies above it."""
    script = "return arguments[0].closest('section')?.id"
    if section := browser.execute_script(script, element):
        open_section(browser, section)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def draw_charts(browser: Any, section: str) -> list[Any]:
    open_section(browser, section)
    charts: list[Any] = browser.find_elements("css selector", f"#{section} .chart")
    for chart in charts:
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
        WebDriverWait(browser, 300, 0.05).until(
            lambda _, chart=chart: chart.find_elements("css selector", "svg path")
        )
    return charts


def test_an_evaluation_alone_has_no_section_of_time(browser: Any, folder: Path) -> None:
    write_report([folder / "step-1"], folder / "evaluation.html")
    opened(browser, (folder / "evaluation.html").as_uri())
    assert len(draw_charts(browser, "distributions")) == 4
    assert not browser.find_element("id", "time").is_displayed()
    assert not browser.find_element("id", "comparison").is_displayed()
    assert browser.get_log("browser") == []


def test_every_section_draws_its_charts(browser: Any, training_page: str) -> None:
    opened(browser, training_page)
    assert len(draw_charts(browser, "distributions")) == 6
    assert len(draw_charts(browser, "time")) == 7
    choose(browser, "by", "category")
    assert "arithmetic" in texts(browser, "#time figcaption .title")
    assert "no value in these groups" in browser.find_element("id", "time").text


def test_a_section_is_opened_by_keyboard_and_a_print_has_all(
    browser: Any, training_page: str
) -> None:
    def displayed() -> list[str]:
        sections = browser.find_elements("css selector", "main > section")
        return [each.get_attribute("id") for each in sections if each.is_displayed()]

    opened(browser, training_page)
    assert displayed() == ["figures"]
    body = browser.find_element("css selector", "body")
    body.send_keys(
        Keys.TAB, Keys.TAB, Keys.TAB, Keys.TAB
    )  # past the way to the section
    link = browser.switch_to.active_element
    assert link.text == "Tasks"
    link.send_keys(Keys.ENTER)
    until(browser, "document.getElementById('tasks').classList.contains('current')")
    assert displayed() == ["tasks"]
    assert "section=tasks" in fragment(browser)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert {"figures", "run", "tasks", "time", "distributions"} <= {*displayed()}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.back()
    until(browser, "document.getElementById('figures').classList.contains('current')")


def figures(browser: Any, expression: str, *arguments: Any) -> Any:
    return browser.execute_script(f"return reportFigures.{expression}", *arguments)


def test_shares_and_thoughts_are_those_of_python(
    browser: Any, training_page: str
) -> None:
    opened(browser, training_page)
    found = figures(browser, "figuresOf(reportFigures.groupsLeft())")
    clusters = [
        [r["status"] == "solved" for r in each["rollouts"]] for each in training_rows()
    ]
    expected = share([[float(solved) for solved in own] for own in clusters])
    assert found["solved"]["low"] == pytest.approx(expected.low)
    assert found["solved"]["high"] == pytest.approx(expected.high)
    assert (found["groups"], found["rollouts"], found["scored"]) == (13, 97, 96)
    assert f"{expected.low:.1%} to {expected.high:.1%}" in texts(browser, "#tiles")[0]
    texts_of_thoughts = ["a<think>b</think>c", "b</think>c<THINK>d", "<think>", "é\x00"]
    for one in CHANNELS:
        texts_of_thoughts += [
            f"{one.opens}a{one.closes}b{one.opens}c",
            f"a{one.closes}b<think>c</think>",
            f"<think>a{one.closes}b</think>c[THINK]",
        ]
    whole = in_channels("a </think> b", "c")
    texts_of_thoughts += [whole, whole[:30], f"<|start|>assistant{whole}<|return|>"]
    for text in texts_of_thoughts:
        found = figures(browser, "splitThought(arguments[0])", text)
        assert (found["thought"], found["rest"]) == split_thought(text)


def test_the_comparison_is_that_of_compare(
    browser: Any, page: str, folder: Path
) -> None:
    opened(browser, page)
    before, after = (read_report_data([folder / f"step-{n}"]).groups for n in (1, 2))
    [expected] = compare_samples(before, after)
    rows = texts(browser, "#overall-table tbody tr")
    changes = (expected.by_items, expected.by_tasks, expected.score)
    for shown, change in zip(rows, changes, strict=True):
        estimate = change.difference
        said = f"{100 * estimate.low:+.1f} to {100 * estimate.high:+.1f}"
        assert said.replace("-", "\N{MINUS SIGN}") in shown
    for task, change in expected.tasks.items():
        (shown,) = [
            text for text in texts(browser, "#change-table tbody tr") if task in text
        ]
        assert shown.endswith(change.verdict)
    click(
        browser,
        browser.find_element("css selector", "#change-table [data-key='sort name']"),
    )
    names = texts(browser, "#change-table tbody th")
    assert names == sorted(names)
    assert "changes=name" in fragment(browser)


def test_a_filter_keeps_matching_rollouts_and_so_does_its_link(
    browser: Any, training_page: str
) -> None:
    opened(browser, training_page)
    for name, value, left in (
        ("task", "sudoku", "32 of 97"),
        ("category", "arithmetic", "64 of 97"),
        ("difficulty", "default", "1 of 97"),
        ("where", "QUESTION 11?", "8 of 97"),
        ("where", "thought 7", "12 of 97"),
        ("where", "nobody said this", "0 of 97"),
    ):
        choose(browser, name, value)
        until_text(browser, "found", left)
        opened(browser, training_page, fragment(browser).removeprefix("#"))
        until_text(browser, "found", left)
        set_fragment(browser, "")
        until_text(browser, "found", "97 of 97")


def test_the_task_table_filters_everything_and_sorts_by_any_column(
    browser: Any, training_page: str
) -> None:
    opened(browser, training_page)
    click(browser, browser.find_element("css selector", "[data-key='task sudoku']"))
    until_text(browser, "found", "32 of 97")
    assert texts(browser, "#left") == ["4 groups, 32 rollouts"]
    assert "32 rollouts of 1 task" in texts(browser, "#tiles")[0]
    assert len(texts(browser, "#task-table tbody tr")) == 4
    click(browser, browser.find_element("css selector", "[data-key='task sudoku']"))
    until_text(browser, "found", "97 of 97")
    for key in ("task", "solved", "length", "level"):
        button = f"#task-table [data-key='sort {key}']"
        for direction in (
            ("ascending", "descending") if key == "task" else ("descending",)
        ):
            click(browser, browser.find_element("css selector", button))
            head = f"#task-table th:has([data-key='sort {key}'])"
            found = browser.find_element("css selector", head)
            assert found.get_attribute("aria-sort") == direction
    # What has no value stands last.
    assert texts(browser, "#task-table tbody th")[-1] == "bf"


def test_groups_are_selected_by_a_point_in_time_or_by_their_numbers(
    browser: Any, training_page: str
) -> None:
    opened(browser, training_page)
    draw_charts(browser, "time")
    point = browser.find_elements("css selector", "#time .mark-symbol path")[3]
    click(browser, point)
    until_text(browser, "found", "8 of 97")
    assert "span=0%3A3-3" in fragment(browser)
    click(browser, browser.find_element("id", "span"))
    until_text(browser, "found", "97 of 97")
    open_section(browser, "time")
    browser.find_element("id", "from").send_keys("2", Keys.TAB)
    until_text(browser, "found", "89 of 97")
    browser.find_element("id", "until").send_keys(Keys.CONTROL, "a")
    browser.find_element("id", "until").send_keys("3", Keys.TAB)
    until_text(browser, "found", "16 of 97")
    assert "span=0%3A1-2" in fragment(browser)


def test_runs_stand_side_by_side_in_a_silent_page_that_loads_nothing(
    browser: Any, page: str
) -> None:
    opened(browser, page)
    draw_charts(browser, "time")
    assert browser.get_log("browser") == []
    loaded = "return performance.getEntriesByType('resource').filter(e => !/^data:/.test(e.name))"
    assert browser.execute_script(loaded) == []
    said = "1 run and 2 evaluations side by side"
    assert said in browser.find_element("tag name", "h1").text
    sudoku = browser.find_element(
        "css selector", "#task-table tr:has([data-key='task sudoku'])"
    )
    assert len(sudoku.find_elements("css selector", "svg.bar .mark")) == 3
    assert len(sudoku.find_elements("css selector", "svg.bar .chance")) == 2
    click(browser, browser.find_element("css selector", "[data-key='run 0']"))
    until(browser, "document.querySelectorAll('#series-legend li').length === 2")
    assert "runs=" in fragment(browser)


def test_the_list_is_read_by_keyboard(browser: Any, training_page: str) -> None:
    opened(browser, training_page, "section=rollouts")
    rows = browser.find_element("id", "rollout-table")
    browser.execute_script("arguments[0].focus()", rows)
    for keys, place in (
        ((Keys.ARROW_DOWN, Keys.ARROW_DOWN), 2),
        ((Keys.ARROW_UP,), 1),
        ((Keys.END,), 96),
        ((Keys.HOME,), 0),
        (("j", "j"), 2),
        (("k",), 1),
    ):
        rows.send_keys(*keys)
        until(
            browser,
            f"document.querySelector('[aria-selected=true]')?.id === 'rollout-{place}'",
        )
        assert rows.get_attribute("aria-activedescendant") == f"rollout-{place}"
    rows.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "detail"
    browser.switch_to.active_element.send_keys("/")
    field = browser.switch_to.active_element
    assert field.get_attribute("id") == "where"
    field.send_keys("gcd", Keys.ESCAPE)  # which leaves the field and keeps its text
    assert browser.switch_to.active_element.get_attribute("id") == "rollout-table"
    until(browser, "location.hash.includes('where=gcd')")
    browser.switch_to.active_element.send_keys("?")
    help = browser.find_element("id", "help")
    assert "previous and next rollout of the group" in help.text
    help.send_keys(Keys.ESCAPE)
    assert not help.is_displayed()


WHERES = (
    "task:gcd,sudoku level:0",
    "task:lcm status:wrong reward:0 question 7",
    "level:>=1 status:wrong,solved tokens:<27 status:unscored",
    "level:none",
    'reward:0.5..1 "thought 3"',
    "step:none kind:training problems:fresh category:arithmetic run:r group:2..5",
    'LEVEL:1 status:"wrong"',
    'status:"solved",unscored Level:0',
)


def test_conditions_select_what_show_selects(
    browser: Any, training_page: str, training_groups: list[StoredGroup]
) -> None:
    opened(browser, training_page)
    for where in WHERES:
        count = sum(
            len(places) for _, places in filter_rollouts(training_groups, where)
        )
        assert 0 < count < 97
        choose(browser, "where", where)
        until_text(browser, "found", f"{count} of 97")
    for where, said in (
        ("taks:gcd", "Unknown field taks: did you mean task? Quote the word"),
        ("colour:gcd", "Unknown field colour: fields are kind, run, task,"),
        ("task:gdc", "Unknown task gdc: did you mean gcd?"),
        ("task:SUDOKUS", "Unknown task SUDOKUS: did you mean sudoku?"),
        ("task:rotate", "Unknown task rotate: there are bf, gcd, lcm, sudoku."),
        ("level:high", "level must be a number, a comparison such as >=2"),
    ):
        choose(browser, "where", where)
        until_text(browser, "where-problem", said)


def click_box(browser: Any, key: str) -> None:
    """As a label does, whether its list is folded or not."""
    browser.execute_script(
        f"document.querySelector(`#facets [data-key='{key}']`).click()"
    )


def test_a_status_is_found_as_it_is_displayed(browser: Any, tmp_path: Path) -> None:
    rows = [row([0.0] * 3, texts=["nothing"] * 2 + ["<answer>1</answer>"])]
    path = write(tmp_path, rows)
    write_report([path], tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    where = 'status:"no answer"'
    choose(browser, "where", where)
    until_text(browser, "found", "2 of 3")
    [(_, places)] = filter_rollouts(read_groups(path)[0], where)
    assert places == [0, 1]


def test_rollouts_without_their_texts_on_the_page_are_counted(
    browser: Any, tmp_path: Path
) -> None:
    rows = [
        row([0.0] * 200, number=number, question=f"Question {number}?")
        for number in range(60)
    ]
    write_report([write(tmp_path, rows)], tmp_path / "report.html")  # has 50 of them
    opened(browser, (tmp_path / "report.html").as_uri())
    for where, found, left_out in (
        ("group:6", "0 of 10,000", "200 more that match: this page lacks their texts."),
        ("group:7", "200 of 10,000", ""),
        ("question", "10,000 of 10,000", "2,000 more that are not searched: this page"),
    ):
        choose(browser, "where", where)
        text = f"{found} rollouts"
        until(browser, f"document.getElementById('found').textContent === '{text}'")
        said = texts(browser, "#left-out")[0]
        assert said.removeprefix("; ").startswith(left_out)
        assert bool(said) == bool(left_out)


def test_keys_act_on_the_section_shown(browser: Any, training_page: str) -> None:
    opened(browser, training_page)
    body = browser.find_element("css selector", "body")
    body.send_keys("j")
    assert "rollout=" not in fragment(browser)
    open_section(browser, "tasks")
    body.send_keys("/")
    focused = browser.switch_to.active_element
    assert focused.get_attribute("id") == "find"
    focused.send_keys(Keys.ESCAPE)
    open_section(browser, "rollouts")
    body.send_keys("j")
    until(browser, "location.hash.includes('rollout=')")


def test_facets_count_and_choose_several_values(
    browser: Any, training_page: str
) -> None:
    opened(browser, training_page)
    choices = {"task gcd": 32, "task lcm": 64, "status wrong": 27, "level 1": 3}
    for key, left in choices.items():
        click_box(browser, key)
        until_text(browser, "found", f"{left} of 97")
    assert browser.find_element("id", "where").get_attribute("value") == (
        "task:gcd,lcm status:wrong level:1"
    )
    for field, said in (
        ("status", ["solved29", "wrong3"]),
        ("level", ["024", "13"]),
        ("task", ["gcd2", "lcm1"]),
    ):
        assert texts(browser, f"#facet-{field} li") == said
    click_box(browser, "task lcm")
    until_text(browser, "found", "2 of 97")


def test_any_column_sorts_the_rollouts(browser: Any, training_page: str) -> None:
    opened(browser, training_page)
    sorting = "[...document.querySelectorAll('#rollout-head [aria-sort$=ing]')]"
    for key in texts(browser, "#rollout-head button"):
        for direction, order in (("", "ascending"), ("-", "descending")):
            set_fragment(browser, f"where=task:gcd,bf&sort={direction}{key.lower()}")
            by = f"{sorting}.map((head) => `${{head.ariaSort}} ${{head.textContent}}`).join()"
            until(browser, f"{by} === '{order} {key}'")
    column = texts(browser, "#rollout-body .column-time")
    assert column == sorted(column, reverse=True)
    click(
        browser,
        browser.find_element("css selector", "#rollout-head [data-key='sort tokens']"),
    )
    until(
        browser,
        "document.querySelector('#rollout-body .column-tokens').textContent === '29'",
    )
    assert "sort=-tokens" in fragment(browser)


def test_the_selection_is_downloaded_and_copied_as_a_command(
    browser: Any,
    training_page: str,
    training_groups: list[StoredGroup],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = "task:gcd,lcm status:wrong"
    opened(browser, training_page, f"section=rollouts&where={where}&sort=tokens")
    allowed = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
    click(browser, browser.find_element("id", "download"))
    until_text(browser, "selection-said", "27 rollouts in 6 rows")
    file = tmp_path / "rollouts.jsonl"
    WebDriverWait(browser, 30, 0.05).until(lambda _: file.exists())
    expected = [
        [g.rollouts[place] for place in own]
        for g, own in filter_rollouts(training_groups, where)
    ]
    assert [group.rollouts for group in read_groups(file)[0]] == expected
    record_copies(browser)
    choose(browser, "category", "arithmetic")
    click(browser, browser.find_element("id", "copy-command"))
    until_text(browser, "selection-said", "Command copied; it selects 27 rollouts")
    (command,) = browser.execute_script("return copies")
    assert command.startswith("reasoning-gym-environment show /")
    assert command.endswith(f"--where '{where} category:arithmetic kind:training'")
    assert show(shlex.split(command)[2:]) == 0
    assert "5 of 27 matching rollouts" in capsys.readouterr().err


def act(browser: Any, script: str) -> None:
    """Run a script as a reader's own act: Back passes over addresses without one."""
    asked = {"expression": script, "userGesture": True}
    browser.execute_cdp_cmd("Runtime.evaluate", asked)


def test_back_leads_to_the_rollout_before(browser: Any, training_page: str) -> None:
    opened(browser, training_page, "where=task:gcd&sort=time")
    for place, question in ((0, "Question 0?"), (8, "Question 3?")):
        act(browser, f"document.getElementById('rollout-{place}').click()")
        until_text(browser, "detail", question)
    act(browser, "document.querySelector(`#facets [data-key='level 0']`).click()")
    until_text(browser, "found", "16 of 97")
    browser.back()
    until_text(browser, "found", "32 of 97")
    browser.back()
    until_text(browser, "detail", "Question 0?")


def test_a_truncated_rollout_shows_its_text(browser: Any, tmp_path: Path) -> None:
    group = row(
        [0.0, 0.0],
        texts=["<think>It never ends", "<think>so</think><answer>1</answer>"],
    )
    group["rollouts"][0]["finish_reason"] = "length"
    write_report([write(tmp_path, [group])], tmp_path / "report.html")
    for together in ("", "1"):
        fragment = f"section=rollouts&together={together}"
        opened(browser, (tmp_path / "report.html").as_uri(), fragment)
        until_text(browser, "detail", "Truncated here.")
        shown = browser.find_element("css selector", ".thought pre")
        assert shown.is_displayed()
        assert shown.text == "It never ends"


def open_group(browser: Any, page: str, question: str) -> Any:
    opened(browser, page, "section=rollouts&sort=time")
    choose(browser, "where", question)
    until_text(browser, "found", "8 of 97")
    until_text(browser, "detail", question)
    return browser.find_element("id", "detail")


def test_a_rollout_shows_all_its_parts(browser: Any, training_page: str) -> None:
    detail = open_group(browser, training_page, "Question 4?")
    for said in (
        "Question 4?",
        "42",
        "= reward 1.00",
        "level 0",
        "24 tokens",
        "1 of 8",
    ):
        assert said in detail.text
    assert texts(browser, "mark.answer") == ["0"]
    thought = detail.find_element("css selector", ".thought")
    assert not thought.find_element("css selector", "pre").is_displayed()
    click(browser, thought.find_element("css selector", "summary"))
    assert thought.find_element("css selector", "pre").text == "thought 0"
    click(browser, detail.find_elements("css selector", ".siblings button")[7])
    until_text(browser, "detail", "Score 0.00")
    assert ".8" in fragment(browser)


def test_siblings_stand_side_by_side_with_differences_marked(
    browser: Any, training_page: str
) -> None:
    open_group(browser, training_page, "Question 4?")
    browser.find_element("id", "detail").send_keys("s")
    until(browser, "document.querySelectorAll('.column').length === 8")
    assert texts(browser, ".column.current h4") == [" Rollout 1: solved"]
    differences = texts(browser, ".column mark.different")
    assert "7" in differences
    assert "thought" not in " ".join(differences)
    assert "together=1" in fragment(browser)


def test_a_reward_is_explained(browser: Any, training_page: str) -> None:
    opened(browser, training_page, "section=rollouts&task=bf")
    until(browser, "document.querySelector('.outcome')")
    said = browser.find_element("css selector", ".outcome").text
    assert "The server gave no completion." in said
    assert "the server was down" in said
    open_group(browser, training_page, "Question 0?")
    click(browser, browser.find_elements("css selector", ".siblings button")[1])
    until_text(browser, "detail", "Score 0.75 in score mode binary")


def test_a_paid_form_is_explained_and_its_box_marked(
    browser: Any, tmp_path: Path
) -> None:
    text = r"<think>\boxed{3}</think>Is it 4? It is $\boxed{4}$, which is 4."
    boxed = row([1.0], texts=[text])
    boxed["scoring"] = {"answer_format": "boxed", "score_mode": "partial"}
    boxed["rollouts"][0] |= {"answer": "4", "status": "solved", "raw_score": 0.5}
    write_report([write(tmp_path, [boxed])], tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    until_text(
        browser,
        "detail",
        "Right in another form, which earns 1.00 instead of the verifier's 0.50",
    )
    assert texts(browser, "mark.answer") == ["4"]


def test_a_rollout_is_copied_as_a_row_and_as_a_safe_command(
    browser: Any, hostile_page: str, tmp_path: Path
) -> None:
    opened(browser, hostile_page)
    record_copies(browser)
    until(browser, "document.querySelector('[data-key=json]')")
    for key in ("json", "rescore"):
        click(browser, browser.find_element("css selector", f"[data-key={key}]"))
        until(browser, f"copies.length === {1 if key == 'json' else 2}")
    row_text, command = browser.execute_script("return copies")
    (rollout,) = json.loads(row_text)["rollouts"]
    assert rollout in hostile_row()["rollouts"]
    assert command.count("'") == 4
    assert command.startswith("printf '%s\\n' '{")
    assert "&& reasoning-gym-environment rescore --force rollout.jsonl" in command
    assert command.isascii()


def test_a_link_opens_the_same_rollout(browser: Any, training_page: str) -> None:
    open_group(browser, training_page, "Question 5?")
    click(browser, browser.find_elements("css selector", ".siblings button")[6])
    until_text(browser, "detail", "Score 0.00")
    link = fragment(browser).removeprefix("#")
    opened(browser, training_page, link)
    until_text(browser, "detail", "Question 5?")
    current = "document.querySelector('.siblings [aria-current=true]')?.ariaLabel"
    until(browser, f"{current}?.startsWith('Rollout 7: wrong')")
    top = "document.getElementById('detail').getBoundingClientRect().top"
    until(browser, f"{top} > -1 && {top} < innerHeight / 2")
    opened(browser, training_page, "rollout=gone.1")
    until_text(browser, "detail", "This rollout is not in these files.")


def test_hostile_text_is_text_and_characters_that_hide_or_reorder_are_named(
    browser: Any, hostile_page: str
) -> None:
    opened(browser, hostile_page)
    until(browser, "document.querySelectorAll('.siblings button').length === 7")
    for place, text in enumerate([*HOSTILE, NAMED]):
        click(browser, browser.find_elements("css selector", ".siblings button")[place])
        shown = "document.querySelector('.thought pre')?.textContent"
        until(browser, f"{shown} === {json.dumps(text)}")
        for columns in (7, 0):  # side by side, and alone again
            browser.find_element("id", "detail").send_keys("s")
            until(browser, f"document.querySelectorAll('.column').length === {columns}")
    said = str(browser.execute_script("return document.body.textContent"))
    data = "".join(texts(browser, "script"))
    assert not set("\x00\x1b\u202e\u200b") & set(said.replace(data, ""))
    assert "⟨U+202E⟩" in "".join(texts(browser, "#task-table"))
    open_section(browser, "rollouts")
    browser.find_element("id", "detail").send_keys("s")
    until(browser, "document.querySelectorAll('.column').length === 7")
    draw_charts(browser, "time")
    assert browser.execute_script("return window.hacked") is None
    assert len(browser.find_elements("css selector", "h1, article, main")) == 3
    assert not browser.find_elements(
        "css selector", "#detail img, #detail script, main img"
    )
    assert browser.get_log("browser") == []


def test_the_page_runs_no_script_but_its_own(browser: Any, page: str) -> None:
    opened(browser, page)
    browser.execute_script(
        """const script = document.createElement("script");
        script.textContent = "window.hacked = 1"; document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hacked = 1'>")"""
    )
    assert browser.execute_script("return window.hacked") is None
    assert "Content Security Policy" in str(browser.get_log("browser"))


def test_charts_take_the_colors_of_the_theme_and_a_print_those_of_paper(
    browser: Any, training_page: str
) -> None:
    opened(browser, training_page)
    draw_charts(browser, "time")
    script = """window.fill = () =>
        document.querySelector("#time .mark-symbol path")?.getAttribute("fill");
        // Behind the page's own listener, which has drawn by then.
        addEventListener("beforeprint", () => (window.printedFill = fill()));"""
    browser.execute_script(script)

    def fill() -> Any:
        return browser.execute_script("return fill()")

    def ink() -> Any:
        return browser.execute_script("return getComputedStyle(document.body).color")

    light = fill()
    light_ink = ink()
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    try:
        browser.execute_script("document.getElementById('time').scrollIntoView()")
        wait = WebDriverWait(browser, 300, 0.05)
        wait.until(lambda _: fill() not in (None, light))
        assert ink() != light_ink
        browser.execute_cdp_cmd("Page.printToPDF", {})
        assert browser.execute_script("return printedFill") == light
        wait.until(lambda _: fill() not in (None, light))
        on_paper = {"media": "print", "features": dark}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", on_paper)
        assert ink() == light_ink
    finally:
        no_emulation = {"media": "", "features": []}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", no_emulation)


def test_nothing_overflows_on_a_phone(browser: Any, page: str) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened(browser, page)
        draw_charts(browser, "distributions")
        assert (
            browser.execute_script("return document.documentElement.scrollWidth") == 360
        )
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.nightly
def test_axe_finds_nothing(browser: Any, page: str, training_page: str) -> None:
    for address in (page, training_page):
        opened(browser, address, "together=1")
        draw_charts(browser, "time")
        assert violations(browser) == []
