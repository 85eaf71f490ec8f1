"""What the service counts, as the text that Prometheus reads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from ..records import Status

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper ends of the buckets of request times."""

CONTENT_TYPE = "text/plain; version=0.0.4"


class Metrics:
    """Counts requests, answers and groups.

    Attributes:
        requests: by route and HTTP status.
        answers: by status.
        batches, batched: groups that were scored, and the answers in them.
    """

    def __init__(self) -> None:
        self.answers: Counter[Status] = Counter()
        self.batches = 0
        self.batched = 0
        self.requests: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, Counter[float]] = defaultdict(Counter)
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self.requests[route, status] += 1
        self._seconds[route] += seconds
        self._buckets[route].update(end for end in SECONDS if seconds <= end)

    def text(self, *, queued: int, ready: bool, counts: Mapping[str, int]) -> str:
        """Write all of it.

        Args:
            queued: answers that wait or are scored.
            counts: of the gym.
        """
        return "".join(f"{line}\n" for line in self._lines(queued, ready, counts))

    def _lines(self, queued: int, ready: bool, counts: Mapping[str, int]) -> Iterator[str]:
        yield from _head(
            "requests_total", "counter", "Requests by route and HTTP status; 499: the client left."
        )
        for (route, status), count in sorted(self.requests.items()):
            yield f'{_name("requests_total")}{{route="{route}",code="{status}"}} {count}'
        yield from _head("request_seconds", "histogram", "Seconds until a request is answered.")
        for route in sorted(self._seconds):
            yield from self._histogram(route)
        yield from _head("answers_total", "counter", "Scored completions by status.")
        for kind in Status:
            yield f'{_name("answers_total")}{{status="{kind.value}"}} {self.answers[kind]}'
        for name, kind_of, value, about in (
            ("batches_total", "counter", self.batches, "Groups of completions scored together."),
            ("batched_answers_total", "counter", self.batched, "Completions in those groups."),
            ("queued_answers", "gauge", queued, "Completions that wait or are scored."),
            ("ready", "gauge", int(ready), "1 while worker processes are up."),
            (
                "worker_restarts_total",
                "counter",
                counts.get("sandbox/restarts", 0),
                "Worker processes that were lost and replaced.",
            ),
        ):
            yield from _head(name, kind_of, about)
            yield f"{_name(name)} {value}"

    def _histogram(self, route: str) -> Iterator[str]:
        name = _name("request_seconds")
        count = sum(n for (of, _), n in self.requests.items() if of == route)
        for end in SECONDS:
            yield f'{name}_bucket{{route="{route}",le="{end}"}} {self._buckets[route][end]}'
        yield f'{name}_bucket{{route="{route}",le="+Inf"}} {count}'
        yield f'{name}_sum{{route="{route}"}} {self._seconds[route]:.6f}'
        yield f'{name}_count{{route="{route}"}} {count}'


def _name(name: str) -> str:
    return f"reasoning_gym_{name}"


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {_name(name)} {about}"
    yield f"# TYPE {_name(name)} {kind}"
