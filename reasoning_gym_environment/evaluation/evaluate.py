"""`evaluate` and `evaluate_async`: the evaluation of a function, as the command's of a model."""

from __future__ import annotations

import inspect
import uuid
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator, SkipValidation

from ..errors import ConfigurationError
from ..gym.arguments import (
    AS_LIST,
    Modules,
    Number,
    Processes,
    Seconds,
    checked,
    takes_parameters_of,
)
from ..gym.background import Background
from ..inference.prompts import resolve_system_prompt
from ..problems.options import Integer, TaskOptions
from ..problems.seeds import EVAL_SEED
from ..problems.selection import select
from ..problems.split import SplitProblems
from ..problems.suites import Suite, load_suite
from ..sandbox.pool import PoolSettings, TaskPool, default_processes
from ..scoring.extraction import AnswerFormat
from ..scoring.grading import ScoringSettings
from ..tasks.facts import LIBRARY
from ..tasks.modules import find_modules
from ..util.command_line import build
from ..util.values import shorten
from .evaluation_settings import EvaluationSettings
from .function_client import Complete, FunctionClient, is_coroutine_function, name_of
from .metrics import EvaluationReport
from .options import PYTHON, EvaluationOptions
from .run import Evaluation
from .store import FinishedEvaluation, read_results

ASYNC_CALLS = 16
"""Calls of an asynchronous function at once, as `max_eval_workers` of the command."""

NO_LIMIT = 2**31 - 1
"""Tokens that a function's reply may have: the function itself limits it."""


def _path(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError(f"must be a path, got {shorten(value)}")
    return Path(value)


Folder = Annotated[str | Path, PlainValidator(_path)]
Count = Annotated[Integer, Field(ge=1)]
Limit = Annotated[Integer | None, Field(ge=1)]
Texts = Annotated[Iterable[str], AS_LIST]


@checked
async def evaluate_async(  # noqa: PLR0913 - each option is one, as in `AsyncReasoningGym`
    complete: Annotated[Complete, SkipValidation],
    *,
    folder: Folder,
    model: str = "",
    tasks: Texts = (),
    exclude_tasks: Texts = (),
    suite: str | Path | None = None,
    limit: Limit = None,
    num_eval_samples_per_task: Count = 5,
    eval_attempts: Count = 1,
    eval_difficulties: Annotated[Iterable[Number], AS_LIST] = (),
    eval_seed: Integer = EVAL_SEED,
    eval_step: Annotated[Integer | None, Field(ge=0)] = None,
    system_prompt: str = "think",
    answer_format: AnswerFormat = "tags",
    solved_threshold: Annotated[Number | None, Field(gt=0, le=1)] = None,
    skip_faulty_items: bool = True,
    max_eval_workers: Limit = None,
    timeout: Seconds = 600.0,
    processes: Processes = None,
    generation_timeout: Seconds = 10.0,
    verify_timeout: Seconds = 5.0,
    require_containment: bool = False,
    task_modules: Modules = (),
    task_environment: Texts = (),
) -> FinishedEvaluation:
    """Ask a function the items of an evaluation, score its replies, and store the results.

    The items, the files and the numbers are those of the command `evaluate`. A call that raises,
    returns no text or takes too long is logged, and its item has no score. The evaluation ends if
    the function fails from the first item on. With the same folder it goes on where it ended.

    Args:
        complete: returns a reply's text for messages such as {"role": "user", "content": "…"}. An
            asynchronous function runs in this event loop, another one in threads.
        folder: of the results.
        model: its name in the results; the function's by default.
        tasks, exclude_tasks: tasks and categories to use, and not to; empty means all.
        suite: name or file of a suite, in place of the options that choose items.
        limit: the most items, spread over all.
        num_eval_samples_per_task: items of each task.
        eval_attempts: replies to each item: the k of pass@k.
        eval_difficulties: more difficulties, from 0 to 1; each adds as many items.
        eval_seed: of the items.
        eval_step: trainer's step of the evaluated checkpoint, which is stored.
        system_prompt: "think", "direct" or a text; empty asks the question alone.
        answer_format: where a reply has its answer; see docs/scoring.md.
        solved_threshold: score from which an answer is solved; None is each task's own.
        skip_faulty_items: whether to draw again where an item has a known fault.
        max_eval_workers: calls at once; by default 16 of an asynchronous function, and 1 of
            another, which may not be safe in several threads.
        timeout: seconds that a call may take.
        processes: as of `AsyncReasoningGym`, and so are the last five.

    Raises:
        ConfigurationError: an option is invalid, or the folder has results of other options.
        FixableError: nothing could be scored, or the function fails from the first item on.

    Example:
        results = await evaluate_async(complete, folder="evals/base", tasks=["gcd", "lcm"])
        print(results.table())
    """
    if not callable(complete):
        raise ConfigurationError(
            f"complete must be a function from messages to text, got {shorten(complete)}"
        )
    options = build(
        EvaluationOptions,
        {
            "num_eval_samples_per_task": num_eval_samples_per_task,
            "eval_attempts": eval_attempts,
            "eval_difficulties": list(eval_difficulties),
            "eval_seed": eval_seed,
            "eval_step": eval_step,
        },
    )
    loaded_suite = None
    if suite is not None:
        chosen = {
            "tasks": tasks,
            "exclude_tasks": exclude_tasks,
            "limit": limit,
            "num_eval_samples_per_task": num_eval_samples_per_task,
            "eval_attempts": eval_attempts,
            "eval_difficulties": eval_difficulties,
            "eval_seed": eval_seed,
            "system_prompt": system_prompt,
            "answer_format": answer_format,
            "solved_threshold": solved_threshold,
            "skip_faulty_items": skip_faulty_items,
        }
        _require_defaults(chosen)
        loaded_suite = load_suite(str(suite))
        options, tasks, system_prompt = _of_suite(loaded_suite, options)
    prompt = resolve_system_prompt(system_prompt, answer_format)
    settings = EvaluationSettings(
        options=options,
        conditions={"generation_timeout": generation_timeout, "system_prompt": prompt},
        skip_faulty_items=skip_faulty_items,
        scoring=ScoringSettings(
            max_token_length=NO_LIMIT,
            answer_format=answer_format,
            solved_threshold=solved_threshold,
            verify_timeout=verify_timeout,
        ),
        max_eval_workers=max_eval_workers
        or (ASYNC_CALLS if is_coroutine_function(complete) else 1),
        folder=Path(folder),
        model=model or name_of(complete),
        suite=loaded_suite,
        limit=limit,
        caller=PYTHON,
    )
    client = FunctionClient(
        complete,
        system_prompt=prompt,
        concurrency=settings.max_eval_workers,
        timeout=timeout,
    )
    pool_settings = PoolSettings(
        processes=processes or default_processes(),
        generation_timeout=generation_timeout,
        verify_timeout=verify_timeout,
        solved_threshold=solved_threshold,
        answer_format=answer_format,
        require_containment=require_containment,
        modules=find_modules(list(task_modules)),
        task_environment=list(task_environment),
    )
    selected = TaskOptions(exclude_tasks=list(exclude_tasks))
    report = await _run(settings, client, pool_settings, selected, list(tasks))
    stored = read_results(folder)
    return FinishedEvaluation(
        path=stored.path,
        samples=stored.samples,
        settings=stored.settings,
        missing_items=stored.missing_items,
        report=report,
    )


@takes_parameters_of(evaluate_async)
def evaluate(complete: Complete, **options: Any) -> FinishedEvaluation:
    """Evaluate a function: the blocking form of `evaluate_async`, which documents the options.

    It works in programs and in notebooks. An asynchronous function runs in an event loop of its
    own, so that one whose connections belong to another loop needs `await evaluate_async(…)`.

    Example:
        results = evaluate(complete, folder="evals/base", tasks=["gcd", "lcm"])
        print(results.table())
    """
    background = Background(object, _close_nothing, name="evaluation")
    try:
        return background.run(evaluate_async(complete, **options))
    finally:
        background.close()


async def _close_nothing(_: object) -> None:
    """Close what an evaluation leaves open."""


async def _run(
    settings: EvaluationSettings,
    client: FunctionClient,
    pool_settings: PoolSettings,
    options: TaskOptions,
    tasks: list[str],
) -> EvaluationReport:
    """Start the worker processes, plan the items and evaluate them."""
    counts = Counter[str]()
    async with TaskPool(pool_settings, counts) as pool:
        selection = await select(
            pool,
            options,
            tasks=tasks,
            with_ladders=bool(settings.options.eval_difficulties),
        )
        split = SplitProblems.of_pool(
            pool, counts, skip_faulty_items=settings.skip_faulty_items
        )
        make = split.make if settings.suite is None else split.make_as_it_is
        evaluation = Evaluation(settings, client, pool, counts)
        evaluation.prepare(make, selection.categories, selection.ladders)
        names = ("reasoning-gym-environment", LIBRARY)
        versions = {**pool.versions, **{name: version(name) for name in names}}
        identity = {"run": str(uuid.uuid4()), "library_versions": versions}
        await evaluation.run(step=None, length_limit=NO_LIMIT, identity=identity)
        return evaluation.report


def _require_defaults(options: dict[str, Any]) -> None:
    """Raise ConfigurationError for options that a suite fixes."""
    parameters = inspect.signature(evaluate_async).parameters
    given = []
    for name, value in options.items():
        default = parameters[name].default
        # Of several values, the default is none.
        if value != default and not (default == () and not value):
            given.append(name)
    if given:
        raise ConfigurationError(
            f"{', '.join(given)}: results on a suite need all its items and its prompt; leave it "
            "out, or evaluate without a suite"
        )


def _of_suite(
    suite: Suite, options: EvaluationOptions
) -> tuple[EvaluationOptions, list[str], str]:
    """Return a suite's options, tasks and system prompt."""
    fixed = suite.fixed_settings
    prompt = fixed.pop("system_prompt")
    return options.model_copy(update=fixed), suite.tasks, prompt
