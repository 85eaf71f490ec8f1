"""`ReasoningGym`: the gym for programs without an event loop.

A thread of its own has the loop, so that it works where one runs already, as in a notebook, and
from several threads.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import threading
import weakref
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from ..errors import PoolClosedError
from ..records import Problem, Recipe
from .asynchronous import AsyncReasoningGym
from .checks import Scorable
from .stream import AsyncProblemStream, StreamOptions
from .values import Score, TaskSummary

if TYPE_CHECKING:
    from typing_extensions import Unpack

Result = TypeVar("Result")


class GymOptions(TypedDict, total=False):
    """The options of `AsyncReasoningGym`, which says what they mean."""

    processes: int | None
    answer_tolerance: bool
    solved_threshold: float
    generation_timeout: float
    verify_timeout: float
    verify_group_timeout: float


class _Loop:
    """An event loop in a thread that ends with the program."""

    def __init__(self) -> None:
        # Not epoll: its set of descriptors would be shared with forks of this process.
        self._loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="reasoning-gym", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the thread; whoever waits for something else is told that it is cancelled."""
        self.submit(_cancel_all()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class ReasoningGym:
    """Makes problems of reasoning-gym and scores completions, in contained worker processes.

    Workers start at first use; they end with `close`, at the end of `with`, and with this process,
    however it ends. All threads may use it; in a fork of this process it has workers of its own.

    Args:
        options: those of `AsyncReasoningGym`.

    Example:
        with ReasoningGym() as gym:
            [problem] = gym.problems("chain_sum", level=3)
            scored = gym.score(problem, "<think>…</think><answer>42</answer>")
    """

    def __init__(self, **options: Unpack[GymOptions]) -> None:
        self._options = options
        self._gym = AsyncReasoningGym(**options)
        self._loop: _Loop | None = None
        self._closed = False
        self._lock = threading.Lock()
        _gyms.add(self)

    def __enter__(self) -> ReasoningGym:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes. May be called again; no other call works after it."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.submit(self._gym.close()).result()
            loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do the work in the loop and wait for it; an interrupt cancels it."""
        with self._lock:
            if self._closed:
                work.close()
                raise PoolClosedError("this gym is closed; make another")
            self._loop = self._loop or _Loop()
            future = self._loop.submit(work)
        try:
            return future.result()
        except CancelledError as error:
            raise PoolClosedError("this gym was closed before it was done") from error
        except BaseException:
            future.cancel()
            raise

    def _begin_anew(self) -> None:
        """In a fork: neither the thread nor the workers are this process's."""
        _inherited.append((self._loop, self._gym))
        self._lock = threading.Lock()
        self._loop = None
        self._gym = AsyncReasoningGym(**self._options)

    @property
    def counts(self) -> Mapping[str, int]:
        """Items that could not be made, workers that were replaced, and the like."""
        return dict(self._gym.counts)

    def tasks(self) -> list[TaskSummary]:
        """List the tasks by name."""
        return self._run(self._gym.tasks())

    def problems(
        self,
        task: str,
        *,
        level: int | None = None,
        count: int = 1,
        seed: int = 0,
        parameters: Mapping[str, Any] | None = None,
        split: str = "train",
    ) -> list[Problem]:
        """Make `count` problems of a task: see `AsyncReasoningGym.problems`."""
        return self._run(
            self._gym.problems(
                task, level=level, count=count, seed=seed, parameters=parameters, split=split
            )
        )

    def problem(self, recipe: Recipe | Mapping[str, Any]) -> Problem:
        """Make the problem of a recipe: see `AsyncReasoningGym.problem`."""
        return self._run(self._gym.problem(recipe))

    def score(self, problem: Scorable, completion: str) -> Score:
        """Score one completion: see `AsyncReasoningGym.score_many`."""
        return self._run(self._gym.score(problem, completion))

    def score_many(self, pairs: Iterable[tuple[Scorable, str]]) -> list[Score]:
        """Score completions side by side: see `AsyncReasoningGym.score_many`."""
        return self._run(self._gym.score_many(list(pairs)))

    def stream(self, tasks: Sequence[str] = (), **options: Unpack[StreamOptions]) -> ProblemStream:
        """Begin a stream of training problems: see `AsyncReasoningGym.stream`."""
        return ProblemStream(self, self._run(self._gym.stream(tasks, **options)))


class ProblemStream:
    """Hands out training problems without end, which follow what it is told of their results.

    It belongs to the process that made it; another one continues it by its state.

    Example:
        stream = gym.stream(complexity_mode="curriculum", sampling="signal")
        problem = stream.next()
        stream.observe(problem, solved=3, attempts=8)
    """

    def __init__(self, gym: ReasoningGym, stream: AsyncProblemStream) -> None:
        self._gym = gym
        self._stream = stream
        self._process = os.getpid()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if os.getpid() != self._process:
            work.close()
            raise PoolClosedError(
                f"this stream belongs to process {self._process}; make another, and continue it "
                "with load_state_dict"
            )
        return self._gym._run(work)

    def __iter__(self) -> Iterator[Problem]:
        return self

    def __next__(self) -> Problem:
        return self.next()

    def next(self) -> Problem:
        """The next problem: see `AsyncProblemStream.next`."""
        return self._run(self._stream.next())

    def observe(self, problem: Problem | Recipe, *, solved: int, attempts: int) -> None:
        """Learn that `solved` of `attempts` scored completions of a problem were right."""

        async def observe() -> None:
            self._stream.observe(problem, solved=solved, attempts=attempts)

        self._run(observe())

    def levels(self) -> dict[str, Any]:
        """Where the curriculum has each task: see `TrainingProblems.curriculum_stats`."""

        async def levels() -> dict[str, Any]:
            return self._stream.levels()

        return self._run(levels())

    def state_dict(self, unfinished: Sequence[Problem] = ()) -> dict[str, Any]:
        """The state as JSON: see `AsyncProblemStream.state_dict`."""

        async def state_dict() -> dict[str, Any]:
            return self._stream.state_dict(unfinished)

        return self._run(state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream exactly: see `AsyncProblemStream.load_state_dict`."""

        async def load_state_dict() -> None:
            self._stream.load_state_dict(state)

        self._run(load_state_dict())


_gyms: weakref.WeakSet[ReasoningGym] = weakref.WeakSet()
_inherited: list[object] = []
"""What a fork has from its parent: kept, since collecting it would complain of pending tasks."""


def _close_all() -> None:
    for gym in list(_gyms):
        gym.close()


def _begin_anew() -> None:
    for gym in list(_gyms):
        gym._begin_anew()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_begin_anew)
