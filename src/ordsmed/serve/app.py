"""The web application: route requests to endpoints, check access and sizes, and write errors as each protocol does."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ordsmed import __version__
from ordsmed.base import menu
from ordsmed.base.say import size
from ordsmed.serve import openapi, static
from ordsmed.serve.batcher import as_refusal
from ordsmed.serve.call import MENU, Endpoint, ServedCall, ServedProtocol, Service
from ordsmed.serve.indexes import indexes_of
from ordsmed.serve.models import RESERVED
from ordsmed.serve.refusal import RETRY_AFTER, Refusal
from ordsmed.serve.sentences import top_layer

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Access:
    """Who may send requests."""

    token: str = ""  # empty: every client that can reach the port may send requests
    origins: tuple[str, ...] = ()  # origins of other pages whose scripts may send requests; "*": all
    loopback: bool = True  # listens on this machine only: requests to other host names are refused
    admin: bool = False  # whether requests may reload the models


@dataclass(frozen=True)
class App:
    """Builds the Starlette application, which checks and answers every request."""

    service: Service
    access: Access = field(default_factory=Access)
    closing: Callable[[], bool] = lambda: False

    def app(self) -> Starlette:
        known = protocols()
        routes = []
        for protocol in known:
            for endpoint in (*protocol.endpoints, *(_descriptions(known) if protocol is known[-1] else ())):
                if endpoint.path.startswith("/admin"):
                    if self.access.admin:
                        routes.append(Route(endpoint.path, self._handler(endpoint, protocol), methods=["POST"]))
                    continue
                answer, methods = self._handler(endpoint, protocol), [endpoint.verb]
                routes.append(Route(endpoint.path, answer, methods=methods))
                routes.append(Route("/{model_name:path}" + endpoint.path.rstrip("/"), answer, methods=methods))
        routes.sort(key=_route_order)
        described = next(route for route in routes if route.path == "/" and "GET" in (route.methods or ()))
        routes[:0] = [Route(f"/page/{name}", self._page_handler(name)) for name in static.files()]
        routes.insert(0, Route("/", self._page_handler("index.html", described.endpoint)))
        middleware = []
        if self.access.origins:
            origins = [*self.access.origins]
            cors = Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
            middleware.append(cors)
        handlers: Mapping[Any, Any] = {404: self._unknown_path, 405: self._unknown_path}
        return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)

    def _handler(self, endpoint: Endpoint, protocol: ServedProtocol) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if request.path_params.get("model_name", "").split("/")[0] == RESERVED[0]:
                return await self._unknown_path(request, LookupError())  # a path of /v1, not a model `v1`
            start = time.monotonic()
            try:
                response = await self._answer(endpoint, request)
            except Refusal as refusal:
                response = refused(refusal, protocol)
            except ClientDisconnect:
                response = Response(status_code=499)  # the client never receives it
            except Exception as error:
                print(traceback.format_exc(), file=sys.stderr, flush=True)
                known = as_refusal(error)
                broken = Refusal("broken", "an error in the server; see its log")
                response = refused(known if isinstance(known, Refusal) else broken, protocol)
            if self.closing():  # the client's next request on this connection would be lost
                response.headers["connection"] = "close"
            self.service.metrics.add_request(endpoint.path, response.status_code, time.monotonic() - start)
            return response

        return answer

    def _page_handler(self, name: str, other: Callable[[Request], Any] | None = None) -> Callable[[Request], Any]:
        """Return the handler of a file of the web page, which needs no token: the page asks the user for it.

        With `other`, requests that are not from browsers go to that handler.
        """

        async def show(request: Request) -> Response:
            if other is not None and not static.wants_page(request):
                response: Response = await other(request)
                response.headers["vary"] = "accept"
                return response
            try:
                self._check_access(request, public=True)
            except Refusal as refusal:
                return refused(refusal, _nearest("/"))
            return static.file(name, request)

        return show

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        self._check_access(request, public=endpoint.public)
        if self.closing() and not endpoint.public:
            raise Refusal("closing", "the server is stopping")
        if request.scope.get("state", {}).get("crowded") and not endpoint.public:
            raise Refusal("crowded", "all connections are busy")
        body = await self._body(request) if endpoint.request is not None else b""
        parameters = {name: str(value) for name, value in request.path_params.items()}
        name = parameters.pop("model_name", "").removeprefix("models/").strip("/")
        call = ServedCall(self.service, name, endpoint.read(body), parameters, request.headers.get("user-agent", ""))
        result = await _while_connected(request, asyncio.ensure_future(endpoint.run(call)))
        if not isinstance(result, Response):
            encode = msgspec.json.encode
            written = await asyncio.to_thread(encode, result) if isinstance(result, list) else encode(result)
            result = Response(written, media_type="application/json")
        result.headers.update(call.headers)
        return result

    def _check_access(self, request: Request, *, public: bool) -> None:
        host = request.headers.get("host", "")
        if self.access.loopback and re.sub(r":\d+$", "", host).lower() not in LOOPBACK:
            raise Refusal("host", f"found the host {host[:80]!r}", "localhost; the server answers no other name")
        origin = request.headers.get("origin", "")
        same_origin = origin.partition("://")[2] == host
        if origin and not same_origin and not {origin, "*"} & set(self.access.origins):
            problem = f"pages of {origin[:80]!r} may not send requests"
            raise Refusal("host", problem, "", "--allow-origin ORIGIN allows them")
        if self.access.token and not public:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            matches = hmac.compare_digest(token.strip().encode(), self.access.token.encode())
            if scheme.lower() != "bearer" or not matches:
                raise Refusal("token", "the token is missing or wrong", "Authorization: Bearer TOKEN")

    async def _body(self, request: Request) -> bytes:
        limits = self.service.limits
        too_large = Refusal("large", f"a body of more than {size(limits.body)}", f"at most {size(limits.body)}")
        if int_of(request.headers.get("content-length", "0")) > limits.body:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(limits.arrival):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limits.body:
                        raise too_large
        except TimeoutError:
            raise Refusal("slow", f"the body took more than {limits.arrival:g} seconds") from None
        return bytes(body)

    async def _unknown_path(self, request: Request, error: Exception) -> Response:
        """Refuse an unknown path or method, in the error form of the protocol with the most similar path."""
        kind = "method" if getattr(error, "status_code", 404) == 405 else "unknown"
        line = f"{request.method} {request.url.path[:200]}"
        refusal = Refusal(kind, f"there is no {line}", "", "GET / lists the paths")
        return refused(refusal, _nearest(request.url.path))


def _descriptions(known: Sequence[ServedProtocol]) -> tuple[Endpoint, ...]:
    """Return the endpoints that list models and paths, and the OpenAPI document."""
    document = openapi.document(known)
    paths = {
        path: operation["summary"]
        for path, operations in document["paths"].items()
        for operation in operations.values()
    }

    async def describe(call: ServedCall) -> object:
        call.model("")  # raises a refusal if the path names an unknown model
        pool = {"pool": call.service.pool} if call.service.pool else {}
        models = [
            {
                **served.facts,
                "checkpoints": call.service.checkpoints and served.is_run,
                "sentences": {"layers": top_layer(served), **pool},
                "indexes": indexes_of(call, served),
            }
            for served in call.service.models.by_name.values()
            if call.name in ("", served.name)
        ]
        return {"ordsmed": __version__, "models": models, "paths": paths}

    async def describe_paths(call: ServedCall) -> object:
        return document

    return Endpoint("/", "list the models and the paths", describe), Endpoint(
        "/openapi.json", "OpenAPI document", describe_paths
    )


def protocols() -> list[ServedProtocol]:
    modules = {name: menu.import_choice(MENU, name) for name in menu.entries(MENU)}
    return [ServedProtocol(name, module.ENDPOINTS, module.failure) for name, module in modules.items()]


def _nearest(path: str) -> ServedProtocol:
    def common(protocol: ServedProtocol) -> int:
        return max(len(os.path.commonpath([endpoint.path, path])) for endpoint in protocol.endpoints)

    return max(protocols(), key=common)


def refused(refusal: Refusal, protocol: ServedProtocol) -> Response:
    form = protocol.failure(refusal)
    headers = {"retry-after": str(RETRY_AFTER[refusal.kind])} if refusal.kind in RETRY_AFTER else {}
    if refusal.kind == "token":
        headers["www-authenticate"] = "Bearer"
    if refusal.kind in ("large", "slow", "crowded"):  # the rest of the body is not read
        headers["connection"] = "close"
    return Response(msgspec.json.encode(form.body), form.status, headers, "application/json")


def int_of(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


async def _while_connected(request: Request, answer: asyncio.Future[Any]) -> object:
    """Return the answer. If the client disconnects first, cancel the work and raise ClientDisconnect."""
    disconnected = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return await answer
    finally:
        for task in (answer, disconnected):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _route_order(route: Route) -> tuple[int, int]:
    """Sort key of routes: first those without a model's name, then longer paths first."""
    return "{model_name" in route.path, -len(route.path)
