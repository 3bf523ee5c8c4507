"""A report served on this machine while runs go on: metrics are read on from where they were, a browser asks again.

/             the page, which asks for /state and comes again when that changes
/state        a word that is another one once anything was written
/report.json  every number
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
from ordsmed.base.run import is_held
from ordsmed.base.say import say
from ordsmed.tell.report import comparisons, content, folders, learning_curve, page, parts, speeds
from ordsmed.tell.report.learning_curve import Known, LearningCurve

HOST = "127.0.0.1"  # nobody but this machine
WATCHED = (folders.METRICS, "status.json", folders.SCORES, "trials.json", "scores")  # by whose change a run has changed


class Follower:
    """Reads metrics files on from where it was; one that became shorter, or another, from its beginning."""

    def __init__(self) -> None:
        self.known: dict[Path, tuple[tuple[Known, int, int], LearningCurve, int]] = {}

    def read(self, path: Path, known: Known, most: int) -> dict[str, Any]:
        """As `learning_curve.read`; a last line that is half written is waited for."""
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            about = (known, most, stat.st_ino)
            before, follower, place = self.known.get(path, (about, LearningCurve(known, most), 0))
            if before != about or stat.st_size < place:
                follower, place = LearningCurve(known, most), 0
            file.seek(place)
            while block := file.read(learning_curve.BLOCK):
                follower.feed(block)
                place += len(block)
        self.known[path] = (about, follower, place)
        return {**follower.facts(), "cut": ""}


class LiveReport:
    """What is asked for over and over: the report as it is now, made anew only when something was written."""

    def __init__(self, names: Sequence[str], watts: float = 0.0) -> None:
        self.names, self.watts = names, watts
        self.follower, self.lock = Follower(), threading.Lock()
        self.state_then, self.text, self.json = "", "", ""

    def state(self) -> str:
        """Another word once a file of a run is another."""
        marks = []
        files_by_name = {
            name: speeds.speed_files(path)
            for name in self.names
            if speeds.read(path := Path(name)) or comparisons.read(path)
        }
        runs = folders.find(self.names, files_by_name)
        marks += [f"{is_held(path)} {folders.silence(path) > folders.SILENT}" for path in runs]
        files = [path / name for path in runs for name in WATCHED]
        for path in (*files, *(path for own_files in files_by_name.values() for path in own_files)):
            try:
                stat = path.stat()
                marks.append(f"{stat.st_size}.{stat.st_mtime_ns}")
            except OSError:
                marks.append("-")
        return f"{hash(tuple(marks)):x}"

    def answer(self, path: str) -> tuple[str, str] | None:
        """The kind of an answer and the answer; None: there is no such page."""
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
    """What serves these folders, on a port that is free where none is named."""
    live = LiveReport(names, watts)
    live.state()  # folders that hold no run are refused here
    try:
        return ThreadingHTTPServer((HOST, port), _handler(live.answer))
    except OSError as error:
        problem = f"port {port}: {error.strerror}"
        raise RunError("report --watch", problem, "a port that is free", "leave out `--port`") from None


def watch(names: Sequence[str], *, port: int = 0, watts: float = 0.0) -> None:
    """Serve until somebody presses Ctrl-C."""
    serving = server(names, port=port, watts=watts)
    say(f"http://{HOST}:{serving.server_address[1]}/ on this machine alone; Ctrl-C ends")
    with serving:
        try:
            serving.serve_forever(poll_interval=0.2)
        except Ended:
            raise
        except KeyboardInterrupt:  # which is how it is ended
            return


def _handler(answer: Callable[[str], tuple[str, str] | None]) -> type[BaseHTTPRequestHandler]:
    class LiveHandler(BaseHTTPRequestHandler):
        """Answers GET; what asks by another name than this machine's is a page of somebody else."""

        def handle(self) -> None:
            """A browser that goes away meanwhile is no error."""
            with contextlib.suppress(ConnectionError):
                super().handle()

        def do_GET(self) -> None:
            assert isinstance(self.server, ThreadingHTTPServer)
            port = self.server.server_address[1]
            hosts = {f"{name}:{port}".removesuffix(":80") for name in (HOST, "localhost")}  # as a browser says it
            if self.headers.get("Host") not in hosts:
                self.send_error(403)
                return
            status = 200
            try:
                reply = answer(self.path.partition("?")[0])
            except OrdsmedError as error:  # a folder that is gone may come back: a page that stands waits for it
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
            """Nothing is told of each request."""

    return LiveHandler
