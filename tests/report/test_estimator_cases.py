"""One table of cases for each estimator of the package, and for those that the page has too."""

import json
from pathlib import Path
from typing import Any

import pytest
from chromium import needs_chromium
from report_files import row, write

from reasoning_gym_environment.evaluation import estimators
from reasoning_gym_environment.report.page import write_report

CASES: dict[str, list[Any]] = json.loads(
    (Path(__file__).with_name("estimator_cases.json")).read_bytes()
)

IN_PAGE = ("share", "student_quantile")

TWINS = """
const clusters = (items) => items.map((own) => [own.length, own.reduce((a, b) => a + b, 0)]);
const interval = ({ value, error, low, high }) => [value, error, low, high];
const page = reportFigures;
const twins = {
  share: (items) => interval(page.share(clusters(items))),
  student_quantile: page.studentQuantile,
};
return twins[arguments[0]](arguments[1]);
"""


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"discoveries"}))
def test_the_packages_estimators_have_the_tables_values(name: str) -> None:
    for given, expected in CASES[name]:
        own = getattr(estimators, name)
        found = own(*given) if name == "mean_difference" else own(given)
        assert found == pytest.approx(expected, abs=1e-8)


@needs_chromium
@pytest.mark.nightly
def test_the_pages_estimators_have_the_same_values(
    browser: Any, tmp_path: Path
) -> None:
    write_report([write(tmp_path, [row([1.0])])], tmp_path / "report.html")
    browser.get((tmp_path / "report.html").as_uri())
    for name, given, expected in [(n, *case) for n in IN_PAGE for case in CASES[n]]:
        found = browser.execute_script(TWINS, name, given)
        assert found == pytest.approx(expected, abs=1e-6), (name, given)
