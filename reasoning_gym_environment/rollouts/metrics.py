"""Run metrics: means, event counts, group accounting, and the progress lines in the log."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..records import UPSTREAM_THRESHOLD, Attempt, GroupResult, Signal, Status, recipe_key
from ..scoring.grading import signal
from ..storage.rows import StoredGroup
from ..tasks.facts import LIBRARY, known_categories
from ..util.outages import LOG_INTERVAL
from ..util.values import escape_control_characters, group_by, replace_surrogates

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)
line_logger = logging.getLogger(f"{__name__}.line")
"""Logs the progress line; a terminal shows its last message below all others."""


@dataclass(slots=True)
class Mean:
    """A running mean; its count tells a mean of 0 from no data."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    def merge(self, other: Mean) -> None:
        self.total += other.total
        self.count += other.count

    @property
    def value(self) -> float:
        """The mean; NaN without values."""
        return self.total / self.count if self.count else math.nan


class Means:
    """Means by name.

    Example:
        >>> means = Means()
        >>> means.add({"solved": 1.0}); means.add({"solved": 0.0})
        >>> means.values()
        {'solved': 0.5}
    """

    def __init__(self) -> None:
        self._means: defaultdict[str, Mean] = defaultdict(Mean)

    def add(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._means[name].add(value)

    def merge(self, other: Means) -> None:
        for name, mean in other._means.items():
            self._means[name].merge(mean)

    def since(self, earlier: Means) -> Means:
        """Return the means of the values added since an earlier state."""
        difference = Means()
        for name, mean in self._means.items():
            before = earlier[name]
            difference._means[name] = Mean(mean.total - before.total, mean.count - before.count)
        return difference

    def __getitem__(self, name: str) -> Mean:
        return self._means[name] if name in self._means else Mean()

    def values(self) -> dict[str, float]:
        return {name: mean.value for name, mean in sorted(self._means.items())}

    def counts(self) -> dict[str, int]:
        return {name: mean.count for name, mean in sorted(self._means.items())}


def attempt_values(attempt: Attempt) -> dict[str, float]:
    """Return the averaged numbers of one rollout; an unscored one has its status alone."""
    completion = attempt.completion
    verdict = attempt.verdict
    values = {f"status/{status.value}": float(verdict.status is status) for status in Status}
    if not completion.length:  # the server returned none
        return values
    values["truncated"] = float(completion.truncated)
    values["completion_tokens"] = float(completion.completion_tokens)
    if verdict.status is not Status.UNSCORED and verdict.score is not None:
        values["solved"] = float(verdict.status is Status.SOLVED)
        values["percent_correct"] = float(verdict.score >= UPSTREAM_THRESHOLD)
        values["score"] = verdict.score
        values["reward"] = attempt.reward.value
    return values


def group_values(group: GroupResult, categories: Mapping[str, str]) -> list[dict[str, float]]:
    """Return the averaged numbers of a group: one mapping for each rollout, one for its signal.

    Rollouts count overall, and their score and solved share by category and task as well. The
    signal counts overall, by category, task and level. With a user's own tasks, both count by
    source too: a module or the library.
    """
    recipe = group.problem.recipe
    scopes = [f"category/{categories[recipe.task]}/", f"task/{recipe.task}/"]
    if not categories.keys() <= known_categories().keys():
        scopes.append(f"source/{group.problem.source or LIBRARY}/")
    counted = []
    for attempt in group.attempts:
        values = attempt_values(attempt)
        shared = {name: values[name] for name in ("solved", "score") if name in values}
        counted.append(values | {f"{of}{name}": shared[name] for of in scopes for name in shared})
    kind = signal([attempt.verdict for attempt in group.attempts])
    if kind is None:
        return counted
    levels = [] if recipe.level is None else [f"task/{recipe.task}/level/{recipe.level}/"]
    of_signal = {
        f"{of}groups/{one.value}": float(one is kind)
        for of in ["", *scopes, *levels]
        for one in Signal
    }
    return [*counted, of_signal]


_WORK: ContextVar[Counter[str]] = ContextVar("work")
"""Counts of the item at work, in this task and those that it started: groups that the statistics
know, that were handed out, delivered and lost."""


class GroupOutcome(str, Enum):
    """What became of a collected group; the value is its name among the counts."""

    SENT = "sent"
    """Accepted by the API."""
    WRITTEN = "written"
    """Written to a file, in `process`."""
    REFUSED = "refused"
    """Refused as invalid, before or by the API."""
    FAILED = "send_failures"
    CANCELLED = "cancelled"
    UNSCORED = "unscored"
    """No rollout has a score."""
    DROPPED = "dropped"
    """Dropped by a subclass."""
    FILTERED = "filtered"
    """No trainer learns from equal scores."""
    TOO_LONG = "too_long"
    """The trainer has no room for one of its rows."""


class Statistics:
    """The metrics of a run: means, event counts, and the accounting of its groups.

    Groups are counted as `groups/<name>`, and each has exactly one outcome: started = collected +
    lost + interrupted + generating, and collected = all outcomes + in_flight. At the end of a run,
    generating and in_flight are 0.

    Attributes:
        categories: category by task; set before the first group finishes.
        interval: means since the last `take_report`.
        counts: events of the whole run.

    Example:
        >>> statistics = Statistics()
        >>> with statistics.generating(lost_on=ConnectionError), statistics.delivering():
        ...     statistics.record_collected()
        ...     statistics.record(GroupOutcome.SENT)
        >>> statistics.accounting().split(";")[0]
        '1 started = 1 collected + 0 lost + 0 interrupted'
        >>> statistics.unaccounted()
        {'groups/generating': 0, 'groups/in_flight': 0}
    """

    def __init__(self) -> None:
        self.categories: Mapping[str, str] = {}
        self.interval = Means()
        self.counts: Counter[str] = Counter()
        self._reported = Means()
        self._unreported = Means()

    @contextmanager
    def generating(self, *, lost_on: type[BaseException]) -> Iterator[None]:
        """Start a group; `lost_on` counts it as lost, any other exception as interrupted."""
        self.counts["groups/started"] += 1
        _WORK.get(Counter())["known"] += 1
        try:
            yield
        except lost_on:
            self.counts["groups/lost"] += 1
            _WORK.get(Counter())["lost"] += 1
            raise
        except BaseException:
            self.counts["groups/interrupted"] += 1
            raise

    def record_collected(self) -> None:
        self.counts["groups/collected"] += 1
        self._unreported.add({"groups": 1.0})

    def hand_out(self) -> None:
        """Note that a collected group leaves for delivery, perhaps through a subclass."""
        _WORK.get(Counter()).update(["known", "handed_out"])

    def begin_delivery(self) -> None:
        """Note that a group is delivered; beyond those handed out, a subclass has made it."""
        work = _WORK.get(None)
        if work is not None:
            if work["delivered"] == work["handed_out"]:
                self._collect_own()
            work["delivered"] += 1

    def _collect_own(self) -> None:
        self.counts["groups/started"] += 1
        self.record_collected()
        self.hand_out()

    @contextmanager
    def working(self, *, lost_on: type[BaseException]) -> Iterator[Counter[str]]:
        """Account for an item's groups, those that a subclass makes, changes or drops as well.

        An item without a group counts as a dropped one, or as `generating` counts what raises.
        """
        work = Counter[str]()
        outcome = GroupOutcome.CANCELLED
        token = _WORK.set(work)
        try:
            yield work
            outcome = GroupOutcome.DROPPED
            if not work["known"]:
                self._collect_own()
        except BaseException as error:
            if isinstance(error, Exception):
                outcome = GroupOutcome.FAILED
            if not work["known"]:
                with self.generating(lost_on=lost_on):
                    raise
            raise
        finally:
            _WORK.reset(token)
            for _ in range(work["handed_out"] - work["delivered"]):
                self.record(outcome)

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Record a collected group as cancelled or failed if the body raises."""
        try:
            yield
        except asyncio.CancelledError:
            self.record(GroupOutcome.CANCELLED)
            raise
        except BaseException:
            self.record(GroupOutcome.FAILED)
            raise

    def record(self, outcome: GroupOutcome) -> None:
        self.counts[f"groups/{outcome.value}"] += 1
        _WORK.get(Counter()).update(["known", outcome.value])

    def unaccounted(self) -> dict[str, int]:
        """Count the groups without an outcome by stage; empty before the first group."""
        if not self.counts["groups/started"]:
            return {}
        generated = sum(self.counts[f"groups/{n}"] for n in ("collected", "lost", "interrupted"))
        delivered = sum(self.counts[f"groups/{outcome.value}"] for outcome in GroupOutcome)
        return {
            "groups/generating": self.counts["groups/started"] - generated,
            "groups/in_flight": self.counts["groups/collected"] - delivered,
        }

    def accounting(self) -> str:
        """Format the counts of groups as two sums."""

        def counted(*names: str) -> str:
            return " + ".join(f"{self.counts[f'groups/{name}']} {name}" for name in names)

        started = counted("collected", "lost", "interrupted")
        collected = counted(*(outcome.value for outcome in GroupOutcome))
        return f"{counted('started')} = {started}; {counted('collected')} = {collected}"

    @property
    def total(self) -> Means:
        """The means over the whole run, and `groups` and `level`, which reports leave out."""
        total = Means()
        for means in (self._reported, self.interval, self._unreported):
            total.merge(means)
        return total

    def group_finished(self, group: GroupResult) -> None:
        """Count a scored group."""
        self.record_collected()
        for values in group_values(group, self.categories):
            self.interval.add(values)
        recipe = group.problem.recipe
        level = {} if recipe.level is None else {"level": float(recipe.level)}
        self._unreported.add(level)
        errors = sum(attempt.verdict.errors for attempt in group.attempts)
        if errors:
            self.counts[f"verifier_errors/{recipe.task}"] += errors
        broken = sum(replace_surrogates(a.completion.text)[1] > 0 for a in group.attempts)
        if broken:
            self.counts["rollouts/broken_text"] += broken

    def take_report(self) -> dict[str, float]:
        """Return wandb's `train/*` since the last call, and the run's `counts/*`."""
        taken = self.interval
        self.interval = Means()
        self._reported.merge(taken)
        report = {f"train/{name}": value for name, value in taken.values().items()}
        return report | {f"counts/{name}": float(n) for name, n in self.reported_counts().items()}

    def reported_counts(self) -> dict[str, int]:
        """Return the event counts and the groups in progress."""
        return dict(sorted({**self.counts, **self.unaccounted()}.items()))


def signal_line(means: Means, prefix: str = "") -> str:
    """Format the shares of groups with and without signal, for example of "category/games/"."""
    mixed, solved, unsolved = (means[f"{prefix}groups/{one.value}"] for one in Signal)
    if not mixed.count:
        return "0 groups"
    return (
        f"{mixed.count} groups: {mixed.value:.0%} with signal, {solved.value:.0%} all solved, "
        f"{unsolved.value:.0%} none solved"
    )


def signal_lines(means: Means, categories: Iterable[str]) -> list[str]:
    """Format a `signal_line` for all groups, and for each category that has any."""
    lines = [signal_line(means)]
    for category in sorted(set(categories)):
        prefix = f"category/{category}/"
        if means[f"{prefix}groups/{Signal.MIXED.value}"].count:
            lines.append(f"{category}: {signal_line(means, prefix)}")
    return lines


GROUPS = 50
"""Groups after which the warning is due."""
NEARLY_ALL = 0.95
_FAULTS = MappingProxyType(
    {
        "truncated": (
            "are truncated at max_token_length",
            "a larger max_token_length, on the server and the trainer too; a model that thinks "
            "less; for a model that thinks by itself, system_prompt: direct.",
        ),
        "filtered": (
            "are withheld by the server's content filter (finish_reason content_filter)",
            "a server or a setting of it without the filter; another system_prompt.",
        ),
        "empty": (
            "are empty",
            "look at a reply of the server itself: a parser of thoughts may return the text in a "
            "field of its own; another chat template; a larger max_token_length.",
        ),
        "unanswered": (
            "have no answer between <answer> and </answer>",
            "train it on demonstrations first (`export --format sft` makes them from rollouts of a "
            "model that answers); another system_prompt; another chat template, if this one opens "
            "a thought that the prompt asks for again (docs/inference.md); answer_tolerance, if "
            "the tags hold the answer in another form.",
        ),
    }
)
"""Why completions have no answer, the most specific first: what they are, and hints."""


class AnswerCheck:
    """Counts completions without an answer, to warn if nearly all are."""

    def __init__(self) -> None:
        self._total = 0
        self._faults: Counter[str] = Counter()
        self._examples: list[str] = []

    def add(self, completions: Iterable[tuple[str, str, Status]]) -> None:
        """Count one problem's completions (text, finish reason, status); keep an example."""
        example = None
        for text, finish_reason, status in completions:
            faults = {
                "truncated": finish_reason == "length",
                "filtered": finish_reason == "content_filter",
                "empty": not text.strip(),
                "unanswered": status is Status.NO_ANSWER,
            }
            self._total += 1
            self._faults.update(name for name, found in faults.items() if found)
            if faults["unanswered"] and example is None and len(self._examples) < 2:
                example = excerpt(text) or "(nothing)"
                self._examples.append(example)

    def finding(self, subject: str) -> str | None:
        """Return which fault nearly all completions of a subject have; None if none has."""
        shares = self._shares()
        fault = self._common_fault()
        if fault is None:
            return None
        others = [f"{s:.0%} {name}" for name, s in shares.items() if name != "unanswered"]
        more = f" ({', '.join(others)})" if fault == "unanswered" else ""
        return f"{shares[fault]:.0%} of the completions of {subject} {_FAULTS[fault][0]}{more}"

    def warning(self, subject: str, *, consequence: str) -> str | None:
        """Explain why a subject has no answers and what to do; None if there are some."""
        fault = self._common_fault()
        if fault is None:
            return None
        examples = "\n".join(f"  {example}" for example in self._examples)
        return (
            f"{self.finding(subject)}: {consequence}. The model wrote:\n{examples}\n"
            f"Ways out: {_FAULTS[fault][1]}"
        )

    def _common_fault(self) -> str | None:
        return next((name for name, share in self._shares().items() if share >= NEARLY_ALL), None)

    def _shares(self) -> dict[str, float]:
        return {name: self._faults[name] / max(1, self._total) for name in _FAULTS}


class DriftCheck:
    """Finds tasks whose completions change for the worse, and since which group.

    They become `truncated`, or `shorter` while the reward rises, or the answer to one problem
    `repeats` as the answer to another. A category is named where all of its tasks change, and the
    whole run where all tasks do.

    Args:
        keep: the last groups of each task that are compared.
    """

    def __init__(self, *, keep: int = 2**40) -> None:
        self._keep = keep
        self._added = 0
        self._flags: list[dict[str, Any]] | None = None  # unknown since a group was added
        self._categories: dict[str, str] = {}
        self._rows: dict[str, array[float]] = {}  # six numbers a group, see `_changes`
        self._past: dict[str, deque[tuple[str, Counter[int], int]]] = {}

    def add(self, group: StoredGroup, category: str) -> None:
        """Take in a group of a task of that category."""
        self._added = self._added + 1
        self._flags = None
        given = [rollout for rollout in group.rollouts if rollout.tokens]
        if not given:
            return
        self._categories[group.task] = category
        rows = self._rows.setdefault(group.task, array("d"))
        past = self._past.setdefault(group.task, deque(maxlen=4))
        right = group.oracle or recipe_key(group.recipe)
        answers = Counter(hash(rollout.answer) for rollout in given if rollout.answer)
        pairs = [  # of an answer and one to a problem with another right answer: equal, all
            (sum(n * theirs[answer] for answer, n in answers.items()), len(given) * size)
            for their_right, theirs, size in past
            if their_right != right
        ]
        repeats = fmean(same / of for same, of in pairs) if pairs else rows[-2] if rows else 0.0
        past.append((right, answers, len(given)))
        if len(past) > 1:
            truncated = fmean(rollout.truncated for rollout in given)
            shortness = -fmean(math.log(max(1, rollout.completion_tokens)) for rollout in given)
            means = (truncated, shortness, repeats, fmean(rollout.score for rollout in given))
            rows.extend((group.number or self._added, group.recipe.level or 0.0, *means))
            del rows[: -6 * self._keep]

    def flags(self) -> list[dict[str, Any]]:
        """Return each change: its task or category (None for all), kind, first group and text."""
        self._flags = list(self._find()) if self._flags is None else self._flags
        return self._flags

    def _find(self) -> Iterator[dict[str, Any]]:
        import numpy as np  # slow, not for help

        own = {task: np.array(rows).reshape(-1, 6) for task, rows in self._rows.items() if rows}
        scopes: list[tuple[str | None, str | None, list[str]]] = [(None, None, [*own])]
        by_category = group_by(self._categories.__getitem__, own)
        scopes += [(None, category, tasks) for category, tasks in by_category.items()]
        scopes = [scope for scope in scopes if len(scope[2]) > 1]
        scopes += [(name, None, [name]) for name in own]
        found: set[tuple[str, str]] = set()  # kind and task
        for task, category, tasks in scopes:
            for kind, since, text in _changes([own[each] for each in tasks]):
                if found.isdisjoint((kind, each) for each in tasks):  # no wider scope has changed
                    found.update((kind, each) for each in tasks)
                    about = {
                        "task": task,
                        "category": category,
                        "kind": kind,
                        "since": since,
                    }
                    yield {**about, "text": f"{task or category or 'all tasks'}: {text}"}


def _changes(tasks: Sequence[NDArray[Any]]) -> Iterator[tuple[str, int, str]]:
    """Yield kind, first group and description of each change that all of some tasks show.

    A task's row is a group's number, level, share of truncated completions, minus the mean
    logarithm of tokens, how often answers to two problems with different right answers are the
    same, and mean reward.
    """
    import numpy as np  # slow, not for help

    order = np.concatenate([rows[:, 0] for rows in tasks]).argsort(kind="stable")
    raw = np.concatenate(tasks)[order]
    rows = np.concatenate([rows - rows.mean(axis=0) for rows in tasks])[order]  # the mix may change
    at = np.arange(3, len(rows) - 2)  # the first group after a possible change
    low = np.maximum(0, at - 24)
    high = np.minimum(len(rows), at + 24)
    left = (at - low)[:, None]
    right = (high - at)[:, None]
    sums, squares = (np.vstack([rows[:1] * 0, each.cumsum(axis=0)]) for each in (rows, rows**2))
    before = (sums[at] - sums[low]) / left
    after = (sums[high] - sums[at]) / right
    recent = np.maximum(at, len(rows) - 24)
    lasting = (sums[-1] - sums[recent]) / (len(rows) - recent)[:, None] - before
    spread = squares[high] - squares[low] - left * before**2 - right * after**2
    spread = np.sqrt(np.maximum(spread, 0.0) / (left + right - 2))
    spread = np.maximum(spread, [1.0, 0.5, 0.15, 0.3, 0.15, 0.15])  # a few groups may be equal
    rise = after - before
    weight = np.sqrt(left * right / (left + right))
    sigmas = rise * weight / spread
    level = rise[:, 1]
    rewarded = (rise[:, 5] > 0.1) & (sigmas[:, 5] > 3)
    for kind, of, least, beyond, groups, possible in (
        ("truncated", 2, 0.3, 7, 5, level < 0.5),  # a higher level explains it
        ("shorter", 3, math.log(2), 6, 3, rewarded & (level > -0.5)),
        ("repeats", 4, 0.4, 10, 6, abs(level) < 0.5),
    ):
        fits = possible & (rise[:, of] >= least) & (sigmas[:, of] >= beyond)
        fits &= (lasting[:, of] >= rise[:, of] / 2) & (np.minimum(left, right)[:, 0] >= groups)
        if not fits.any():
            continue
        place = np.argmax(fits * rise[:, of] * weight[:, 0])
        since = int(raw[at[place], 0])
        halves = [(own[own[:, 0] < since, of], own[own[:, 0] >= since, of]) for own in tasks]
        rises = [b.mean() - a.mean() >= least / 2 for a, b in halves if len(a) and len(b)]
        if 2 * len(rises) > len(tasks) and sum(rises) >= NEARLY_ALL * len(rises):
            old = raw[low[place] : at[place]]
            new = raw[at[place] : high[place]]
            text = _describe(kind, old.mean(axis=0).tolist(), new.mean(axis=0).tolist())
            yield kind, since, f"{text[0]} since group {since}, {text[1]}"


def _describe(kind: str, old: Sequence[float], new: Sequence[float]) -> tuple[str, str]:
    """Return what is so since a change, and what was before, from mean rows."""
    if kind == "truncated":
        return f"{new[2]:.0%} of completions are truncated", f"{old[2]:.0%} before"
    if kind == "repeats":
        return f"{new[4]:.0%} of answers repeat another problem's", f"{old[4]:.0%} before"
    reward = f"while the mean reward rises from {old[5]:.2f} to {new[5]:.2f}"
    tokens = [math.exp(-each[3]) for each in (new, old)]
    return f"completions have {tokens[0]:.0f} tokens", f"{tokens[1]:.0f} before, {reward}"


def excerpt(text: str) -> str:
    """Return the beginning and the end of a text on one line that is safe to print.

    Example:
        >>> excerpt("The answer\\nis 4.")
        'The answer is 4.'
    """
    line = escape_control_characters(" ".join(text.split()))
    return line if len(line) <= 160 else f"{line[:79]} … {line[-78:]}"


class ProgressReporter:
    """Reports on the groups of a run in the log, each after the statistics have counted it."""

    def __init__(
        self,
        statistics: Statistics,
        clock: Callable[[], float] = time.monotonic,
        *,
        waiting: Callable[[], Iterable[str]] = list,
    ) -> None:
        self._statistics = statistics
        self._clock = clock
        self._waiting = waiting
        self._answers = AnswerCheck()
        self._drift = DriftCheck(keep=96)
        self._warned = set[str]()
        self._last = statistics.total
        self._last_time = clock()
        self._delivered = 0
        self._delivered_at = clock()
        self._before = Counter[str]()  # events up to the last delivery

    def group_finished(self, group: GroupResult) -> None:
        """Warn after 50 groups if nothing can be learned, later once of each change."""
        groups = self._statistics.counts["groups/collected"]
        self._warn_of_changes(group, groups)
        if groups > GROUPS:
            return
        self._answers.add(
            (a.completion.text, a.completion.finish_reason, a.verdict.status)
            for a in group.attempts
        )
        if groups < GROUPS:
            return
        subject = f"the first {GROUPS} groups"
        text = self._answers.warning(subject, consequence="nothing can be learned from them")
        solved = self._statistics.total[f"groups/{Signal.ALL_SOLVED.value}"].value
        if not text and solved >= NEARLY_ALL:
            text = (
                f"{solved:.0%} of {subject} are all solved: little can be learned from them, and a "
                "group with equal rewards is not sent (ensure_scores_are_not_same). Ways out: "
                "complexity_mode: curriculum, which raises the level of solved tasks (set already, "
                "it needs some groups of each); a higher difficulty with complexity_mode: fixed; "
                "harder tasks."
            )
        if text:
            logger.warning("%s", text)

    def _warn_of_changes(self, group: GroupResult, number: int) -> None:
        row = StoredGroup.from_result(group, [], {"number": number})
        self._drift.add(row, self._statistics.categories.get(row.task, ""))
        every = max(GROUPS, 2 * len(self._statistics.categories))  # it takes 0.2 ms a task
        for flag in self._drift.flags() if number % every == 0 else ():
            what = f"{flag['kind']} {flag['task']} {flag['category']}"
            if what not in self._warned:
                self._warned.add(what)
                logger.warning("Look at the rollouts: %s", flag["text"])

    def line(self) -> str:
        """Describe the groups since the last line; empty before the first group or wait."""
        now = self._clock()
        total = self._statistics.total
        seconds = max(now - self._last_time, 1e-9)
        since = total.since(self._last)
        self._last = total
        self._last_time = now
        status = {status: since[f"status/{status.value}"] for status in Status}
        rollouts = status[Status.SOLVED].count
        scored = rollouts - status[Status.UNSCORED].total
        mixed = since["groups/mixed"]
        shares = (
            ("solved", status[Status.SOLVED].total, scored),
            ("with signal", mixed.total, mixed.count),
            ("truncated", since["truncated"].total, rollouts),
            ("no answer", status[Status.NO_ANSWER].total, scored),
        )
        parts = [f"{total['groups'].count} groups, {since['groups'].count / seconds:.1f}/s"]
        parts += [f"{share / count:.0%} {name}" for name, share, count in shares if count]
        if since["level"].count:
            parts.append(f"mean level {since['level'].value:.1f}")
        reason = self.reason()
        return ", ".join(filter(None, [*parts, reason])) if total["groups"].count or reason else ""

    def reason(self) -> str:
        """Say what the run waits for, and how groups ended if none was delivered for a minute."""
        counts = Counter(self._statistics.reported_counts())
        delivered = counts["groups/sent"] + counts["groups/written"]
        now = self._clock()
        if delivered != self._delivered or not counts["groups/started"]:
            self._delivered = delivered
            self._delivered_at = now
            self._before = self._statistics.counts.copy()  # has no groups in progress
        reasons = [*filter(None, self._waiting())]
        seconds = now - self._delivered_at
        if seconds >= LOG_INTERVAL:
            new = counts - self._before
            ends = [*(outcome.value for outcome in GroupOutcome), *("lost", "interrupted")]
            ends += ["generating", "in_flight"]
            groups = ", ".join(f"{new[f'groups/{e}']} {e}" for e in ends if new[f"groups/{e}"])
            groups = groups.replace("filtered", "filtered (equal scores)").replace("_", " ")
            if groups or not reasons:
                groups = groups or "none in progress"
                reasons.append(f"no group delivered for {seconds:.0f} s: {groups}")
        return "; ".join(reasons)

    @asynccontextmanager
    async def logging_every(self, seconds: float) -> AsyncIterator[None]:
        """Log a line at this interval during the body, starting with the first group or wait."""

        async def log_forever() -> None:
            while True:
                await asyncio.sleep(seconds)
                line = self.line()
                if line:
                    line_logger.info("%s", line)

        task = asyncio.ensure_future(log_forever())
        try:
            yield
        finally:
            task.cancel()
