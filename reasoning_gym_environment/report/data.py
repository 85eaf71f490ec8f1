"""What a report shows: stored groups, read from files, in a columnar index.

The page computes every figure from the index's columns, and loads the texts of a group when it
shows it. The index grows by group, and hands out what came since, so that a page can follow a run.
How a run goes is told from its last groups and its record, in the words of its log.
"""

from __future__ import annotations

import heapq
import json
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from ..errors import ConfigurationError, FixableError, did_you_mean
from ..evaluation.store import METRICS, PARTIAL_SAMPLES, RUN, SAMPLES, settings_in
from ..records import FORMAT_FAILURES, Signal, Status
from ..rollouts.answer_check import GROUPS, NEARLY_ALL, AnswerCheck
from ..rollouts.changes import DriftCheck
from ..storage.dumps import (
    FAILED,
    PARTIAL,
    RECORD_SECONDS,
    RunRecord,
    counted,
    read_groups,
    read_run,
    stored_files,
)
from ..storage.rows import StoredGroup, StoredRollout
from ..tasks.facts import Floors, floors, known_categories, ladder_heights, level_chance

TRAINING = "training"
EVALUATION = "evaluation"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The summary of one file.

    Attributes:
        kind: what it holds, in words.
        torn: number of lines that could not be read.
    """

    name: str
    kind: str
    groups: int = 0
    rollouts: int = 0
    torn: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportData:
    """All data of a report.

    Attributes:
        groups: oldest first if every row has its time, else in the order of the files.
        ordered: whether training groups are in the order of training. Successful and failed
            groups have separate files, so without times their order is unknown.
        recorded: the metrics of each metrics.json, by its path.
    """

    groups: tuple[StoredGroup, ...]
    ordered: bool
    sources: tuple[Source, ...]
    recorded: Mapping[str, Mapping[str, float]]


def read_report_data(paths: Sequence[Path]) -> ReportData:
    """Read dumps, evaluation samples, metrics.json files and folders with any of them, each once.

    Raises:
        FixableError: a file can't be read, has other content, or is given with its rescored form;
            or no file holds rollouts.
    """
    groups: list[StoredGroup] = []
    sources: list[Source] = []
    recorded = {}
    for path in map(Path.resolve, stored_files(paths, also=METRICS)):
        if path.suffix == ".json":
            recorded[str(path)] = read_metrics(path)
            sources.append(Source(name=str(path), kind="evaluation metrics"))
            continue
        own, torn = read_groups(path)
        groups += own
        sources.append(summarize(path, own, torn))
    if not groups:
        raise FixableError(f"no rollouts in {', '.join(map(str, paths))}: name a dump file")
    timed = all(group.time for group in groups)
    if timed:
        groups.sort(key=lambda group: group.time)
    kinds = {source.kind for source in sources if source.groups}
    return ReportData(
        groups=tuple(groups),
        ordered=timed or not kinds >= {"successful groups", "failed groups"},
        sources=tuple(sources),
        recorded=recorded,
    )


def split_of(group: StoredGroup) -> str:
    """Return "training" or "evaluation", by the recipe's seed."""
    return EVALUATION if group.recipe.is_evaluation else TRAINING


def read_metrics(path: Path) -> dict[str, float]:
    """Read the numbers of an evaluation's metrics.json; FixableError for anything else."""
    try:
        metrics = msgspec.convert(json.loads(path.read_bytes())["results"]["all"], dict[str, Any])
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise FixableError(f"{path} is not an evaluation's metrics.json: {error}") from error
    return {n: float(value) for n, value in metrics.items() if isinstance(value, int | float)}


def summarize(path: Path, groups: Sequence[StoredGroup], torn: int) -> Source:
    """Return what a file holds."""
    names = {FAILED.name: "failed groups", PARTIAL.name: "partly successful groups"}
    named = (kind for name, kind in names.items() if name in path.name)
    kinds = {TRAINING: next(named, "successful groups"), EVALUATION: "evaluation samples"}
    splits = {split_of(group) for group in groups}
    return Source(
        name=str(path),
        kind=" and ".join(kind for split, kind in kinds.items() if split in splits) or "empty",
        groups=len(groups),
        rollouts=sum(len(group.rollouts) for group in groups),
        torn=torn,
    )


RATE_SECONDS = 60
_STATUSES = list(Status)
_LABELS = {
    "model_name": "model",
    "server_type": "server",
    "step": "step",
    "temperature": "temperature",
    "eval_temperature": "temperature",
    "top_p": "top p",
    "max_token_length": "token limit",
    "length_limit": "token limit",
    "group_size": "group size",
    "eval_attempts": "attempts",
    "seed": "seed",
    "eval_seed": "seed",
    "score_mode": "score mode",
    "complexity_mode": "difficulty",
    "sampling": "sampling",
}
"""Labels of the settings that the page shows, in their order."""


@dataclass(kw_only=True, slots=True)
class RunEntry:
    """A training run, or an evaluation at one or more difficulties; never pooled.

    Attributes:
        key: the run's name in its rows, or the evaluation's folder.
        folder: where its record, or its `run.json`, is; None for rows that no file holds.
        rules: what counts as solved.
        step: the trainer's last one, or the evaluation's; None if its rows have none.
        last_number: the largest number of a training group.
        numbered: whether all groups have a number.
        record: of a training run that writes one.
    """

    key: str
    kind: str
    name: str
    folder: Path | None
    system_prompt: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    rules: set[str] = field(default_factory=set)
    step: int | None = None
    groups: int = 0
    last_number: int = 0
    numbered: bool = True
    record: RunRecord | None = None

    def add(self, group: StoredGroup) -> None:
        """Take in what a group says of its run."""
        self.groups += 1
        if group.step is not None:
            self.step = max(self.step or 0, group.step)
        self.last_number = max(self.last_number, group.number)
        self.numbered = self.numbered and group.number > 0
        self.versions |= {name: str(version) for name, version in group.library_versions.items()}
        threshold = group.solved_threshold
        self.rules.add("right answers" if threshold is None else f"scores of {threshold} and more")
        for message in group.prompt:
            if message["role"] == "system":
                self.system_prompt = self.system_prompt or message["content"]

    def to_json(self) -> dict[str, Any]:
        """Return what the page's header shows, with what the run's files say now."""
        about = self._training() if self.kind == TRAINING else self._evaluation()
        settings: Mapping[str, Any] = about.pop("settings")
        if "length_limit" in settings:  # the stricter of two token limits stands for both
            settings = {**settings, "max_token_length": None}
        shown = [name for name in _LABELS if settings.get(name) is not None]
        header = [[_LABELS[name], str(settings[name])] for name in shown]
        tasks = settings.get("tasks")
        if isinstance(tasks, list):
            header.append(["tasks", f"{len(tasks)}"])
        header += [[name, version] for name, version in self.versions.items()]
        rules = " or ".join(sorted(self.rules))
        return {
            "id": self.key,
            "kind": self.kind,
            "name": self.name,
            "folder": str(self.folder or ""),
            "header": [*header, ["counts as solved", rules], *about.pop("more")],
            "rules": rules,
            "system_prompt": self.system_prompt,
            "step": self.step,
            **about,
        }

    def _training(self) -> dict[str, Any]:
        record = self.record or RunRecord(run=self.key, started="", updated="")
        if not self.numbered:
            groups = f"{self.groups:,}, perhaps a selection: these rows are not numbered"
        elif self.groups >= self.last_number:
            groups = f"all {self.groups:,}"
        else:
            groups = f"a selection: {self.groups:,} of {self.last_number:,}"
        if record.deleted:
            groups += f"; oldest dump files deleted: {record.deleted} (max_dump_gb)"
        about = {n: getattr(record, n) for n in ("started", "updated", "ended", "settings")}
        warnings = [structs.asdict(warning) for warning in record.warnings]
        return {**about, "warnings": warnings, "more": [["groups", groups]]}

    def _evaluation(self) -> dict[str, Any]:
        more: list[list[str]] = []
        settings: Mapping[str, Any] = {}
        try:
            settings = (settings_in(self.folder) if self.folder else None) or {}
        except FixableError:
            more = [["settings", f"{RUN} can't be read"]]
        ended = ""  # until its results are written
        with suppress(OSError):
            written = ((self.folder or Path()) / METRICS).stat().st_mtime
            ended = datetime.fromtimestamp(written, timezone.utc).isoformat(timespec="seconds")
        about: dict[str, Any] = {
            "started": "",
            "updated": "",
            "ended": ended,
            "warnings": [],
        }
        if self.step is None and isinstance(step := settings.get("step"), int):
            about["step"] = step  # rows had none
        return {**about, "settings": settings, "more": more}


class GroupIndex:
    """Columns of the groups added so far; each task, run and problem has a number from 0."""

    def __init__(self) -> None:
        self.runs: dict[str, RunEntry] = {}
        self._run_numbers: dict[str, int] = {}
        self._tasks: dict[str, dict[str, Any]] = {}
        self._task_numbers: dict[str, int] = {}
        self._problems: dict[bytes, int] = {}
        self._copies: Counter[str] = Counter()  # groups by identifier
        self._firsts = [0]
        self._groups: dict[str, list[Any]] = {"id": [], "at": []}
        self._groups |= {name: [] for name in _GROUP_COLUMNS}
        self._groups |= {name: [] for name in ("run", "task", "problem")}
        self._rollouts: dict[str, list[Any]] = {name: [] for name in _ROLLOUT_COLUMNS}

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._firsts) - 1

    def add(self, group: StoredGroup, at: Any = None, *, identifier: str = "") -> str:
        """Append a group, and return its identifier: short, and the same in every index.

        Args:
            at: where its texts are, as the page's source understands it.
        """
        identifier = identifier or group_id(group)
        self._copies[identifier] += 1
        copy = self._copies[identifier]
        if copy > 1:  # the same row twice, or an accident
            identifier = f"{identifier}-{copy}"
        columns = self._groups
        columns["id"].append(identifier)
        columns["at"].append(at)
        columns["run"].append(self._run(group))
        columns["task"].append(self._task(group))
        problem = blake2b(group.item_key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        columns["problem"].append(self._problems.setdefault(problem, len(self._problems)))
        for name, value in _GROUP_COLUMNS.items():
            columns[name].append(value(group))
        for rollout in group.rollouts:
            for name, of in _ROLLOUT_COLUMNS.items():
                self._rollouts[name].append(of(rollout))
        self._firsts.append(self._firsts[-1] + len(group.rollouts))
        return identifier

    def identifier(self, number: int) -> str:
        """Return the identifier of the group with that number."""
        return str(self._groups["id"][number])

    def batch(self, since: int = 0) -> dict[str, Any]:
        """Return the columns from a number of groups on, and everything of runs and tasks."""
        first = self._firsts[since]
        return {
            "version": 1,  # of the index's layout; the page refuses another one
            "cursor": str(len(self)),
            "restart": since == 0,
            "runs": [run.to_json() for run in self.runs.values()],
            "tasks": list(self._tasks.values()),
            "statuses": [status.value for status in _STATUSES],
            "groups": {name: values[since:] for name, values in self._groups.items()},
            "rollouts": {name: values[first:] for name, values in self._rollouts.items()},
        }

    def _run(self, group: StoredGroup) -> int:
        key, name = run_of(group)
        if key not in self.runs:
            self._add_run(key, name, split_of(group), group.file.parent if group.file else None)
        self.runs[key].add(group)
        return self._run_numbers[key]

    def _add_run(
        self,
        key: str,
        name: str,
        kind: str,
        folder: Path | None,
    ) -> None:
        record = read_run(folder, key) if folder and kind == TRAINING else None
        self.runs[key] = RunEntry(
            key=key,
            kind=kind,
            name=name,
            folder=folder,
            record=record,
        )
        self._run_numbers[key] = len(self._run_numbers)

    def set_record(self, record: RunRecord, folder: Path) -> None:
        """Replace the record of a run, which may have no groups yet."""
        if record.run not in self.runs:
            self._add_run(record.run, _training_name(record.run), TRAINING, folder)
        self.runs[record.run].record = record

    def _task(self, group: StoredGroup) -> int:
        name = group.task
        if name not in self._tasks:
            own: Floors | None = floors().get(name)
            self._task_numbers[name] = len(self._tasks)
            self._tasks[name] = {
                "name": name,
                "category": category_of(group),
                "no_reasoning": own.no_reasoning.solved if own else None,
                "levels": ladder_heights().get(name, 0),
            }
        return self._task_numbers[name]


def category_of(group: StoredGroup) -> str:
    """Return the category of a group's task, or the module of a user's own."""
    return known_categories().get(group.task, group.source or "other")


FIELDS: Mapping[str, Callable[[StoredGroup, StoredRollout], str | float | None]] = {
    "kind": lambda group, _: split_of(group),
    "run": lambda group, _: group.run,
    "task": lambda group, _: group.task,
    "category": lambda group, _: category_of(group),
    "problems": lambda group, _: "again" if group.asked_again else "fresh",
    "status": lambda _, rollout: rollout.status.value,
    "level": lambda group, _: group.recipe.level,
    "difficulty": lambda group, _: group.difficulty,
    "step": lambda group, _: group.step,
    "group": lambda group, _: group.number,
    "reward": lambda _, rollout: round(rollout.score, 4),
    "tokens": lambda _, rollout: rollout.length,
}
"""What a condition can be about: names, then numbers. The report's page has the same fields."""


def filter_rollouts(
    groups: Sequence[StoredGroup], where: str
) -> Iterator[tuple[StoredGroup, list[int]]]:
    """Yield each group with the places of its rollouts that meet all conditions, unless none does.

    Several values of a field, separated by commas or in several conditions, are alternatives.

    Raises:
        ConfigurationError: a field or a value is unknown.
    """
    tests: defaultdict[str, list[Callable[[Any], bool]]] = defaultdict(list)
    words = []
    for term in re.findall(r'(?:"[^"]*"|[^\s"])+|"', where):
        field, colon, values = term.partition(":")
        if not colon or not re.fullmatch("[a-z]+", field):
            words.append(term.strip('"'))
        elif field not in FIELDS:
            hint = did_you_mean(field, FIELDS, otherwise=f"fields are {', '.join(FIELDS)}")
            quoted = f"or quote {term!r} to search for it"
            raise ConfigurationError(f"--where: unknown field {field!r}; {hint}, {quoted}")
        else:
            given = re.findall(r'"[^"]*"|[^,"]+', values) or [""]
            tests[field] += [_test(field, value.strip('"'), groups) for value in given]
    text = " ".join(words).lower()
    for group in groups:
        asked = any(text in m["content"].lower() for m in group.prompt if m["role"] != "system")
        places = [
            place
            for place, rollout in enumerate(group.rollouts)
            if asked or text in rollout.text.lower()
            if all(any(t(FIELDS[f](group, rollout)) for t in own) for f, own in tests.items())
        ]
        if places:
            yield group, places


def _test(field: str, value: str, groups: Sequence[StoredGroup]) -> Callable[[Any], bool]:
    """Return the test of a field's value that a condition stands for."""
    fixed: Mapping[str, Iterable[str]] = {
        "task": known_categories(),
        "category": known_categories().values(),
        "problems": ("fresh", "again"),
        "status": [status.value for status in Status],
        "kind": (TRAINING, EVALUATION),
        "run": (),
    }
    if field in fixed:
        there = {str(FIELDS[field](group, r)) for group in groups for r in group.rollouts}
        known = {*fixed[field], *there}
        if value not in known:
            listed = f"the files have {', '.join(sorted(there)) or 'none'}"
            hint = did_you_mean(value, sorted(known), otherwise=listed)
            raise ConfigurationError(f"--where: unknown {field} {value!r}; {hint}")
        return lambda own: bool(own == value)
    if value == "none":
        return lambda own: own is None
    figure = r"(-?\d+(?:\.\d+)?)"
    found = re.fullmatch(rf"{figure}\.\.{figure}", value)
    if found:
        low, high = map(float, found.groups())
        return lambda own: own is not None and low <= own <= high
    found = re.fullmatch(rf"(<=|>=|<|>|){figure}", value)
    if not found:
        raise ConfigurationError(
            f"--where: {field} must be a number, a comparison such as >=2, a range such as 2..5, "
            f"or none, got {value!r}"
        )
    names = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "": "eq"}
    compare = getattr(operator, names[found[1]])
    bound = float(found[2])
    return lambda own: own is not None and bool(compare(own, bound))


def group_id(group: StoredGroup) -> str:
    """Return an identifier that is the same in every file of the group's run."""
    run, _ = run_of(group)
    said = f"{run}\0{group.item_key}\0{group.time}\0{group.number}"
    return blake2b(said.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()


def run_of(group: StoredGroup) -> tuple[str, str]:
    """Return the key and the name of the run, or of the evaluation."""
    if split_of(group) == TRAINING:
        return group.run, _training_name(group.run)
    path = str(group.file or "")
    folder = next(
        (path[: -len(end) - 1] for end in (SAMPLES, PARTIAL_SAMPLES) if path.endswith(end)), path
    )
    return folder or EVALUATION, "/".join(PurePath(folder).parts[-2:]) or EVALUATION


def _training_name(run: str) -> str:
    return f"run {run[:8]}" if run else "training"


def difficulty_of(group: StoredGroup) -> float | None:
    """Return the group's position on its task's ladder, from 0 to 1; None without a level.

    Ladders have different lengths, so levels of different tasks are not comparable.
    """
    height = ladder_heights().get(group.task, 0)
    if group.difficulty is not None or group.recipe.level is None or height < 2:
        return group.difficulty
    return min(1.0, group.recipe.level / (height - 1))


def _signal(group: StoredGroup) -> int | None:
    """Return whether the group has signal; None with fewer than two scored rollouts."""
    return int(group.signal is Signal.MIXED) if len(group.scored) > 1 else None


def _chance(group: StoredGroup) -> float | None:
    """Return what a constant answer solves, by the library's default or by level."""
    if not group.recipe.is_default:
        return level_chance(group.recipe, group.solved_threshold)
    own = floors(group.solved_threshold).get(group.task)
    return own.chance.solved if own else group.chance


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


def _brief(text: str | None) -> str | None:
    return text if text is None or len(text) <= 80 else f"{text[:79]}…"


_GROUP_COLUMNS: Mapping[str, Callable[[StoredGroup], Any]] = {
    "time": lambda group: _rounded(seconds_of(group.time), 1),
    "number": lambda group: group.number,
    "step": lambda group: group.step,
    "level": lambda group: group.recipe.level,
    "difficulty": lambda group: _rounded(difficulty_of(group)),
    "signal": _signal,
    "asked_again": lambda group: int(group.asked_again),
    "chance": _chance,
    "size": lambda group: len(group.rollouts),
    "oracle": lambda group: _brief(group.oracle),
}
_ROLLOUT_COLUMNS: Mapping[str, Callable[[StoredRollout], Any]] = {
    "status": lambda rollout: _STATUSES.index(rollout.status),
    "reward": lambda rollout: _rounded(rollout.score),
    "score": lambda rollout: _rounded(rollout.raw_score),
    "solved": lambda rollout: int(rollout.solved),
    "tokens": lambda rollout: rollout.length,
    "truncated": lambda rollout: int(rollout.truncated),
    "answer": lambda rollout: _brief(rollout.answer),
    "format_failure": lambda rollout: int(rollout.status in FORMAT_FAILURES),
}


class _Outcome(NamedTuple):
    """What a group tells about its run's health; sorted by number: a clock may be set back."""

    number: int
    time: float
    read: int
    signal: Signal | None
    unscored: int
    truncated: int
    completions: list[tuple[str, str, Status]]


class RunHealth:
    """The last groups of a run or an evaluation, in whatever order they are read."""

    def __init__(self) -> None:
        self._groups = 0
        self._first = self._last = 0.0  # seconds since the epoch
        self._last_number = 0
        self._outcomes: list[_Outcome] = []  # a heap of the last groups by time
        self._rollouts_at: Counter[int] = Counter()  # of the last minute, by second
        self.changes = DriftCheck()

    def add(self, group: StoredGroup) -> None:
        """Take in a group."""
        time = seconds_of(group.time) or 0.0
        self._first = min(self._first, time) if self._groups else time
        self._last_number, self._last = max((self._last_number, self._last), (group.number, time))
        self._groups += 1
        self.changes.add(group, category_of(group))
        self._rollouts_at[int(time)] += len(group.rollouts)
        last = self._last
        for second in [s for s in self._rollouts_at if not last - RATE_SECONDS < s <= last + 1]:
            del self._rollouts_at[second]
        heap = self._outcomes
        scored = group.scored
        if len(heap) == GROUPS and heap[0][:3] > (group.number, time, self._groups):
            return
        outcome = _Outcome(
            number=group.number,
            time=time,
            read=self._groups,
            signal=group.signal,
            unscored=len(group.rollouts) - len(scored),
            truncated=sum(rollout.truncated for rollout in scored),
            completions=[  # of the text, only whether there is one is kept
                (r.text[:1] if r.text.strip() else "", r.finish_reason, r.status) for r in scored
            ],
        )
        (heapq.heappush if len(heap) < GROUPS else heapq.heapreplace)(heap, outcome)

    def pace(self, now: float) -> list[list[str]]:
        """Return label and value of the rate over the last minute, and of the last group's age."""
        if not self._last:
            return []
        ago = f"{lasting(now - self._last)} ago"
        return [["rollouts per second", f"{self._rate(now):.1f}"], ["last group", ago]]

    def _rate(self, now: float) -> float:
        since = now - RATE_SECONDS
        rollouts = sum(count for second, count in self._rollouts_at.items() if second > since)
        return rollouts / max(1.0, min(RATE_SECONDS, now - self._first))

    def lines(
        self,
        record: RunRecord | None = None,
        *,
        trains: bool,
        unreadable: int = 0,
        ended: str = "",
        now: float | None = None,
    ) -> list[dict[str, str]]:
        """Return what is wrong, or that nothing is; first whether the run is over.

        Args:
            unreadable: lines of the run's files that could not be read.
            ended: when it has ended; empty while it goes, and where nothing says so.
            now: seconds since the epoch; None leaves out what is only true while a run goes.
        """
        found = [*self._state(record, None if ended else now), *self._findings(trains=trains)]
        if unreadable:
            found.append(("warning", f"Skipped {unreadable} torn or unreadable lines"))
        if ended:
            found.insert(0, ("past", f"Ended {minute(seconds_of(ended))}"))
        elif not record and now is not None and now - (self._last or now) > 600.0:
            text = f"Last group {minute(self._last)}; no record tells whether the run goes on"
            found.insert(0, ("past", text))
        elif not found:
            text = "Nothing wrong in the last groups"
            if now is not None and self._last:
                ago = lasting(now - self._last)
                text = f"{self._rate(now):.1f} rollouts per second, last group {ago} ago"
            found.append(("ok", text))
        return [{"level": level, "text": text} for level, text in found]

    def _state(self, record: RunRecord | None, now: float | None) -> Iterator[tuple[str, str]]:
        """Yield what the run's record and files say; `now` is None unless the run goes."""
        if record and record.lost:
            yield "error", f"{counted(record.lost)} lost to disk"
        if record and now is not None:
            if record.failures:
                yield "error", f"Inference fails: lost {counted(record.failures)} in a row"
            if record.waiting:
                yield "warning", f"Requests wait: {record.waiting}"
            updated = seconds_of(record.updated) or 0.0
            group = self._last or seconds_of(record.started) or 0.0
            if now - updated > 6 * RECORD_SECONDS:
                what = "The process was killed, or its disk stalls: nothing written about itself"
                yield "error", f"{what} for {lasting(now - updated)}, since {minute(updated)}"
            elif now - group > 120.0:
                yield "warning", f"No group for {lasting(now - group)}, since {minute(group)}"

    def _findings(self, *, trains: bool) -> Iterator[tuple[str, str]]:
        """Yield what has changed, and what is wrong with the last groups."""
        last = self._outcomes
        changes = self.changes.flags() if trains else []
        yield from (("warning", change["text"]) for change in changes)
        if len(last) < 10:
            return
        of = f"the last {len(last)} groups"
        check = AnswerCheck()
        for outcome in last:
            check.add(outcome.completions)
        given = sum(len(one.completions) for one in last)
        unscored = sum(one.unscored for one in last)
        if unscored > 0.02 * (unscored + given):
            share = unscored / (unscored + given)
            yield "warning", f"{share:.0%} of the rollouts of {of} are unscored"
        text = check.finding(of)
        if text:
            yield "error", text
            return
        truncated = sum(one.truncated for one in last) / max(1, given)
        if truncated >= 0.2 and not any(change["kind"] == "truncated" for change in changes):
            what = "are truncated at max_token_length"
            yield "warning", f"{truncated:.0%} of the completions of {of} {what}"
        for signal, what in (
            (Signal.ALL_SOLVED, "all solved"),
            (Signal.NONE_SOLVED, "all unsolved"),
        ):
            share = sum(one.signal is signal for one in last) / len(last)
            if trains and share >= NEARLY_ALL:
                yield "warning", f"{share:.0%} of {of} are {what}: little can be learned from them"


def seconds_of(time: str) -> float | None:
    """Return seconds since the epoch of an ISO 8601 time; None if it isn't one.

    Example:
        >>> seconds_of("1970-01-01T00:01:00+00:00"), seconds_of("soon")
        (60.0, None)
    """
    try:
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def minute(seconds: float | None) -> str:
    """Return a time since the epoch to the minute.

    Example:
        >>> minute(60.0)
        '1970-01-01 00:01 UTC'
    """
    time = datetime.fromtimestamp(seconds or 0.0, timezone.utc).replace(tzinfo=None)
    return f"{time.isoformat(sep=' ', timespec='minutes')} UTC"


def lasting(seconds: float) -> str:
    """Return a duration in words.

    Example:
        >>> lasting(4.2), lasting(90), lasting(7200), lasting(400_000)
        ('4 s', '90 s', '2 h', '5 days')
    """
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < most * size:
            return f"{max(0.0, seconds) / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
