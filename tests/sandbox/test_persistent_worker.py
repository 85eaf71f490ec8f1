"""The persistent worker: nothing stays behind in it, and harm done to it is noticed.

Its dataset here executes the answers, which no verifier of its tasks does: so each test can do to
the child what the screen and the library leave no answer a way to do.
"""

import decimal
import os
import pickle
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disabled_protections import score_unscreened
from filter_attempts import where_filtered

from reasoning_gym_environment.sandbox import _verifier_child
from reasoning_gym_environment.sandbox._children import ParentGoneError
from reasoning_gym_environment.sandbox._protocol import (
    FORM_SCORES,
    EntryAnswers,
    FormScores,
    Outcome,
)
from reasoning_gym_environment.sandbox._verifier_host import _MAX_GROUPS, VerifierHost

pytestmark = pytest.mark.processes

PID = "result = os.getpid()"
HANGS = "while True: pass"
MODULES = {
    "decimal": decimal,
    "np": np,
    "os": os,
    "random": random,
    "socket": socket,
    "sys": sys,
}


class Obedient:
    """A dataset whose verifier runs the answer, and pays what that calls `result`."""

    def __init__(self) -> None:
        self.words: Any = ["a", "b"]

    def score_answer(self, answer: str, entry: Mapping[str, Any]) -> float:
        scope = {"dataset": self, "entry": entry, "result": 0.0, **MODULES}
        exec(answer, scope)
        return float(scope["result"])


class Unreadable:
    """What opens a file to be unpickled, as an import does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (os.devnull,)


class Shelf:
    """Datasets by their parameters, built when they are first asked for."""

    def __init__(self) -> None:
        self._kept: dict[str, Obedient] = {}

    def get(self, task: str, parameters: Mapping[str, Any]) -> Obedient:
        return self._kept.setdefault(repr(parameters), Obedient())

    def cached(self) -> list[Obedient]:
        return list(self._kept.values())


class Asked:
    """A host with such datasets, and its answers."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.host = VerifierHost(self.shelf)  # type: ignore[arg-type]  # it has what a host asks for
        self._silent, self._parent = os.pipe()

    def scores(self, *answers: str, **changes: Any) -> list[FormScores]:
        request = {
            "task": "gcd",
            "entry": pickle.dumps({"answer": "1"}),
            "answers": answers,
            "timeout": 2.0,
            "patience": 60.0,
            "group_timeout": 60.0,
        }
        return self.host.verify(EntryAnswers(**request | changes), self._silent)

    def outcomes(self, *answers: str) -> list[Outcome]:
        return [score.outcome for score in self.scores(*answers)]

    def child(self, **changes: Any) -> int:
        """The process id of the child that scores a group, as it says itself."""
        [score] = self.scores(PID, **changes)
        assert score.outcome is Outcome.SCORED
        return int(score.raw)

    def leave(self) -> None:
        """Close the request pipe, as a parent does that ends."""
        os.close(self._parent)
        self._parent = -1

    def close(self) -> None:
        if self.host._worker is not None:
            self.host._worker.end()
        os.close(self._silent)
        if self._parent >= 0:
            self.leave()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    monkeypatch.setattr(_verifier_child, "screen_and_score", score_unscreened)
    asked = Asked()
    yield asked
    asked.close()


def test_one_child_scores_group_after_group_and_no_more_than_it_may(
    asked: Asked,
) -> None:
    children = [asked.child() for _ in range(_MAX_GROUPS + 1)]
    assert len(set(children[:-1])) == 1
    assert children[-1] != children[0]


HARM = {
    "draws a random number": "random.random()",
    "lowers the precision of decimals": "decimal.getcontext().prec = 3",
    "lets decimals raise": "decimal.getcontext().traps[decimal.Inexact] = True",
    "lets numpy raise": "np.seterr(all='raise')",
    "lowers the recursion limit": "sys.setrecursionlimit(500)",
    "allows endless integers": "sys.set_int_max_str_digits(0)",
    "lengthens what its dataset knows": "dataset.words.append('c')",
    "replaces what its dataset knows": "dataset.words = ['x', 'y']",
    "gives its dataset an attribute": "dataset.score_answer = lambda *_: 1.0",
    "takes memory": "sys.kept = bytearray(32 * 2**20)",
    "says more than it was asked": f"""
for descriptor in range(3, 64):
    try:
        os.write(descriptor, bytes({FORM_SCORES.size}))
    except OSError:
        pass
""",
    "runs out of memory": "raise MemoryError",
    "ends": "os._exit(3)",
    "runs out of time": HANGS,
}
NEEDS_PROC = {"takes memory"}

STATE = """
result = float(decimal.Decimal(1) / 3) + len(dataset.words)
result += sys.getrecursionlimit() + sys.get_int_max_str_digits()
result += len(repr(np.geterr())) + len(vars(dataset)) + len(dataset.words[0])
"""


@pytest.mark.parametrize("harm", HARM)
def test_a_child_takes_no_further_group_after_an_answer_that(
    asked: Asked, harm: str
) -> None:
    if harm in NEEDS_PROC and sys.platform != "linux":
        pytest.skip("the address space is measured in /proc")
    [before] = asked.scores(STATE)
    first = asked.child()
    assert asked.child() == first
    asked.scores(HARM[harm])
    [after] = asked.scores(STATE)
    assert (after.raw, after.outcome) == (before.raw, Outcome.SCORED)
    assert asked.child() != first


@pytest.mark.parametrize(
    ("harm", "outcome"),
    [
        (HANGS, Outcome.TIMEOUT),
        ("os._exit(3)", Outcome.CRASHED),
        ("raise MemoryError", Outcome.OUT_OF_MEMORY),
        ("x = bytearray(2**30)", Outcome.OUT_OF_MEMORY),
    ],
)
def test_an_answer_that_ends_the_child_costs_its_neighbours_nothing(
    asked: Asked, harm: str, outcome: Outcome
) -> None:
    asked.child()
    begin = time.monotonic()
    first, ended, *others = asked.scores(
        "result = 0.25", harm, "result = 0.5", PID, PID
    )
    assert time.monotonic() - begin < 30
    assert (first.outcome, first.raw) == (Outcome.SCORED, 0.25)
    assert ended.outcome is outcome
    assert [score.outcome for score in others] == [Outcome.SCORED] * 3
    assert others[0].raw == 0.5
    assert others[1].raw == others[2].raw == asked.child()


def test_each_answer_has_an_entry_of_its_own(asked: Asked) -> None:
    reads = "result = 0.1 + (entry['answer'] == 'hacked')"
    edited = asked.scores("entry['answer'] = 'hacked'", reads, "result = 0.5")
    assert [score.raw for score in edited] == [0.0, 0.1, 0.5]


def test_junk_in_its_reply_costs_its_own_group_at_most(asked: Asked) -> None:
    forger = HARM["says more than it was asked"].replace("bytes(", "b'\\xff' * (4 + ")
    [forged] = asked.scores(forger)
    assert forged.outcome is Outcome.CRASHED
    assert [score.raw for score in asked.scores("result = 0.25", "result = 0.5")] == [
        0.25,
        0.5,
    ]


def test_junk_in_place_of_a_score_costs_no_neighbour_anything(asked: Asked) -> None:
    reply = FORM_SCORES.size
    junk = f"[os.write(fd, b'\\xff' * {reply}) for fd in range(3, 40) if writes(fd)]; os._exit(0)"
    writes = (
        "def writes(fd):\n"
        "    try: return os.write(fd, b'') == 0\n"
        "    except OSError: return False\n"
    )
    forged, neighbour = asked.scores(writes + junk, "result = 0.5")
    assert (forged.outcome, neighbour.raw) == (Outcome.CRASHED, 0.5)


def test_a_child_that_reads_nothing_costs_no_more_than_one_deadline(
    asked: Asked,
) -> None:
    os.kill(asked.child(timeout=200.0), signal.SIGSTOP)
    begin = time.monotonic()
    [score] = asked.scores("x" * 2**20, timeout=0.5)
    assert score.outcome is Outcome.TIMEOUT
    assert time.monotonic() - begin < 100


def test_a_host_whose_parent_goes_while_it_writes_a_request_ends_at_once(
    asked: Asked,
) -> None:
    os.kill(asked.child(timeout=200.0), signal.SIGSTOP)
    begin = time.monotonic()
    threading.Timer(0.2, asked.leave).start()
    with pytest.raises(ParentGoneError):
        asked.scores("x" * 2**20, timeout=200.0, group_timeout=200.0)
    assert time.monotonic() - begin < 100


def test_what_an_answer_prints_goes_nowhere_and_is_no_error(
    asked: Asked, capfd: pytest.CaptureFixture[str]
) -> None:
    child = asked.child()
    [printed] = asked.scores(
        "print('x' * 10**6, flush=True); print('y', file=sys.stderr)"
    )
    assert (printed.outcome, printed.raw) == (Outcome.SCORED, 0.0)
    assert asked.child() == child
    assert capfd.readouterr() == ("", "")


def test_a_request_larger_than_a_pipe_holds_arrives(asked: Asked) -> None:
    entry = pickle.dumps({"answer": "9" * 10**6})
    assert asked.child(entry=entry) == asked.child()
    [score] = asked.scores(
        "result = len(entry['answer']) / 1e6 #" + "x" * 10**6, entry=entry
    )
    assert score.raw == 1.0


def test_a_child_has_the_limits_of_its_requests_and_processor_time_enough_for_them(
    asked: Asked,
) -> None:
    first = asked.child()
    assert asked.child(timeout=20.0) == first
    longer = asked.child(timeout=100.0)
    assert longer != first


def test_a_worker_is_sent_a_dataset_that_was_built_later(asked: Asked) -> None:
    first = asked.child()
    later = {"level": 2}
    assert asked.child(parameters=later) == first
    [size] = asked.scores("result = len(dataset.words) / 8", parameters=later)
    assert size.raw == 0.25
    assert asked.child(parameters=later) == asked.child() == first


@pytest.mark.parametrize(
    ("task", "words"),
    [("gcd", "x" * 2**18), ("gcd", lambda: None), ("codeio", ["a", "b"])],
    ids=[
        "is large",
        "can't be pickled",
        "shares what it knows with others of its task",
    ],
)
def test_another_child_knows_a_dataset_that(
    asked: Asked, task: str, words: Any
) -> None:
    first = asked.child()
    later = {"level": 2}
    asked.shelf.get("gcd", later).words = words
    other = asked.child(task=task, parameters=later)
    assert other != first
    assert asked.child() == asked.child(parameters=later) == other


def test_a_dataset_that_the_child_cannot_read_scores_in_children_of_its_own(
    asked: Asked,
) -> None:
    first = asked.child()
    later = {"level": 2}
    asked.shelf.get("gcd", later).words = Unreadable()
    entry = pickle.dumps({"answer": "result = 1"})
    alone = [asked.child(parameters=later, entry=entry) for _ in range(2)]
    assert len({first, *alone}) == 3
    assert asked.child() == first


def test_a_child_that_is_killed_between_two_groups_costs_no_answer(
    asked: Asked,
) -> None:
    child = asked.child()
    os.kill(child, signal.SIGKILL)
    assert asked.child() != child


def test_a_child_that_is_killed_over_an_answer_is_tried_again(asked: Asked) -> None:
    killing = threading.Timer(0.3, os.kill, (asked.child(), signal.SIGKILL))
    killing.start()
    slow = "import time\nfor _ in range(10**9):\n    if time.monotonic() > begin + 0.6: break\n"
    answer = f"begin = {time.monotonic()}\n{slow}result = 0.5"
    [score] = asked.scores(answer, timeout=5.0)
    killing.join()
    assert (score.outcome, score.raw) == (Outcome.SCORED, 0.5)


@where_filtered
def test_a_child_that_reads_nothing_is_out_of_time_and_replaced(asked: Asked) -> None:
    child = asked.child()
    os.kill(child, signal.SIGSTOP)
    entry = pickle.dumps({"answer": "9" * 10**6})
    begin = time.monotonic()
    stuck, other = asked.scores("result = 0.5", PID, entry=entry)
    assert time.monotonic() - begin < 30
    assert stuck.outcome is Outcome.TIMEOUT
    assert (other.outcome, other.raw) != (Outcome.SCORED, child)


@where_filtered
def test_a_persistent_worker_cannot_reach_anything(
    asked: Asked, tmp_path: Path
) -> None:
    for attempt in (
        *(
            f"open({str(tmp_path / 'made')!r}, 'w')",
            f"os.mkdir({str(tmp_path / 'made')!r})",
        ),
        *(
            "os.open('/etc/passwd', os.O_RDONLY)",
            "os.fork()",
            "socket.socket()",
            "os.pipe()",
        ),
        *(
            "os.kill(os.getppid(), 0)",
            "os.kill(os.getpid(), 0)",
            "os.execv('/bin/true', ['true'])",
        ),
        *("os.read(0, 1)", "os.write(1, b'x')"),
    ):
        code = f"try:\n    {attempt}\nexcept PermissionError:\n    result = 0.5"
        assert [score.raw for score in asked.scores(code, code)] == [0.5, 0.5], attempt
    assert list(tmp_path.iterdir()) == []
