"""What a scoring endpoint pays: the rows' own answers, wrong ones, and the same ones again."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from ..errors import FixableError
from ..records import Problem, Recipe, Status, Verdict
from ..util.concurrency import gather_or_cancel
from ..util.outages import UnreachableError
from ..util.progress import Progress
from ..util.values import group_by, shorten
from .answers import (
    PROBED_SHARE,
    AnswersProof,
    Observation,
    ProbeShare,
    copy_probes,
    costly_probes,
    judge_answers,
    known_copies,
    mostly_killed,
)
from .checks import Check, NotChecked, TaskVerdict, check_of, left_open, verdict_of_all
from .endpoints import (
    REPLY_SECONDS,
    Asker,
    Connection,
    EndpointLostError,
    EndpointRow,
    Protocol,
    UnusableRowError,
    endpoint_row,
)
from .findings import (
    Finding,
    Kind,
    Probe,
    constants_for,
    probes_for,
    shown_verdict,
)

CHECKS = ("reproducible", "solvable", "not_payable", "contained", "bounded")
"""Those of the seven checks that answers alone can try."""

UNSEEN = {
    "contained": "what the endpoint reads, writes and connects to",
    "levels": "rows tell nothing of levels",
    "disjoint": "rows tell nothing of the questions of an evaluation",
}
"""What no answer shows."""

FORMS = ("<answer>{}</answer>", r"\boxed{{{}}}", "{}")
"""How a completion has its answer. The rows' own answers show which of them the endpoint reads."""

FORM_ROWS = 5
MOST_FORM_ROWS = 20
"""Rows whose own answers show that, and how many are tried while none is paid."""

FEWEST_ROWS = 3
"""Rows of a task without which a wrong answer that is paid is luck."""

COPY_SOURCES = 5
"""Rows beside the probed ones without which no way to copy an answer is chosen."""

HOSTILE_TASKS = 10
"""Tasks that get texts that may each take a verifier's whole time."""

COMPARED_ROWS = 2
"""Rows of each task whose answers, wrong ones too, are sent again in another order."""

TOGETHER = 4
"""Requests at once: the endpoint may serve a trainer beside."""

BATCH = 2 * TOGETHER
"""Probes after which it is asked whether most of them get no reward."""

SLOW_SECONDS = 10.0
"""Of a verdict on a text that is not hostile."""

REPEATS = 3
COMPARED_CHANGES = 5
"""How often an answer is sent on end whose score has changed, to tell chance from the answers
before it, and for how many of such answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointResult:
    """The proof of a scoring endpoint.

    Attributes:
        url: without a user and a password.
        protocol: in which it was asked.
        form: of the completions, in which it pays the rows' own answers.
        rows: of the file.
        verdict: the worst of its checks, or "proved".
        oracle: share of the rows tried whose own answer has full credit; None without such.
        degenerate: what the best wrong text of each kind earns, the worst task's.
        median_seconds, worst_seconds: of a verdict on a text that is not hostile.
        not_checked: what its checks have left open, and rows that could not be sent.
    """

    url: str
    protocol: str
    form: str
    rows: int
    verdict: TaskVerdict
    checks: dict[str, Check]
    findings: list[Finding]
    not_checked: list[NotChecked]
    oracle: float | None
    degenerate: dict[str, ProbeShare]
    median_seconds: float
    worst_seconds: float


async def prove_endpoint(
    url: str,
    protocol: Protocol,
    values: Sequence[Any],
    *,
    items: int,
    seconds: float,
    reply_seconds: float = REPLY_SECONDS,
) -> EndpointResult:
    """Prove the endpoint at a URL by rows.

    Args:
        values: the rows, or their JSON text.
        items: rows whose own answers are tried at most; all answers are tried on a part of them.
        seconds: of the clock, for all.
        reply_seconds: for a request and its whole reply.

    Raises FixableError if the endpoint gives no rewards.
    """
    rows = []
    left_out = []
    for number, value in enumerate(values, start=1):
        try:
            rows.append(endpoint_row(number, value))
        except (ValueError, RecursionError) as error:
            left_out.append(_left_out(number, error))
    if len(rows) > items:
        rows = random.Random(0).sample(rows, items)
        rows.sort(key=lambda row: row.number)
    async with Connection(url, reply_seconds) as connection:
        asker = Asker(connection, protocol)
        proving = _EndpointProving(asker, rows, left_out, items, seconds)
        progress = Progress("steps", total=proving.number_of_steps)
        async with progress.shown():
            await proving.run(progress)
    return proving.result(connection.url, protocol, len(values))


def _left_out(number: int, error: Exception) -> NotChecked:
    return NotChecked(check="solvable", reason=f"row {number}: {error}")


class _EndpointProving:
    """The steps of an endpoint's proof, and what they have found."""

    def __init__(
        self,
        asker: Asker,
        rows: Sequence[EndpointRow],
        left_out: Sequence[NotChecked],
        items: int,
        seconds: float,
    ) -> None:
        self._asker = asker
        self._rows = list(rows)
        self._left_out = list(left_out)
        self._deadline = time.monotonic() + seconds
        self._form = FORMS[0]
        self._own: dict[int, Verdict] = {}
        self._repeated = 0
        self._compared = 0
        self._is_random = False
        self._answers: list[AnswersProof] = []
        self._has_tried_costly = False
        self._findings: list[Finding] = []
        self._times: list[float] = []
        number_of_tasks = len({row.task for row in rows})
        of_all = math.ceil(PROBED_SHARE * items)
        self._probed_of_task = max(FEWEST_ROWS, of_all // max(1, number_of_tasks))

    def _is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def _rows_by_task(self) -> dict[str, list[EndpointRow]]:
        return group_by(lambda row: row.task, self._rows)

    @property
    def number_of_steps(self) -> int:
        """How many steps `run` has: four, and one of each task."""
        return 4 + len(self._rows_by_task())

    async def run(self, progress: Progress) -> None:
        """Try all answers until the time is over; texts that may take it down come last."""
        await self._choose_form()
        progress.advance()
        await self._try_own()
        progress.advance()
        await self._try_own_again()
        progress.advance()
        for task, rows in self._rows_by_task().items():
            await self._try_wrong(task, rows)
            progress.advance()
        await self._try_costly()
        progress.advance()

    async def _choose_form(self) -> None:
        """Choose the form in which most of some rows' own answers are paid.

        Raises FixableError if the endpoint gives no reward in any of them.
        """
        labelled = [row for row in self._rows if row.label is not None]
        failures: list[Verdict] = []
        paid_by_form = dict.fromkeys(FORMS, 0)
        tried = 0
        for row in labelled or list(self._rows):
            is_known = tried >= FORM_ROWS and any(paid_by_form.values())
            if is_known or tried == MOST_FORM_ROWS:
                break
            try:
                for form in FORMS:
                    # Without an answer, any text shows whether there are rewards.
                    completion = form.format(row.label or "0")
                    verdict = await self._asker.attempt(row, completion)
                    paid_by_form[form] += verdict.status is Status.SOLVED
                    if verdict.detail:
                        failures.append(verdict)
            except UnusableRowError as error:
                self._leave_out(row, error)
                continue
            tried += 1
        if not tried:
            reasons = "; ".join(one.reason for one in self._left_out[:3])
            raise FixableError(
                f"no row can be sent to the endpoint: {reasons or 'there is none'}"
            )
        if self._asker.control is None:
            message = f"the endpoint gives no reward: {failures[0].detail}"
            if failures[0].status is Status.REJECTED:
                raise FixableError(f"{message}; --rows must be rows of this endpoint")
            raise UnreachableError(message)
        self._form = max(FORMS, key=lambda form: paid_by_form[form])

    def _leave_out(self, row: EndpointRow, error: Exception) -> None:
        """Send nothing of a row any more."""
        if row in self._rows:
            self._left_out.append(_left_out(row.number, error))
            self._rows.remove(row)

    async def _verdict(self, row: EndpointRow, answer: str) -> Verdict | None:
        """Return the verdict on an answer; None, and the row is left out, if it can't be sent."""
        try:
            return await self._asker.verdict(row, self._form.format(answer))
        except UnusableRowError as error:
            self._leave_out(row, error)
            return None

    async def _observe(
        self, probes: Sequence[tuple[EndpointRow, Probe]]
    ) -> list[tuple[EndpointRow, Observation]]:
        """Try probes, a few at once, until the time is over; without those of rows left out."""
        observed = []
        for begin in range(0, len(probes), TOGETHER):
            if self._is_over():
                break
            batch = probes[begin : begin + TOGETHER]
            verdicts = await gather_or_cancel(
                self._verdict(row, probe.answer) for row, probe in batch
            )
            for (row, probe), verdict in zip(batch, verdicts, strict=True):
                if verdict is not None:
                    observed.append((row, self._note(row, probe, verdict)))
        return observed

    def _note(self, row: EndpointRow, probe: Probe, verdict: Verdict) -> Observation:
        """Return what a probe has shown, and find what no verdict may be."""
        observation = Observation(probe=probe, verdict=verdict, problem=_problem(row))
        if probe.kind is not Kind.HOSTILE:
            self._times.append(verdict.seconds)
            if verdict.seconds > SLOW_SECONDS:
                detail = f"a verdict takes {verdict.seconds:.1f} s"
                self._find("bounded", "slow", detail, observation.shown)
        if not 0 <= observation.score <= 1:
            detail = f"a reward is not from 0 to 1, but {observation.score:g}"
            self._find("solvable", "range", detail, observation.shown, "warning")
        return observation

    def _find(
        self,
        check: str,
        kind: str,
        detail: str,
        example: str,
        verdict: Literal["failed", "warning"] = "failed",
    ) -> None:
        """Add a finding, or count one of its kind once more."""
        for place, finding in enumerate(self._findings):
            if (finding.check, finding.kind) == (check, kind):
                self._findings[place] = replace(finding, items=finding.items + 1)
                return
        self._findings.append(
            Finding(
                check=check, kind=kind, detail=detail, example=example, verdict=verdict
            )
        )

    async def _try_own(self) -> None:
        """Try the rows' own answers, in the order of the file."""
        for row, observation in await self._observe(_own_answers(self._rows)):
            self._own[row.number] = observation.verdict
            if not observation.solved:
                detail = f"a row's own answer is {shown_verdict(observation.verdict)}"
                self._find("solvable", "oracle", detail, observation.shown)

    async def _try_own_again(self) -> None:
        """Try the same answers again, in the reverse order."""
        answers = [
            pair for pair in _own_answers(self._rows) if pair[0].number in self._own
        ]
        for row, observation in await self._observe(answers[::-1]):
            self._repeated += 1
            await self._compare(row, self._own[row.number], observation)

    async def _compare(
        self, row: EndpointRow, before: Verdict, observation: Observation
    ) -> None:
        """Find that an answer's score has changed, by chance or by the answers before it."""
        verdicts = [before, observation.verdict]
        if before.score == observation.verdict.score or any(
            verdict.detail for verdict in verdicts
        ):
            return
        if not self._is_random and self._compared < COMPARED_CHANGES:
            self._compared += 1
            repeated = []
            for _ in range(REPEATS):
                for _, again in await self._observe([(row, observation.probe)]):
                    repeated.append(again.verdict)
            verdicts += repeated
            self._is_random = len({verdict.score for verdict in repeated}) > 1
        scores = ", ".join(str(verdict.score) for verdict in verdicts)
        if self._is_random:
            detail = f"the same answer earns {scores} when it is sent again"
            self._find("reproducible", "differs", detail, observation.shown)
        else:
            detail = f"a verdict depends on the answers before: {scores}"
            self._find("contained", "state", detail, observation.shown)

    async def _try_wrong(self, task: str, task_rows: Sequence[EndpointRow]) -> None:
        """Try all answers but the costly ones on some rows of a task."""
        probed_rows = task_rows[: self._probed_of_task]
        sources = [
            _problem(row)
            for row in task_rows[self._probed_of_task :]
            if row.label is not None
        ]
        copies = known_copies(sources) if len(sources) >= COPY_SOURCES else {}
        observations: list[Observation] = []
        items = 0
        for row in probed_rows:
            probes = _probes_of(row, task_rows) + copy_probes(_problem(row), copies)
            tried = await self._try_all(row, probes)
            observations += tried
            if row not in self._rows:
                continue
            if len(tried) < len(probes):
                break
            items += 1
            if items <= COMPARED_ROWS:
                for before in reversed(tried):
                    for _, again in await self._observe([(row, before.probe)]):
                        await self._compare(row, before.verdict, again)
        self._add_answers(task, judge_answers(observations, items=items))

    async def _try_all(
        self, row: EndpointRow, probes: Sequence[Probe]
    ) -> list[Observation]:
        """Try probes on a row; only the first ones if most of these get no reward."""
        tried: list[Observation] = []
        for begin in range(0, len(probes), BATCH):
            batch = probes[begin : begin + BATCH]
            observed = await self._observe([(row, probe) for probe in batch])
            tried += [observation for _, observation in observed]
            if len(tried) < begin + len(batch) or mostly_killed(tried):
                break
        return tried

    def _add_answers(self, task: str, proof: AnswersProof) -> None:
        """Keep what answers to rows of a task have earned, and name the task in its findings."""
        self._answers.append(proof)
        place = f"{task}: " if task else ""
        self._findings += [
            replace(finding, detail=place + finding.detail)
            for finding in proof.findings
        ]

    async def _try_costly(self) -> None:
        """Try texts that may take a verifier's whole time, on a row of each of some tasks."""
        by_task = [*self._rows_by_task().items()][:HOSTILE_TASKS]
        for task, [row, *_] in by_task:
            observations: list[Observation] = []
            for probe in costly_probes():
                if self._is_over():
                    return
                try:
                    for _, observation in await self._observe([(row, probe)]):
                        observations.append(observation)
                    reward = await self._asker.require_alive(shorten(probe.answer))
                except EndpointLostError as error:
                    is_hostile = probe.kind is Kind.HOSTILE
                    check = "contained" if is_hostile else "bounded"
                    detail = f"{probe.kind.value} takes the endpoint down"
                    self._find(check, "lost", detail, str(error))
                    return
                self._require_unchanged(reward, probe)
            self._add_answers(task, self._judge_costly(observations))
        self._has_tried_costly = True

    def _require_unchanged(self, reward: float, probe: Probe) -> None:
        """Find that the control's reward is another one after a text."""
        if self._asker.control is None:
            return
        row, completion, before = self._asker.control
        if reward != before and not self._is_random:
            self._find(
                "contained",
                "state",
                f"after {shorten(probe.answer)}, another answer earns {reward:g} "
                f"instead of {before:g}",
                f"row {row.number}: {shorten(completion)}",
            )

    def _judge_costly(self, observations: Sequence[Observation]) -> AnswersProof:
        # Beside those that are not costly, it shows which ones were executed.
        quick = [
            Observation(probe=_own_probe(""), verdict=verdict)
            for verdict in self._own.values()
            if not verdict.detail
        ]
        proof = judge_answers([*quick, *observations], items=0)
        if not proof.executes:
            return proof
        executed = Finding(
            check="contained",
            kind="executed",
            detail="a text that takes seconds where it is executed has taken them",
            items=0,
            verdict="warning",
        )
        return replace(proof, findings=[*proof.findings, executed])

    def result(
        self, url: str, protocol: Protocol, number_of_rows: int
    ) -> EndpointResult:
        """Return the verdicts on the endpoint."""
        findings = [
            finding
            for finding in self._findings
            # What chance explains tells nothing of the answers before.
            if not (self._is_random and finding.kind == "state")
        ]
        findings += [*self._open_findings(), *ambiguous(self._rows)]
        untried = self._untried()
        reasons = self._reasons()
        tried_items = {
            "reproducible": self._repeated,
            "solvable": len(self._own),
            "not_payable": sum(proof.items for proof in self._answers),
            "contained": sum(bool(proof.hostile) for proof in self._answers),
            "bounded": len(self._own),
        }
        checks = {}
        not_checked = [*self._left_out]
        for name in CHECKS:
            of_check = [finding for finding in findings if finding.check == name]
            check = check_of(of_check, untried[name], reasons[name], explained="known")
            checks[name] = replace(check, items=tried_items[name])
            not_checked += left_open(name, of_check, untried[name])
        not_checked += [
            NotChecked(check=name, reason=reason) for name, reason in UNSEEN.items()
        ]
        number_of_tasks = len(self._rows_by_task())
        if number_of_tasks > HOSTILE_TASKS:
            reason = f"hostile texts to {number_of_tasks - HOSTILE_TASKS} more tasks"
            not_checked.append(NotChecked(check="contained", reason=reason))
        solved = sum(verdict.status is Status.SOLVED for verdict in self._own.values())
        return EndpointResult(
            url=url,
            protocol=protocol.name,
            form=self._form.format("…"),
            rows=number_of_rows,
            verdict=verdict_of_all(checks.values()),
            checks=checks,
            findings=findings,
            not_checked=not_checked,
            oracle=solved / len(self._own) if self._own else None,
            degenerate=self._worst_paid(),
            median_seconds=median(self._times) if self._times else 0.0,
            worst_seconds=max(self._times, default=0.0),
        )

    def _open_findings(self) -> list[Finding]:
        """Return what can't be known from these rows."""
        findings = []
        unlabelled = sum(row.label is None for row in self._rows)
        if unlabelled:
            findings.append(
                Finding(
                    check="solvable",
                    kind="labels",
                    detail=f"{unlabelled} rows have no answer: nothing here knows a right one",
                    verdict="not_checked",
                )
            )
        if not any(verdict.status is Status.SOLVED for verdict in self._own.values()):
            findings.append(
                Finding(
                    check="not_payable",
                    kind="form",
                    detail="no right answer is known to be paid, in answer tags, in a box or "
                    "bare: in another form, wrong ones may be too",
                    verdict="not_checked",
                )
            )
        return findings

    def _untried(self) -> dict[str, str]:
        """Return by check what of it has not been tried; empty if all has."""
        labelled = sum(row.label is not None for row in self._rows)
        own = _part(len(self._own), labelled, "rows' own answers were tried")
        again = _part(self._repeated, labelled, "rows' own answers were tried again")
        sizes = {task: len(rows) for task, rows in self._rows_by_task().items()}
        wanted = sum(min(size, self._probed_of_task) for size in sizes.values())
        probed = sum(proof.items for proof in self._answers)
        wrong = _part(probed, wanted, "rows got wrong answers")
        few = [task for task, size in sizes.items() if size < FEWEST_ROWS]
        if few and not wrong:
            names = ", ".join(filter(None, few[:5]))
            wrong = f"fewer than {FEWEST_ROWS} rows of {len(few)} tasks {names}".strip()
        is_lost = any(finding.kind == "lost" for finding in self._findings)
        costly = (
            "" if self._has_tried_costly or is_lost else "hostile texts were not tried"
        )
        return {
            "reproducible": again,
            "solvable": own,
            "not_payable": wrong,
            "contained": costly,
            "bounded": wrong or costly,
        }

    def _reasons(self) -> dict[str, str]:
        """Return by check what has been found if it passes."""
        paid = self._worst_paid()
        best = max(paid.items(), key=lambda one: one[1].solved, default=None)
        hostile = sum(
            (Counter(proof.hostile) for proof in self._answers), Counter[str]()
        )
        statuses = ", ".join(f"{count} {status}" for status, count in hostile.items())
        return {
            "reproducible": f"{self._repeated} answers, again in the reverse order",
            "solvable": f"{len(self._own)} rows' own answers",
            "not_payable": f"at most {best[1].solved:.0%}: {best[1].label!r} ({best[0]})"
            if best
            else "",
            "contained": f"hostile texts: {statuses}",
            "bounded": f"a verdict takes at most {max(self._times, default=0.0):.2f} s",
        }

    def _worst_paid(self) -> dict[str, ProbeShare]:
        """Return what the best wrong text of each kind earns, of the task where that is most."""
        worst: dict[str, ProbeShare] = {}
        for proof in self._answers:
            for kind, share in proof.degenerate.items():
                if kind not in worst or share.solved > worst[kind].solved:
                    worst[kind] = share
        return worst


def _part(tried: int, wanted: int, what: str) -> str:
    return f"{tried} of {wanted} {what}" if tried < wanted else ""


def _problem(row: EndpointRow) -> Problem:
    """Return a row as the problem that examples show."""
    return Problem(
        recipe=Recipe(task=row.task, seed=row.number),
        question=row.question,
        oracle=row.label,
        entry=b"",
    )


def _own_probe(answer: str) -> Probe:
    return Probe(kind=Kind.ORACLE, label="oracle", answer=answer, is_right=True)


def _own_answers(rows: Iterable[EndpointRow]) -> list[tuple[EndpointRow, Probe]]:
    return [(row, _own_probe(row.label)) for row in rows if row.label is not None]


def _probes_of(row: EndpointRow, task_rows: Sequence[EndpointRow]) -> list[Probe]:
    """Return the probes of a row beside others of its task."""
    other_labels = [
        task_row.label
        for task_row in task_rows
        if task_row is not row and task_row.label is not None
    ]
    # Each row gets the answer of the one behind it.
    begin = sum(task_row.number < row.number for task_row in task_rows)
    probes = probes_for(
        row.question,
        row.label,
        constants=constants_for(other_labels),
        others=[*other_labels[begin:], *other_labels[:begin]],
    )
    return [
        probe for probe in probes if row.question or probe.kind is not Kind.QUESTION
    ]


def ambiguous(rows: Iterable[EndpointRow]) -> list[Finding]:
    """Return that rows with the same question have several answers."""
    findings = []
    answered = [row for row in rows if row.question and row.label is not None]
    for question, alike in group_by(lambda row: row.question, answered).items():
        labels = {str(row.label).strip() for row in alike}
        if len(labels) > 1:
            findings.append(
                Finding(
                    check="solvable",
                    kind="ambiguous",
                    detail="the same question has several answers",
                    example=f"{shorten(question)}: {', '.join(map(shorten, sorted(labels)))}",
                    items=len(alike),
                )
            )
    return findings
