"""Counters and durations of a server in Prometheus's text format; with several processes, their sums."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import msgspec

from ordsmed.serve.workers import Worker

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds


class MetricCounts(msgspec.Struct):
    requests: dict[str, int] = {}  # by status and path
    seconds: list[int] = msgspec.field(
        default_factory=lambda: [0] * (len(BOUNDS) + 1)
    )  # number of requests by the smallest bound in BOUNDS that they did not exceed
    total_seconds: float = 0.0
    batches: int = 0
    items: int = 0
    batch_seconds: float = 0.0
    closed: dict[str, int] = {}  # closed connections by reason

    def add(self, other: MetricCounts) -> None:
        for key, count in other.requests.items():
            self.requests[key] = self.requests.get(key, 0) + count
        self.seconds = [a + b for a, b in zip(self.seconds, other.seconds, strict=True)]
        self.total_seconds += other.total_seconds
        self.batches, self.items = self.batches + other.batches, self.items + other.items
        self.batch_seconds += other.batch_seconds
        for reason, count in other.closed.items():
            self.closed[reason] = self.closed.get(reason, 0) + count


class ServerMetrics:
    """The metrics of this process, and of the other worker processes."""

    def __init__(self) -> None:
        self.counts = MetricCounts()
        self.gauges: dict[str, Callable[[], int]] = {"connections": lambda: 0}  # values that are read on demand
        self._worker: Worker | None = None
        self._lock = threading.Lock()

    def share(self, worker: Worker) -> None:
        """Publish the counts to the other workers, starting from those of a worker that this one replaces."""
        self._worker = worker
        if published := worker.row.read("metrics"):
            self.counts = msgspec.json.decode(published, type=MetricCounts)

    def add_request(self, path: str, status: int, seconds: float) -> None:
        with self._lock:
            counts, key = self.counts, f"{status} {path}"
            counts.requests[key] = counts.requests.get(key, 0) + 1
            counts.seconds[next((n for n, bound in enumerate(BOUNDS) if seconds <= bound), -1)] += 1
            counts.total_seconds += seconds
            self._publish()

    def add_batch(self, items: int, seconds: float) -> None:
        with self._lock:
            self.counts.batches, self.counts.items = self.counts.batches + 1, self.counts.items + items
            self.counts.batch_seconds += seconds
            self._publish()

    def add_closed(self, reason: str) -> None:
        with self._lock:
            self.counts.closed[reason] = self.counts.closed.get(reason, 0) + 1
            self._publish()

    def _publish(self) -> None:
        if self._worker:
            self._worker.row.write("metrics", msgspec.json.encode(self.counts))

    def text(self) -> str:
        counts = MetricCounts()
        with self._lock:
            counts.add(self.counts)
        gauges = {name: read() for name, read in self.gauges.items()}
        if worker := self._worker:
            rows = [row for row in worker.shared.rows if row is not worker.row]  # also of workers that have died
            for text in filter(None, (row.read("metrics") for row in rows)):
                counts.add(msgspec.json.decode(text, type=MetricCounts))
            gauges["queue_items"] += sum(row["waiting"] for row in worker.others)
            gauges["batch_size"] += sum(row["computing"] for row in worker.others)
            gauges["connections"] += sum(row["connections"] for row in worker.others)
            gauges["workers"] = 1 + sum(row["ready"] for row in worker.others)
        return "\n".join(self._lines(counts, gauges)) + "\n"

    def _lines(self, counts: MetricCounts, gauges: dict[str, int]) -> Iterator[str]:
        yield "# TYPE ordsmed_requests_total counter"
        for key, count in sorted(counts.requests.items(), key=lambda entry: entry[0].split()[::-1]):
            status, path = key.split()
            yield f'ordsmed_requests_total{{path="{path}",status="{status}"}} {count}'
        yield "# TYPE ordsmed_request_seconds histogram"
        cumulative = 0
        for bound, count in zip((*BOUNDS, "+Inf"), counts.seconds, strict=True):
            cumulative += count
            yield f'ordsmed_request_seconds_bucket{{le="{bound}"}} {cumulative}'
        yield f"ordsmed_request_seconds_sum {counts.total_seconds:.6f}"
        yield f"ordsmed_request_seconds_count {cumulative}"
        for name, value in (("batches", counts.batches), ("batch_items", counts.items)):
            yield f"# TYPE ordsmed_{name}_total counter\nordsmed_{name}_total {value}"
        yield f"# TYPE ordsmed_batch_seconds_total counter\nordsmed_batch_seconds_total {counts.batch_seconds:.6f}"
        yield "# TYPE ordsmed_connections_closed_total counter"
        for reason, count in sorted(counts.closed.items()):
            yield f'ordsmed_connections_closed_total{{reason="{reason}"}} {count}'
        for name, value in gauges.items():
            yield f"# TYPE ordsmed_{name} gauge\nordsmed_{name} {value}"
