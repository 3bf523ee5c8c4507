"""Metrics: counts and durations of a server, as the text that Prometheus reads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds


class ServerMetrics:
    """What happened since the server started."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.seconds: Counter[float] = Counter()  # requests by the bound that they stay below
        self.total_seconds = 0.0
        self.batches = self.items = 0
        self.batch_seconds = 0.0
        self.gauges: dict[str, Callable[[], int]] = {}  # what is looked up when it is asked for
        self._lock = threading.Lock()

    def add_request(self, path: str, status: int, seconds: float) -> None:
        with self._lock:
            self.requests[path, status] += 1
            self.seconds[next((bound for bound in BOUNDS if seconds <= bound), float("inf"))] += 1
            self.total_seconds += seconds

    def add_batch(self, items: int, seconds: float) -> None:
        with self._lock:
            self.batches, self.items = self.batches + 1, self.items + items
            self.batch_seconds += seconds

    def text(self) -> str:
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# TYPE ordsmed_requests_total counter"
        for (path, status), count in sorted(self.requests.items()):
            yield f'ordsmed_requests_total{{path="{path}",status="{status}"}} {count}'
        yield "# TYPE ordsmed_request_seconds histogram"
        below = 0
        for bound in (*BOUNDS, float("inf")):
            below += self.seconds[bound]
            yield f'ordsmed_request_seconds_bucket{{le="{"+Inf" if bound == float("inf") else bound}"}} {below}'
        yield f"ordsmed_request_seconds_sum {self.total_seconds:.6f}"
        yield f"ordsmed_request_seconds_count {below}"
        for name, value in (("batches", self.batches), ("batch_items", self.items)):
            yield f"# TYPE ordsmed_{name}_total counter\nordsmed_{name}_total {value}"
        yield f"# TYPE ordsmed_batch_seconds_total counter\nordsmed_batch_seconds_total {self.batch_seconds:.6f}"
        for name, look in self.gauges.items():
            yield f"# TYPE ordsmed_{name} gauge\nordsmed_{name} {look()}"
