"""`ReasoningGym`: the blocking client."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from typing_extensions import Unpack

from ..errors import PoolClosedError
from ..problems.options import StreamKeywords
from ..problems.split import Split
from ..records import Problem, Recipe, Score
from ..scoring.extraction import AnswerFormat
from .arguments import Scorable, shows_stream_options, takes_parameters_of
from .asynchronous import AsyncReasoningGym, TaskSummary
from .background import Background
from .streams import STREAM_IS_NOT_PICKLED, AsyncProblemStream, TaskLevel

Result = TypeVar("Result")


class ReasoningGym:
    """A client for reasoning-gym's problems and verifiers, which run in sandboxed processes.

    The blocking form of `AsyncReasoningGym`, which documents the options and when processes start
    and end. All threads may use it. A fork of this process starts new workers, and so does a
    pickled copy.

    Example:
        with ReasoningGym() as gym:
            [problem] = gym.problems("chain_sum", level=3)
            scored = gym.score(problem, "<think>…</think><answer>42</answer>")
    """

    @takes_parameters_of(AsyncReasoningGym.__init__)
    def __init__(self, **options: Any) -> None:
        self._options = options
        self._background = Background(
            partial(AsyncReasoningGym, **options), AsyncReasoningGym.close, name="gym"
        )
        self._run = self._background.run

    def __reduce__(self) -> tuple[Callable[[], ReasoningGym], tuple[()]]:
        return partial(ReasoningGym, **self._options), ()

    def __enter__(self) -> ReasoningGym:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all worker processes. Safe to call again; other calls then fail."""
        self._background.close()

    @property
    def _gym(self) -> AsyncReasoningGym:
        return self._background.client

    @property
    def counts(self) -> Mapping[str, int]:
        """Skipped items, restarted workers and similar events."""
        return dict(self._gym.counts)

    @property
    def answer_format(self) -> AnswerFormat:
        """Where a completion has its answer."""
        return self._gym.answer_format

    @property
    def missing_protections(self) -> list[str]:
        """What the sandbox does not enforce on this system; empty before the start as well."""
        return self._gym.missing_protections

    def modules(self) -> dict[str, str]:
        """Return the digest of each module: see `AsyncReasoningGym.modules`."""
        return self._run(self._gym.modules())

    def tasks(self) -> list[TaskSummary]:
        """List the tasks by name."""
        return self._run(self._gym.tasks())

    def problems(
        self,
        task: str,
        *,
        level: int | None = None,
        count: int = 1,
        seed: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        split: Split = "train",
    ) -> list[Problem]:
        """Make `count` problems of a task: see `AsyncReasoningGym.problems`."""
        return self._run(
            self._gym.problems(
                task,
                level=level,
                count=count,
                seed=seed,
                parameters=parameters,
                split=split,
            )
        )

    def problem(
        self, recipe: Recipe | Mapping[str, Any], *, split: Split | None = None
    ) -> Problem:
        """Make the problem of a recipe: see `AsyncReasoningGym.problem`."""
        return self._run(self._gym.problem(recipe, split=split))

    def score(self, problem: Scorable, completion: str) -> Score:
        """Score one completion: see `AsyncReasoningGym.score_many`."""
        return self._run(self._gym.score(problem, completion))

    def score_many(
        self,
        pairs: Iterable[tuple[Scorable, str]],
        *,
        group_size: int | None = None,
    ) -> list[Score]:
        """Score completions side by side: see `AsyncReasoningGym.score_many`."""
        return self._run(self._gym.score_many(pairs, group_size=group_size))

    @shows_stream_options
    def stream(
        self, tasks: Sequence[str] = (), **options: Unpack[StreamKeywords]
    ) -> ProblemStream:
        """Start a stream of training problems: see `AsyncReasoningGym.stream`."""
        return ProblemStream(self, self._run(self._gym.stream(tasks, **options)))


class ProblemStream:
    """The blocking form of `AsyncProblemStream`.

    It belongs to the process that created it; another process can continue it from its state.

    Example:
        stream = gym.stream(complexity_mode="curriculum", sampling="signal", group_size=8)
        problem = stream.next()
        scores = gym.score_many((problem, completion) for completion in completions)
    """

    def __init__(self, gym: ReasoningGym, stream: AsyncProblemStream) -> None:
        self._gym = gym
        self._stream = stream
        self._process = os.getpid()

    def __reduce__(self) -> NoReturn:
        raise TypeError(STREAM_IS_NOT_PICKLED)

    @property
    def answer_format(self) -> AnswerFormat:
        """Where completions of its gym have their answer."""
        return self._gym.answer_format

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if os.getpid() != self._process:
            work.close()
            raise PoolClosedError(
                f"this stream belongs to process {self._process}; create a new one and continue "
                "with load_state_dict"
            )
        return self._gym._run(work)

    def _call(
        self, method: Callable[..., Result], *arguments: Any, **named: Any
    ) -> Result:
        async def call() -> Result:
            return method(*arguments, **named)

        return self._run(call())

    def __iter__(self) -> Iterator[Problem]:
        return self

    def __next__(self) -> Problem:
        return self.next()

    def next(self) -> Problem:
        """Return the next problem: see `AsyncProblemStream.next`."""
        return self._run(self._stream.next())

    def observe(self, problem: Scorable, *, solved: int, attempts: int) -> None:
        """Record a result that was scored elsewhere: see `AsyncProblemStream.observe`."""
        self._call(
            self._stream.observe,
            problem,
            solved=solved,
            attempts=attempts,
        )

    def levels(self) -> dict[str, TaskLevel]:
        """Return where the curriculum has each task: see `AsyncProblemStream.levels`."""
        return self._call(self._stream.levels)

    def sampling(self) -> dict[str, float]:
        """Return what the choice of problems brought so far: see `AsyncProblemStream.sampling`."""
        return self._call(self._stream.sampling)

    def state_dict(self, unfinished: Sequence[Problem] = ()) -> dict[str, Any]:
        """Return the state as JSON: see `AsyncProblemStream.state_dict`."""
        return self._call(self._stream.state_dict, unfinished)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream exactly: see `AsyncProblemStream.load_state_dict`."""
        self._call(self._stream.load_state_dict, state)


for _class, _source in (
    (ReasoningGym, AsyncReasoningGym),
    (ProblemStream, AsyncProblemStream),
):
    for _name, _method in vars(_class).items():
        # `help` shows the docstring in full.
        if ": see `Async" in (getattr(_method, "__doc__", None) or ""):
            _method.__doc__ = getattr(_source, _name).__doc__
