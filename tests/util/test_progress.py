"""Progress shows the jobs done, the rate and the time left."""

import logging

import pytest

from reasoning_gym_environment.util.progress import Progress


def test_off_a_terminal_progress_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress("evaluation", total=50, done=10, log_every=0.0)
    with caplog.at_level(logging.INFO):
        for _ in range(10):
            progress.advance()
    assert len(caplog.messages) == 10
    assert caplog.messages[-1].startswith("evaluation:  40% 20/50 [00:00<00:00,")
    assert caplog.messages[-1].endswith("it/s]")


def test_the_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress("evaluation", total=50, log_every=1e9)
    with caplog.at_level(logging.INFO):
        progress.advance()
    assert not caplog.messages
