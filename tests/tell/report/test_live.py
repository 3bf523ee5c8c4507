"""Live reports: what runs write is read on from where it was, and served to this machine alone."""

from __future__ import annotations

import contextlib
import http.client
import json
import platform
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kit.planted_runs import falling, plant, step_line
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.run import locked
from ordsmed.tell.report import folders, learning_curve, live
from ordsmed.tell.report.learning_curve import Known


@contextlib.contextmanager
def serving(*names: Path) -> Iterator[ThreadingHTTPServer]:
    server = live.server([str(name) for name in names])
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(server: ThreadingHTTPServer, path: str, host: str = "", port: int = 0) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port or server.server_address[1], timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_what_is_written_meanwhile_is_shown(tmp_path: Path) -> None:
    run = plant(tmp_path / "run", [3.0, 2.0], state="running")
    with serving(run) as server:
        state, numbers = ask(server, "/state"), json.loads(ask(server, "/report.json")[1])
        assert numbers["runs"][0]["course"]["step"] == 2
        assert f'data-live="{state[1]}"' in ask(server, "/")[1]
        assert ask(server, "/state") == state
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(step_line(3, 1.5)) + "\n")
        assert ask(server, "/state") != state
        assert json.loads(ask(server, "/report.json")[1])["runs"][0]["course"]["step"] == 3


def test_a_run_that_is_killed_is_shown_so(tmp_path: Path) -> None:
    """Though nothing is written any more."""
    run = plant(tmp_path / "run", [3.0, 2.0], state="running")
    (run / "environment.json").write_text(json.dumps({"host": platform.node()}))
    with serving(run) as server:
        with locked(run):
            state = ask(server, "/state")
            assert ">running</dd>" in ask(server, "/")[1]
        assert ask(server, "/state") != state
        assert ">killed</dd>" in ask(server, "/")[1]


def test_a_run_that_falls_silent_is_shown_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plant(tmp_path / "run", [3.0, 2.0], state="running")
    with serving(run) as server:
        state = ask(server, "/state")
        assert "it may have been killed" not in ask(server, "/")[1]
        monkeypatch.setattr(folders, "SILENT", -1.0)
        assert ask(server, "/state") != state
        assert "it may have been killed" in ask(server, "/")[1]


def test_others_are_refused(tmp_path: Path) -> None:
    with serving(plant(tmp_path / "run", [3.0, 2.0])) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert ask(server, "/", host="somewhere.else")[0] == 403
        assert ask(server, "/../status.json")[0] == 404
        port = int(server.server_address[1])
        assert ask(server, "/", host=f"localhost:{port}")[0] == 200
        server.server_address = ("127.0.0.1", 80)  # which browsers leave out
        assert ask(server, "/", host="localhost", port=port)[0] == 200
        assert ask(server, "/", host="localhost:8080", port=port)[0] == 403


def test_a_browser_that_went_away_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to it or to another client."""
    asked, gone, errors = threading.Event(), threading.Event(), list[object]()

    def slow(*_: Any) -> tuple[str, str]:
        asked.set()
        assert gone.wait(60)
        return "text/html", "x" * (1 << 24)

    monkeypatch.setattr(live.LiveReport, "answer", slow)
    with serving(plant(tmp_path / "run", [3.0])) as server:
        monkeypatch.setattr(server, "daemon_threads", False)  # so that its end is waited for
        monkeypatch.setattr(server, "handle_error", lambda *_: errors.append(sys.exc_info()[1]))
        with socket.create_connection(server.server_address[:2]) as browser:  # type: ignore[arg-type]
            host = f"127.0.0.1:{server.server_address[1]}"
            browser.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert asked.wait(60)
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # with a reset
        gone.set()
    assert errors == []


def test_a_folder_that_goes_is_told(tmp_path: Path) -> None:
    run = plant(tmp_path / "run", [3.0, 2.0])
    with serving(run) as server:
        run.rename(tmp_path / "elsewhere")
        for path in ("/", "/state", "/report.json"):
            status, text = ask(server, path)
            assert status == 503
            assert text.startswith(f"{run}: no such folder")
        (tmp_path / "elsewhere").rename(run)
        assert "<h1>run</h1>" in ask(server, "/")[1]


def test_a_port_that_is_taken_and_folders_without_runs_are_refused(tmp_path: Path) -> None:
    run = plant(tmp_path / "run", [3.0, 2.0])
    with serving(run) as server, pytest.raises(RunError, match="a free port"):
        live.server([str(run)], port=server.server_address[1])
    with pytest.raises(RecipeError, match="no such folder"):
        live.server([str(tmp_path / "none")])


@pytest.mark.parametrize("piece", [1, 100, 1000])
def test_reading_on_gives_what_reading_all_gives(tmp_path: Path, piece: int) -> None:
    whole = "".join(json.dumps(step_line(step, loss)) + "\n" for step, loss in enumerate(falling(40), 1)).encode()
    path, known = tmp_path / "metrics.jsonl", Known({1: 2.0})
    follower, figures = live.Follower(), dict[str, Any]()
    for end in range(0, len(whole) + piece, piece):
        if piece > 1 or end % 37 == 0 or end >= len(whole):
            path.write_bytes(whole[:end])
            figures = follower.read(path, known, 7)
    assert figures == learning_curve.read(path, known, 7)


def test_a_file_that_was_cut_back_is_read_anew(tmp_path: Path) -> None:
    path, known = tmp_path / "metrics.jsonl", Known({})
    lines = [json.dumps(step_line(step, 3.0)) + "\n" for step in range(1, 9)]
    path.write_text("".join(lines))
    follower = live.Follower()
    assert follower.read(path, known, 7)["steps"] == 8
    path.write_text("".join(lines[:5]))
    assert follower.read(path, known, 7)["steps"] == 5
    beside = tmp_path / "beside"
    beside.write_text("".join([*lines[:5], json.dumps(step_line(6, 1.0)) + "\n", *lines[6:]]))
    beside.replace(path)  # like a run resumed from a checkpoint
    assert follower.read(path, known, 7)["lowest"] == 1.0
