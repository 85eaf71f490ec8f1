"""`contain`: whatever a function does, its caller gets a verdict in time."""

import asyncio
import http.server
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import contained_functions
import pytest
from contained_functions import BEHAVIORS, MISBEHAVIORS, NUMBERS, RETURNS, equal
from disabled_protections import UNFILTERED
from filter_attempts import where_filtered
from hostile_answers import CASES
from process_tree import children, descendants, in_linux, survivors

from reasoning_gym_environment import Status, contain
from reasoning_gym_environment.errors import (
    ConfigurationError,
    PoolClosedError,
    WorkerStartError,
)
from reasoning_gym_environment.gym.containment import ContainedFunction
from reasoning_gym_environment.sandbox import _fork_server, functions

TIMEOUT = 1.0
HANGS = {"loops", "computes_in_c", "sleeps", "catches_everything", "waits_for_input"}
MEMORY = {"allocates", "allocates_bit_by_bit"}
CRASHES = {
    *(
        "overflows_the_stack",
        "reads_a_null_pointer",
        "exits_at_once",
        "closes_everything",
    ),
    *("closes_everything_and_waits", "writes_to_every_descriptor"),
}
STATUSES = {
    **dict.fromkeys(MISBEHAVIORS, Status.VERIFIER_ERROR),
    **dict.fromkeys(RETURNS, Status.VERIFIER_ERROR),
    **dict.fromkeys(HANGS, Status.TIMEOUT),
    **dict.fromkeys(MEMORY, Status.OUT_OF_MEMORY),
    **dict.fromkeys(CRASHES, Status.CRASHED),
}


@pytest.fixture(scope="module")
def reward() -> Iterator[ContainedFunction]:
    with contain(equal, timeout=TIMEOUT, processes=2) as reward:
        yield reward


@pytest.fixture(scope="module")
def misbehaving() -> Iterator[ContainedFunction]:
    function = contained_functions.misbehave
    with contain(function, timeout=TIMEOUT, memory="100MB", processes=2) as reward:
        yield reward


@pytest.mark.processes
def test_a_function_scores_texts(reward: ContainedFunction) -> None:
    assert [reward("4", "4"), reward("5", "4")] == [1.0, 0.0]
    verdicts = reward.score_many(
        [("a", "a"), ("b", "a"), ("ü\ud800", "ü\ud800"), ("x", None)]
    )
    assert [v.status.value for v in verdicts] == ["solved", "wrong", "solved", "wrong"]
    assert all(v.seconds > 0 for v in verdicts)


@pytest.mark.processes
async def test_it_can_be_awaited_beside_blocking_calls(
    reward: ContainedFunction,
) -> None:
    pairs = [(str(n % 2), "1") for n in range(20)]
    scored = await asyncio.gather(*(reward.score_async(*pair) for pair in pairs))
    assert [verdict.score for verdict in scored] == [0.0, 1.0] * 10
    assert [v.score for v in await reward.score_many_async(pairs)] == [0.0, 1.0] * 10
    assert reward("1", "1") == 1.0


class CountedData(dict[str, Any]):
    """Data that counts how often it is encoded."""

    encoded = 0

    def items(self) -> Any:
        self.encoded += 1
        return super().items()


@pytest.mark.processes
def test_data_that_texts_share_is_encoded_once(reward: ContainedFunction) -> None:
    data = CountedData(answer="4")
    assert len(reward.score_many((text, data) for text in "123")) == 3
    assert data.encoded == 1


@pytest.mark.processes
def test_threads_may_share_it(reward: ContainedFunction) -> None:
    with ThreadPoolExecutor(4) as threads:
        scores = list(threads.map(lambda n: reward(str(n), "3"), range(8)))
    assert scores == [float(n == 3) for n in range(8)]


@where_filtered
@pytest.mark.processes
@pytest.mark.parametrize("name", STATUSES)
def test_what_a_function_does_is_a_verdict_in_time(
    name: str, misbehaving: ContainedFunction
) -> None:
    begin = time.monotonic()
    verdict = misbehaving.score(name)
    assert time.monotonic() - begin < TIMEOUT + 60
    assert (verdict.status, verdict.score) == (STATUSES[name], 0.0), verdict.detail
    assert verdict.detail.isprintable()
    assert not Path("/tmp/contained-function-wrote").exists()
    assert Path(contained_functions.__file__).exists()


@where_filtered
@pytest.mark.processes
def test_misbehavior_costs_no_worker_and_no_other_call(
    misbehaving: ContainedFunction,
) -> None:
    misbehaving.start()
    workers = descendants(os.getpid())
    names = ["raises", "loops", "exits_at_once", "a list", "allocates", "raises"]
    before = misbehaving.counts
    verdicts = misbehaving.score_many((name, None) for name in names)
    assert [verdict.status for verdict in verdicts] == [
        STATUSES[name] for name in names
    ]
    assert "sandbox/restarts" not in misbehaving.counts
    assert misbehaving.counts["verifier_error"] == before.get("verifier_error", 0) + 3
    assert descendants(os.getpid()) == workers


@pytest.mark.processes
def test_errors_say_what_was_wrong(misbehaving: ContainedFunction) -> None:
    details = {
        "raises": r"raised ValueError: no \x1b[31mnumber\u202e in it",
        "raises_without_text": "raised HostileError",
        "exits": "raised SystemExit: 0",
        "text": "returned '1.0', which is not a number",
        "nothing": "returned None, which is not a number",
        "NaN": "returned nan, which is not a number",
        "a huge number": "returned a number of 1329 bits, which is not a number",
        "too much": "returned 2, outside of [0, 1]: set bounds",
    }
    assert {name: misbehaving.score(name).detail for name in details} == details


@pytest.mark.processes
def test_errors_are_logged_as_they_multiply(caplog: pytest.LogCaptureFixture) -> None:
    with contain(contained_functions.misbehave, processes=2) as reward:
        reward.score_many([("nothing", None)] * 12)
    lines = [
        record.getMessage()
        for record in caplog.records
        if "returned" in record.getMessage()
    ]
    path = "contained_functions:misbehave returned None, which is not a number"
    assert lines == [f"{path} (error 1)", f"{path} (error 10)"]


@where_filtered
@pytest.mark.processes
@pytest.mark.nightly
def test_hostile_texts_that_are_executed_touch_nothing(tmp_path: Path) -> None:
    """A function that runs its text, under all known hostile answers, in and between right ones."""
    answers = dict.fromkeys(case["answer"] for case in CASES if "answer" in case)
    texts = [answer.replace("{canary}", str(tmp_path / "canary")) for answer in answers]
    with contain(contained_functions.evaluate, timeout=TIMEOUT, processes=2) as reward:
        begin = time.monotonic()
        verdicts = reward.score_many(
            (each, 4) for text in texts for each in (text, "2 + 2")
        )
        assert time.monotonic() - begin < (TIMEOUT + 1) * len(texts)
        assert [verdict.score for verdict in verdicts[1::2]] == [1.0] * len(texts)
        assert [t for t, v in zip(texts, verdicts[::2], strict=True) if v.score] == []
        assert "sandbox/restarts" not in reward.counts
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_what_verifiers_need_goes_on() -> None:
    with contain(contained_functions.behave, processes=1, timeout=20) as reward:
        for name in (*BEHAVIORS, *NUMBERS):
            verdict = reward.score(name)
            assert (verdict.score, verdict.detail) == (1.0, ""), name


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.HTTPServer(
        ("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler
    )
    server.RequestHandlerClass.log_message = lambda *_: None  # type: ignore[method-assign]  # the server would print
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/pyproject.toml"
    server.shutdown()
    server.server_close()
    thread.join()


@where_filtered
@pytest.mark.processes
@pytest.mark.parametrize("option", ["network", "processes", "write"])
def test_each_option_allows_one_thing(option: str, url: str) -> None:
    with contain(contained_functions.loosened, processes=1, allow=[option]) as reward:
        scores = {name: reward(name, url) for name in ("network", "processes", "write")}
    assert scores == {name: float(name == option) for name in scores}


@where_filtered
@pytest.mark.processes
async def test_programs_that_a_function_started_end_with_its_call(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pids"
    with contain(
        contained_functions.with_a_child,
        timeout=2,
        processes=1,
        allow=["processes", "write"],
    ) as reward:
        assert reward.score("x", str(file)).status is Status.TIMEOUT
        assert await survivors(map(int, file.read_text().split())) == set()


@pytest.mark.processes
def test_bounds_are_the_callers() -> None:
    path = "contained_functions:misbehave"
    with contain(
        path, bounds=(-1, 2), solved_threshold=1.5, timeout=2, processes=1
    ) as reward:
        assert [reward("too much"), reward("too little"), reward("infinity")] == [
            2.0,
            -0.5,
            -1.0,
        ]
        assert [reward("sleeps"), reward("nothing")] == [-1.0, -1.0]
        assert reward.score("too much").status is Status.SOLVED


@pytest.mark.processes
@in_linux
def test_the_default_memory_is_enough_for_many_threads() -> None:
    with contain("contained_functions:runs_threads", processes=1, timeout=60) as reward:
        assert reward("x", 32) == 1.0


@pytest.mark.processes
def test_a_warm_up_runs_once_for_all_calls() -> None:
    path = "contained_functions:earlier_calls"
    with contain(
        path, warm_up=[("a", None), ("b", {"c": 1})], bounds=(0, 9), processes=1
    ) as it:
        assert [it("x"), it("y")] == [2.0, 2.0]
    broken = contain("contained_functions:misbehave", warm_up=[("raises", 0)])
    with pytest.raises(
        WorkerStartError, match=r"warm_up: .*:misbehave raised ValueError"
    ):
        broken.start()


@pytest.mark.processes
def test_a_function_sees_named_variables_and_the_callers_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("API_TOKEN", "hush")
    monkeypatch.chdir(tmp_path)
    for names, seen in (([], 0.0), (["API_TOKEN", "UNSET"], 1.0)):
        with contain(
            "contained_functions:variable", environment=names, processes=1
        ) as reward:
            assert reward("API_TOKEN", "hush") == seen
    with contain("contained_functions:folder", processes=1) as reward:
        assert reward("x", str(tmp_path)) == 1.0


def of_main(text: str, data: Any) -> float:
    return 1.0


of_main.__module__ = "__main__"


def local() -> Any:
    def function(text: str, data: Any) -> float:
        return 1.0

    return function


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda text, data: 1.0,
            "<lambda> cannot be imported by its name: define it with def",
        ),
        (
            local(),
            r"local.<locals>.function cannot be imported by its name: define it with def",
        ),
        (
            of_main,
            r"__main__ is the running program .*: put it into a module of its own and name",
        ),
        (
            "__main__:verify",
            r"__main__ is the running program or notebook, which worker processes",
        ),
        (
            "my_rewards.verify",
            r"must be a path such as 'package.module:function' or .* got 'my_",
        ),
        (
            "no_module:verify",
            "function: there is no module no_module: install it, or write its",
        ),
        ("os:system; import", r"must be a path"),
        (7, "must be a function or its path, such as 'package.module:function', got 7"),
        (
            contain(equal),
            r"must be a function or its path.*got contain\('contained_functions:eq",
        ),
    ],
)
def test_only_functions_that_can_be_imported_are_accepted(
    function: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        contain(function)


def test_a_name_that_is_something_else_by_now_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contained_functions, "equal", print)
    with pytest.raises(
        ConfigurationError, match="equal is not the function that was passed"
    ):
        contain(equal)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout must be a number > 0 and ≤ 86400, got 0"),
        (
            {"memory": "1kB"},
            "memory must be a size from 16 MiB to 1 PiB, such as '512MB', got '1kB'",
        ),
        ({"memory": "lots"}, "memory must be a size from 16 MiB.*got 'lots'"),
        (
            {"memory": "9999PB"},
            "memory must be a size from 16 MiB to 1 PiB.*got '9999PB'",
        ),
        ({"timeout": 1e9}, "timeout must be a number"),
        (
            {"solved_threshold": 2},
            r"solved_threshold must be within bounds, \(0.0, 1.0\), got 2",
        ),
        ({"processes": 0}, "processes must be an integer ≥ 1, got 0"),
        (
            {"bounds": (1, 0)},
            r"bounds must be two finite numbers, the lower one first, got \(1.0",
        ),
        ({"bounds": (0, float("nan"))}, "bounds must be"),
        (
            {"allow": ["fly"]},
            "allow.0 must be 'network', 'processes' or 'write', got 'fly'",
        ),
        (
            {"allow": "write"},
            "allow must be one of network, processes, write, got 'write'",
        ),
        ({"time_out": 1}, "unknown setting 'time_out'; did you mean timeout"),
        ({"warm_up": ["x"]}, r"warm_up\.0 must be a text and its data, got 'x'"),
        ({"warm_up": [("x" * 10**6, 0)]}, "warm_up must have at most 100000 bytes"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        contain(equal, **options)


def test_data_must_be_plain_json(reward: ContainedFunction) -> None:
    for data in ({1: 2}, [{(): 1}], {1, 2}, object(), b"x", float):
        with pytest.raises(ConfigurationError, match="data must be plain JSON data"):
            reward("x", data)
    with pytest.raises(ConfigurationError, match=r"^text must be .*, got 5$"):
        reward(5)  # type: ignore[arg-type]  # the mistake


@pytest.mark.processes
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("contained_functions:nothing", "cannot import .*:nothing: AttributeError"),
        (
            "contained_functions:coroutine",
            "must be a plain function of a text and data",
        ),
        ("contained_functions:CALLS", "must be a plain function"),
        ("contained_rewards:reward", "is what contain.. returned: name the function"),
    ],
)
def test_a_function_that_cannot_be_loaded_stops_the_first_call(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = (
        "from reasoning_gym_environment import contain\nreward = contain('os:system')\n"
    )
    (tmp_path / "contained_rewards.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    before = children(os.getpid())
    with pytest.raises(WorkerStartError, match=message):
        contain(path, processes=1)("x")
    assert children(os.getpid()) == before


@pytest.mark.processes
def test_a_lost_worker_costs_no_call() -> None:
    with contain(contained_functions.equal, processes=1) as reward:
        before = descendants(os.getpid())
        assert reward("a", "a") == 1.0
        [host] = {pid for pid in descendants(os.getpid()) - before if not children(pid)}
        os.kill(host, signal.SIGKILL)
        assert reward("a", "a") == 1.0
        assert reward.counts["sandbox/restarts"] == 1


@in_linux
@pytest.mark.processes
async def test_a_call_whose_process_is_killed_from_outside_is_tried_again() -> None:
    others = descendants(os.getpid())
    with contain(contained_functions.naps, timeout=120, processes=1) as reward:
        reward.start()
        workers = descendants(os.getpid()) - others
        call = asyncio.create_task(reward.score_async("1000"))
        killed: set[int] = set()
        while not call.done():
            for pid in descendants(os.getpid()) - others - workers - killed:
                with suppress(ProcessLookupError):  # one that has just ended by itself
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
            await asyncio.sleep(0.01)
        assert (call.result().score, call.result().status) == (None, Status.UNSCORED)
        assert len(killed) >= 3
        assert reward("0") == 1.0


@pytest.mark.processes
async def test_a_call_can_be_cancelled_and_closing_ends_pending_ones() -> None:
    others = descendants(os.getpid())
    reward = contain(contained_functions.misbehave, timeout=60, processes=1)
    reward.start()
    cancelled = asyncio.create_task(reward.score_async("sleeps"))
    await asyncio.sleep(0.1)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    pending = asyncio.create_task(reward.score_async("sleeps"))
    await asyncio.sleep(0.1)
    family = descendants(os.getpid()) - others
    await asyncio.to_thread(reward.close)
    reward.close()
    with pytest.raises(PoolClosedError, match="processes were closed"):
        await pending
    with pytest.raises(PoolClosedError, match="this contained function is closed"):
        reward("x")
    assert await survivors(family) == set()


@in_linux
@pytest.mark.processes
def test_a_fork_has_its_own_workers(reward: ContainedFunction) -> None:
    assert reward("a", "a") == 1.0
    pid = os.fork()
    if pid == 0:
        try:
            assert reward("b", "b") == 1.0
            reward.close()
        except BaseException:  # noqa: BLE001 - a fork of the test run must end here
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert reward("a", "a") == 1.0


@in_linux
@pytest.mark.processes
async def test_what_is_not_closed_leaves_no_process() -> None:
    others = descendants(os.getpid())
    reward = contain(equal, processes=1)
    assert reward("a", "a") == 1.0
    family = descendants(os.getpid()) - others
    copy = pickle.loads(pickle.dumps(reward))
    del reward
    assert await survivors(family) == set()
    assert copy("a", "a") == 1.0
    copy.close()


@pytest.mark.processes
def test_a_system_without_a_filter_is_named_and_refused_on_demand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "PROGRAM", UNFILTERED)
    with contain(contained_functions.misbehave, timeout=1, processes=1) as reward:
        assert reward.score("loops").status is Status.TIMEOUT
        assert reward.score("raises").status is Status.VERIFIER_ERROR
        assert reward.score("exits_at_once").status is Status.CRASHED
        assert reward.missing_protections == [
            "function processes: No system call filter: left out."
        ]
    refused = contain(equal, processes=1, require_containment=True)
    with pytest.raises(
        ConfigurationError, match=r"the sandbox is incomplete .function processes"
    ):
        refused.start()


@in_linux
@pytest.mark.processes
async def test_no_process_outlives_a_caller_that_is_killed() -> None:
    script = (
        "from reasoning_gym_environment import contain\n"
        f"reward = contain('{contained_functions.__file__}:misbehave', timeout=600, processes=2)\n"
        "print(reward('nothing'), flush=True)\n"
        "reward.score_many([('loops', None), ('sleeps', None)])\n"
    )
    caller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert caller.stdout is not None
    assert await caller.stdout.readline() == b"0.0\n"
    # Server, hosts and their children.
    while len(family := descendants(caller.pid)) < 5:
        await asyncio.sleep(0.05)
    caller.kill()
    await caller.wait()
    assert await survivors(family) == set()


HANGING_IMPORT = """
import os, time
from pathlib import Path
Path(__file__).with_name("made.part").write_text(str(os.getpid()))
Path(__file__).with_name("made.part").rename(Path(__file__).with_name("made"))
time.sleep(1000)
"""


@in_linux
@pytest.mark.processes
async def test_an_import_that_hangs_ends_with_its_caller(tmp_path: Path) -> None:
    (tmp_path / "hanging_rewards.py").write_text(HANGING_IMPORT)
    script = "from reasoning_gym_environment import contain; contain('./hanging_rewards.py:f')('x')"
    caller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    while not (tmp_path / "made").exists():
        await asyncio.sleep(0.05)
    caller.kill()
    await caller.wait()
    assert await survivors([int((tmp_path / "made").read_text())], patience=20) == set()


@pytest.mark.processes
def test_an_import_has_a_deadline_and_the_log_says_what_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "hanging_rewards.py").write_text(HANGING_IMPORT)
    monkeypatch.setattr(_fork_server, "SLOW_START", 0.1)
    monkeypatch.syspath_prepend(tmp_path)
    for seconds in (5.0, 20.0, 80.0):  # until the import has begun
        monkeypatch.setattr(_fork_server, "START_TIMEOUT", seconds)
        said = f"process of hanging_rewards:verify .* took longer than {seconds:g} s"
        with pytest.raises(WorkerStartError, match=said) as raised:
            contain("hanging_rewards:verify", processes=1)("x")
        waited = "Worker processes of hanging_rewards:verify still import after 0.1 s"
        assert waited in caplog.text
        if 'hanging_rewards.py", line 6 in <module>' in str(raised.value):
            return
    pytest.fail(str(raised.value))
