"""Bad days of a server: hostile bodies, too many requests, slow and vanished clients, wrong tokens, signals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

import ordsmed
from kit.absent import Lazy
from kit.language_models import hub_folder
from kit.served import Running, running
from ordsmed.api import remote
from ordsmed.base.errors import RecipeError
from ordsmed.serve.batcher import BatchLimits

schemathesis: Any = Lazy("schemathesis")
DEEP = b"[" * 10_000
BODIES = {  # none of them is a request of any path
    "nothing": b"",
    "cut": b'{"inputs": "the [MA',
    "no JSON": b"inputs=the+fox",
    "null": b"null",
    "a number": b"1e400",
    "a list": b"[]",
    "deep": DEEP,
    "deep inside": b'{"inputs": ' + DEEP,
    "deep and whole": DEEP + b"]" * 10_000,
    "not a number": b'{"inputs": NaN, "texts": Infinity}',
    "bytes": b'{"inputs": "\xff\xfe"}',
    "half a pair": b'{"inputs": "\\ud800", "texts": "\\ud800", "input": "\\ud800", "prompt": "\\ud800"}',
    "a key twice, wrong": b'{"inputs": 1, "inputs": {}}',
    "a large number": b'{"inputs": ' + b"9" * 5_000 + b"}",
    "an unknown field": b'{"inputs": "a", "texts": "a", "nonsense": 1}',
    "empty": b'{"inputs": [], "texts": [], "input": [], "pairs": [], "sentences": [], "query": "", "ids": []}',
    "wrong inside": b'{"inputs": [1.5], "texts": [null], "input": [true], "prompt": [{}], "ids": [[-1]]}',
}


def paths(served: Running) -> list[str]:
    document = httpx.get(f"{served.url}/openapi.json").json()
    return [path for path, operations in document["paths"].items() if "post" in operations and "admin" not in path]


def is_well(served: Running) -> bool:
    answer = httpx.post(f"{served.url}/fill-mask", json={"inputs": "the [MASK] cat"})
    return answer.status_code == 200 and len(answer.json()) == 5


def test_hostile_bodies_are_refused_at_every_path(served: Running) -> None:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        for path in paths(served):
            for name, body in BODIES.items():
                answer = client.post(path.replace("{task}", "fill-mask"), content=body)
                assert 400 <= answer.status_code < 500, (path, name, answer.text)
                assert "error" in answer.json(), (path, name)
                assert "Traceback" not in answer.text
    assert is_well(served)


def test_what_is_refused_says_where_and_what(served: Running) -> None:
    """In each protocol's own form, and never by a path of this machine."""
    asked = {
        ("/fill-mask", '{"inputs": "no mask"}'): (400, "'no mask': has no mask; wanted one or more [MASK]"),
        ("/fill-mask", '{"input": "x"}'): (400, "$: unknown field `input`; did you mean `inputs`?"),
        ("/fill-mask", '{"inputs": 3}'): (400, "$.inputs: expected `str | array`, got `int`"),
        ("/brt/fill-mask", '{"inputs": "[MASK]"}'): (404, "model: no model `brt`; did you mean `bert`?"),
        ("/gpt2/fill-mask", '{"inputs": "[MASK]"}'): (400, "gpt2: is a causal model (gpt2)"),
        ("/embed", '{"inputs": []}'): (422, "an empty batch; wanted at least one text"),
        ("/embed", '{"inputs": "a", "truncate": "yes"}'): (422, "$.truncate: expected `bool | null`, got `str`"),
        ("/bert/predict", '{"inputs": "a"}'): (424, "bert: cannot classify: it is a bert"),
        ("/v1/embeddings", '{"input": "a", "model": "brt"}'): (404, "model: no model `brt`"),
        ("/v1/completions", '{"prompt": "a", "suffix": "b"}'): (400, "suffix: is not supported"),
        ("/v1/completions", '{"prompt": "a", "max_tokens": 1000000}'): (413, "found 1,000,000 new tokens"),
        ("/gpt2/score", json.dumps({"texts": "it " * 40})): (400, "40 tokens; wanted at most"),
        ("/bert/score", '{"texts": "it", "way": "causal"}'): (400, "bert: is a bert, which cannot be read the way"),
        ("/v1/nonsense", "{}"): (404, "there is no POST /v1/nonsense"),
    }
    for (path, body), (status, message) in asked.items():
        answer = httpx.post(served.url + path, content=body)
        problem = answer.json()["error"]
        text = problem["message"] if path.startswith("/v1/") else problem
        assert answer.status_code == status, answer.text
        assert message in text
        assert "/tmp" not in answer.text
    assert httpx.get(f"{served.url}/fill-mask").status_code == 404  # as a model's name
    assert httpx.delete(f"{served.url}/fill-mask").status_code == 405


@pytest.mark.long
def test_requests_drawn_from_the_document_break_nothing(served: Running) -> None:
    """Right and wrong ones alike, of every path."""
    schema = schemathesis.openapi.from_dict(httpx.get(f"{served.url}/openapi.json").json())
    operations = [result.ok() for result in schema.get_all_operations()]
    operations = [operation for operation in operations if operation.method == "post"]
    calm = settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
    modes = schemathesis.GenerationMode
    with httpx.Client(base_url=served.url, timeout=60) as client:
        for operation in operations:
            for mode in (modes.POSITIVE, modes.NEGATIVE):

                @calm
                @given(case=operation.as_strategy(generation_mode=mode))
                def ask(case: Any) -> None:
                    content = json.dumps(case.body, default=str).encode("utf-8", "replace")
                    answer = client.post(case.path.replace("{task}", "fill-mask"), content=content)
                    assert answer.status_code < 500, (case.path, content, answer.text)

                ask()
    assert is_well(served)


def test_too_much_of_anything_is_refused(served: Running) -> None:
    large = b'{"inputs": "' + b"a" * (50 << 20) + b'"}'
    answer = httpx.post(f"{served.url}/fill-mask", content=large)
    assert (answer.status_code, answer.json()["error"]) == (413, "a body of more than 8.39 MB; wanted at most 8.39 MB")
    with httpx.Client(base_url=served.url, timeout=60) as client:
        answer = client.post("/embed", content=(part for part in [b'{"inputs": "a"', b" " * (9 << 20), b"}"]))
        assert answer.status_code == 413  # without a Content-Length
        answer = client.post("/embed", json={"inputs": ["a"] * 3_000})
        assert (answer.status_code, "3,000 texts; wanted at most 2,048" in answer.text) == (413, True)
        answer = client.post("/embed", json={"inputs": "a" * 3_000_000})
        assert (answer.status_code, "3,000,001 characters" in answer.text) == (413, True)
    assert is_well(served)


class Held:
    """Work that blocks the batcher's thread until it is released."""

    def __init__(self, served: Running) -> None:
        self.free, self.begun = threading.Event(), threading.Event()
        served.service.batcher.submit(self, [()], [1], 60)
        assert self.begun.wait(20)

    def __call__(self, items: list[tuple[object, ...]]) -> list[object]:
        self.begun.set()
        self.free.wait(20)
        return [None for _ in items]


def wait_for(true: Any) -> None:
    for _ in range(3000):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


def test_of_ten_times_too_many_requests_each_is_answered(folders: dict[str, Path]) -> None:
    body = {"inputs": "the [MASK] cat"}
    with running({"bert": folders["bert"]}, batch=BatchLimits(queue=6)) as served:
        held = Held(served)
        with httpx.Client(base_url=served.url, timeout=60) as client, ThreadPoolExecutor(60) as pool:
            futures = [pool.submit(client.post, "/fill-mask", json=body) for _ in range(60)]
            wait_for(lambda: sum(future.done() for future in futures) >= 54)
            held.free.set()
            answers = [future.result(30) for future in futures]
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (6, 54)
        assert {answer.headers.get("retry-after") for answer in answers if answer.status_code == 429} == {"1"}
        assert is_well(served)
        counted = httpx.get(f"{served.url}/metrics").text
        assert 'ordsmed_requests_total{path="/fill-mask",status="429"} 54' in counted
        assert "ordsmed_queue_items 0" in counted


def test_a_busy_server_is_asked_again_from_python(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with running({"bert": folders["bert"]}, batch=BatchLimits(queue=1)) as served, ThreadPoolExecutor(1) as pool:
        far, held = ordsmed.open(f"{served.url}/bert"), Held(served)
        first = pool.submit(far.fill, "a [MASK]")
        wait_for(lambda: served.service.batcher.queue)

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            held.free.set()
            first.result(20)

        monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=sleep))
        assert far.fill("the [MASK]", best=3).text == "the [MASK]"
    assert waits == [1.0]


def test_a_client_that_goes_away_leaves_the_queue(folders: dict[str, Path]) -> None:
    with running({"bert": folders["bert"], "gpt2": folders["gpt2"]}) as served:
        held = Held(served)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{served.url}/fill-mask", json={"inputs": "the [MASK]"}, timeout=0.3)
        wait_for(lambda: all(item.request.future.done() for item in served.service.batcher.queue))
        held.free.set()
        wait_for(lambda: not served.service.batcher.waiting)
        body = {"inputs": "the", "stream": True, "parameters": {"max_new_tokens": 4_000}}
        with httpx.stream("POST", f"{served.url}/gpt2/text-generation", json=body) as answer:
            next(answer.iter_lines())
        wait_for(lambda: not served.service.batcher.waiting)


def test_a_deadline_ends_what_waits_and_what_writes(folders: dict[str, Path]) -> None:
    with running({"bert": folders["bert"], "gpt2": folders["gpt2"]}, seconds=0.4) as served:
        held = Held(served)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(httpx.post, f"{served.url}/fill-mask", json={"inputs": "the [MASK]"})
            wait_for(lambda: served.service.batcher.queue)
            time.sleep(0.6)
            held.free.set()
            assert future.result(20).status_code == 504
        body = {"model": "gpt2", "prompt": "the", "max_tokens": 4_000, "temperature": 0}
        answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "late")
        streamed = httpx.post(f"{served.url}/v1/completions", json={**body, "stream": True}, timeout=60).text
        assert "longer than the deadline" in streamed.splitlines()[-2]


def test_too_little_memory_for_a_thread_is_told(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from ordsmed.serve.call import ServedCall

    for problem, status in (("can't start new thread", 503), ("something else", 500)):
        with monkeypatch.context() as patch:

            async def fail(*args: object, problem: str = problem, **options: object) -> None:
                raise RuntimeError(problem)

            patch.setattr(ServedCall, "compute", fail)
            answer = httpx.post(f"{served.url}/fill-mask", json={"inputs": "the [MASK]"})
        assert (answer.status_code, answer.headers.get("retry-after")) == (status, "5" if status == 503 else None)
    assert is_well(served)


def test_slow_clients_are_let_go_of(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from ordsmed.serve import connections

    monkeypatch.setattr(connections, "HEADERS", 0.3)
    with running({"bert": folders["bert"]}, arrival=0.3) as served:
        address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
        head = b"POST /fill-mask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"
        for sent, wanted in ((b"", b""), (b"POST /fill-mask HT", b""), (head, b"HTTP/1.1 408 ")):
            with socket.create_connection(address, timeout=20) as connection:
                connection.sendall(sent)
                assert connection.recv(1_000)[: len(wanted)] == wanted, sent
        assert is_well(served)
        with httpx.Client(base_url=served.url) as client:  # who asks again and again may stay
            for _ in range(3):
                assert client.get("/health").status_code == 200
                time.sleep(0.2)


def test_answers_do_not_wait_for_the_client_to_acknowledge_their_head(served: Running) -> None:
    """Head and body are two writes; on an open connection the second would wait 40 ms for the ACK of the first."""
    with httpx.Client(base_url=served.url) as client:
        client.get("/health")
        sockets = [each.transport.get_extra_info("socket") for each in served.server.server_state.connections]
        assert sockets
        assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets)


def test_who_may_ask(folders: dict[str, Path]) -> None:
    from ordsmed.serve.app import Access

    access = Access(token="a-long-secret", origins=("https://lab.example",))
    with running({"bert": folders["bert"]}, access=access) as served:

        def status(**headers: str) -> int:
            return httpx.get(f"{served.url}/v1/models", headers=headers).status_code

        assert [status(), status(authorization="Bearer a-long-secreT"), status(authorization="a-long-secret")] == [
            401
        ] * 3
        right = {"authorization": "Bearer a-long-secret"}
        assert status(**right) == 200
        assert status(**right, host="evil.example") == 403
        assert status(**right, origin="https://evil.example") == 403
        assert status(**right, origin="https://lab.example") == 200
        assert httpx.get(f"{served.url}/health").status_code == 200
        assert httpx.get(served.url).status_code == 401
        with pytest.raises(ordsmed.RecipeError, match="the token is missing or wrong"):
            ordsmed.open(f"{served.url}/bert")
        os.environ["ORDSMED_TOKEN"] = "a-long-secret"
        assert ordsmed.open(f"{served.url}/bert").family == "bert"


def test_models_are_reloaded_where_that_is_allowed(folders: dict[str, Path], tmp_path: Path) -> None:
    from ordsmed.serve.app import Access

    folder = shutil.copytree(folders["bert"], tmp_path / "bert")
    body = {"inputs": "the [MASK] cat"}
    with running({"bert": folder}, access=Access(admin=True)) as served:
        before = httpx.post(f"{served.url}/fill-mask", json=body).json()
        shutil.rmtree(folder)
        assert httpx.post(f"{served.url}/admin/reload", json={}).status_code == 400  # it is gone; the open one answers
        assert httpx.post(f"{served.url}/fill-mask", json=body).json() == before
        hub_folder("bert", folder, seed=4)
        assert httpx.post(f"{served.url}/admin/reload", json={}).json() == {"status": "ok"}
        after = httpx.post(f"{served.url}/fill-mask", json=body).json()
        assert after != before
        near = ordsmed.open(folder, device="cpu").fill("the [MASK] cat").masks[0]
        assert [each["score"] for each in after] == [guess.probability for guess in near]


def test_a_folder_that_changes_or_goes_away_ends_nothing(tmp_path: Path) -> None:
    """Loaded weights still answer; requests that need the folder are refused in one line without its path."""
    from ordsmed.serve.app import Access

    folder = hub_folder("bert", tmp_path / "bert", seed=3)
    with running({"bert": folder}, access=Access(admin=True)) as served:

        def refused(path: str, body: dict[str, Any], problem: str) -> None:
            answer = httpx.post(f"{served.url}{path}", json=body)
            assert (answer.status_code, problem in answer.json()["error"]) == (400, True), answer.text
            assert str(tmp_path) not in answer.text
            assert httpx.post(f"{served.url}/score", json={"texts": "the cat"}).json() == before
            assert is_well(served)

        before = httpx.post(f"{served.url}/score", json={"texts": "the cat"}).json()
        weights = folder / "model.safetensors"
        whole = weights.read_bytes()
        os.truncate(weights, len(whole) // 2)  # as while another one is copied there
        refused("/admin/reload", {}, "cannot be read")
        weights.write_bytes(whole[:-8] + bytes(8))
        assert httpx.post(f"{served.url}/admin/reload", json={}).json() == {"status": "ok"}
        before = httpx.post(f"{served.url}/score", json={"texts": "the cat"}).json()
        (folder / "config.json").write_text("{")
        refused("/admin/reload", {}, "config.json")
        shutil.rmtree(folder)
        refused("/admin/reload", {}, "bert")


def test_without_being_asked_nothing_is_reloaded(served: Running) -> None:
    assert httpx.post(f"{served.url}/admin/reload", json={}).status_code == 404


def test_clients_that_ask_at_once_get_what_they_get_alone(served: Running) -> None:
    """Texts of all lengths, and generated texts with different options."""
    texts = [" ".join(["the old cat sat on the mat"] * (1 + n % 4)) for n in range(24)]
    model = ordsmed.open(f"{served.url}/bert")
    alone = [model.embed(text, of="sentences").vectors for text in texts]
    writer = ordsmed.open(f"{served.url}/gpt2")
    how = [
        {
            "tokens": 3 + n % 9,
            "seed": n,
            "temperature": n % 3,
            "penalty": 1 + n % 2,
            "best": n % 4,
            "typical": 1 - n % 2 / 2,
        }
        for n in range(24)
    ]
    written = [writer.generate(texts[n][: 3 + n], **how[n]) for n in range(24)]  # type: ignore[call-overload]
    with ThreadPoolExecutor(24) as pool:
        vectors = [*pool.map(lambda text: model.embed(text, of="sentences").vectors, texts)]
        again = [*pool.map(lambda n: writer.generate(texts[n][: 3 + n], **how[n]), range(24))]
    assert max(float(abs(a - b).max()) for a, b in zip(alone, vectors, strict=True)) < 1e-5
    assert again == written


def test_a_server_that_stops_closes_each_connection_with_its_answer(folders: dict[str, Path]) -> None:
    """Else a client sends its next request just before the connection goes, and never hears of it."""
    with running({"bert": folders["bert"]}) as served, httpx.Client(base_url=served.url) as client:
        assert client.get("/health").headers.get("connection") != "close"
        served.server.closing = True
        answers = [client.get(path) for path in ("/health", "/v1/models")]
        assert [(answer.status_code, answer.headers.get("connection")) for answer in answers] == [
            (200, "close"),
            (503, "close"),
        ]


def test_connections_that_began_before_the_port_was_closed_are_answered(folders: dict[str, Path]) -> None:
    """Connections that are not accepted yet, and those that send a request only after the signal."""
    head = b"POST /fill-mask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
    with running({"bert": folders["bert"]}) as served:
        address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
        early = socket.create_connection(address, timeout=20)
        wait_for(lambda: served.server.server_state.connections)
        loop = next(iter(served.server.server_state.connections)).loop
        loop.call_soon_threadsafe(time.sleep, 1)  # in which the server takes none
        waiting = [socket.create_connection(address, timeout=20) for _ in range(5)]
        served.server.handle_exit(signal.SIGTERM, None)
        wait_for(lambda: not may_connect(address))
        for connection in (early, *waiting):
            connection.sendall(head + b"{}")
            assert read_all(connection)[:12] == b"HTTP/1.1 503"


def may_connect(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=0.2).close()
    except OSError:
        return False
    return True


def read_all(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_an_answer_that_comes_before_all_of_its_request_arrives_whole(served: Running) -> None:
    """If the server closed with unread data, the system would send a reset and the client would lose the answer."""
    address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
    head = b"POST /fill-mask HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 99000000\r\n\r\n"
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(head)
        time.sleep(0.2)  # it is refused by now
        for _ in range(20):
            connection.sendall(b"a" * 100_000)
        answer = read_all(connection)
    assert (answer[:12], b"a body of more than" in answer) == (b"HTTP/1.1 413", True)


@pytest.mark.long
def test_a_signal_under_load_loses_no_request(folders: dict[str, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ordsmed", "serve", str(folders["bert"]), "--port", "0", "--threads", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr
        url = next(found[0] for line in server.stderr if (found := re.search(r"http://\S+(?=: serving)", line)))
        statuses: list[int] = []

        def ask() -> None:
            with httpx.Client(base_url=url, timeout=60) as client:
                while not statuses or statuses[-1] == 200:
                    statuses.append(client.post("/fill-mask", json={"inputs": "the [MASK] cat"}).status_code)

        with ThreadPoolExecutor(16) as pool:
            futures = [pool.submit(ask) for _ in range(16)]
            try:
                wait_for(lambda: len(statuses) > 50)
            finally:  # who asks stops when the server does
                server.send_signal(signal.SIGTERM)
            for future in futures:
                future.result(60)
        assert set(statuses) == {200, 503}
        assert server.wait(30) == 0
        assert "all accepted requests were answered" in server.stderr.read()


def test_a_port_that_is_taken_and_wrong_models_are_told_in_a_line(
    served: Running, folders: dict[str, Path], tmp_path: Path
) -> None:
    from ordsmed.serve.models import ServedModels
    from ordsmed.serve.server import ServerOptions, serve

    port = int(served.url.rpartition(":")[2])
    with pytest.raises(ordsmed.RunError, match=f"cannot listen on 127.0.0.1:{port}: address already in use; .*--port"):
        serve([str(folders["bert"])], ServerOptions(port=port))
    for words, message in (
        ([str(folders["bert"])] * 2, "found `bert` twice; .*give NAME="),
        (["a?b=x"], r"found the name `a\?b`"),
        (["v1=x"], "found the name `v1`"),
        ([str(tmp_path / "nothing")], "no such folder|wanted a run"),
    ):
        with pytest.raises(RecipeError, match=message):
            ServedModels.opened(words, {"device": "cpu"})


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from ordsmed.serve.server import check_installed

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(RecipeError, match=r"serve: `uvicorn` is not installed; pip install 'ordsmed\[serve\]'"):
        check_installed()
