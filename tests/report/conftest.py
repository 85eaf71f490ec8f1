"""One Chromium for all tests of pages here; each test begins with an empty console."""

from collections.abc import Iterator
from typing import Any

import pytest
from chromium import chromium


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def browser(driver: Any) -> Iterator[Any]:
    driver.get_log("browser")  # of the page of the test before
    yield driver
    driver.get("about:blank")
