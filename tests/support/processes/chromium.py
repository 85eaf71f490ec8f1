"""A headless Chromium for tests of pages; tests that ask for one are skipped without it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and CHROMEDRIVER), reason="needs Chromium and its driver"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Chromium, whose console can be read."""
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--force-prefers-reduced-motion",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Ms: the machine may be busy.
    options.timeouts = {"script": 600_000, "pageLoad": 600_000}
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(CHROMEDRIVER)
    )
    driver.command_executor.client_config.timeout = 600
    yield driver
    driver.quit()
