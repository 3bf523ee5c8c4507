"""Web server for a report of runs that are still running; metrics are read incrementally.

/             the page, which polls /state and reloads when that changes
/state        a text that changes when a run writes something
/report.json  all facts
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ordsmed.base.ending import Ended
from ordsmed.base.errors import OrdsmedError, RunError
from ordsmed.base.run import is_locked
from ordsmed.base.say import say
from ordsmed.tell.report import comparisons, content, folders, learning_curve, page, parts, speeds
from ordsmed.tell.report.learning_curve import Known, LearningCurve

HOST = "127.0.0.1"  # only reachable from this machine
WATCHED = (folders.METRICS, "status.json", folders.SCORES, "trials.json", "scores")  # a run changed if these did


class Follower:
    """Reads metrics files from where it stopped; a file that shrank or was replaced is read again."""

    def __init__(self) -> None:
        self.known: dict[Path, tuple[tuple[Known, int, int], LearningCurve, int]] = {}

    def read(self, path: Path, known: Known, most: int) -> dict[str, Any]:
        """Read like `learning_curve.read`, but wait for the rest of an incomplete last line."""
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            about = (known, most, stat.st_ino)
            known_state, follower, location = self.known.get(path, (about, LearningCurve(known, most), 0))
            if known_state != about or stat.st_size < location:
                follower, location = LearningCurve(known, most), 0
            file.seek(location)
            while block := file.read(learning_curve.BLOCK):
                follower.feed(block)
                location += len(block)
        self.known[path] = (about, follower, location)
        return {**follower.facts(), "cut": ""}


class LiveReport:
    """The current report, rebuilt only when something was written."""

    def __init__(self, names: Sequence[str], watts: float = 0.0) -> None:
        self.names, self.watts = names, watts
        self.follower, self.lock = Follower(), threading.Lock()
        self.state_then, self.text, self.json = "", "", ""

    def state(self) -> str:
        """Return a text that changes when a file of a run changes."""
        marks = []
        files_by_name = {
            name: speeds.speed_files(path)
            for name in self.names
            if speeds.read(path := Path(name)) or comparisons.read(path)
        }
        runs = folders.find(self.names, files_by_name)
        marks += [f"{is_locked(path)} {folders.silence(path) > folders.SILENT}" for path in runs]
        files = [path / name for path in runs for name in WATCHED]
        for path in (*files, *(path for own_files in files_by_name.values() for path in own_files)):
            try:
                stat = path.stat()
                marks.append(f"{stat.st_size}.{stat.st_mtime_ns}")
            except OSError:
                marks.append("-")
        return f"{hash(tuple(marks)):x}"

    def answer(self, path: str) -> tuple[str, str] | None:
        with self.lock:
            state = self.state()
            if path == "/state":
                return "text/plain", state
            if path not in ("/", "/report.json"):
                return None
            if state != self.state_then:
                report = content.content(self.names, watts=self.watts, read=self.follower.read)
                self.text, self.json = page.page(report, live=state), parts.dumps(report)
                self.state_then = state
        return ("text/html", self.text) if path == "/" else ("application/json", self.json)


def server(names: Sequence[str], *, port: int = 0, watts: float = 0.0) -> ThreadingHTTPServer:
    """Return a server for these folders, on a free port by default."""
    live = LiveReport(names, watts)
    live.state()  # raises an error for folders without runs
    try:
        return ThreadingHTTPServer((HOST, port), _handler(live.answer))
    except OSError as error:
        problem = f"port {port}: {error.strerror}"
        raise RunError("report --watch", problem, "a free port", "leave out `--port`") from None


def watch(names: Sequence[str], *, port: int = 0, watts: float = 0.0) -> None:
    serving = server(names, port=port, watts=watts)
    say(f"http://{HOST}:{serving.server_address[1]}/ on this machine only; Ctrl-C stops it")
    with serving:
        try:
            serving.serve_forever(poll_interval=0.2)
        except Ended:
            raise
        except KeyboardInterrupt:  # the usual way to stop
            return


def _handler(answer: Callable[[str], tuple[str, str] | None]) -> type[BaseHTTPRequestHandler]:
    class LiveHandler(BaseHTTPRequestHandler):
        """Answers GET; a request with another host name comes from a foreign page and is rejected."""

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                super().handle()

        def do_GET(self) -> None:
            assert isinstance(self.server, ThreadingHTTPServer)
            port = self.server.server_address[1]
            hosts = {f"{name}:{port}".removesuffix(":80") for name in (HOST, "localhost")}  # browsers omit port 80
            if self.headers.get("Host") not in hosts:
                self.send_error(403)
                return
            status = 200
            try:
                reply = answer(self.path.partition("?")[0])
            except OrdsmedError as error:  # a missing folder may come back, so open pages keep polling
                status, reply = 503, ("text/plain", str(error))
            if reply is None:
                self.send_error(404)
                return
            kind, text = reply
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    return LiveHandler
