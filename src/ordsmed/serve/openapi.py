"""The OpenAPI document of all endpoints, made from the types of their requests and answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ordsmed import __version__
from ordsmed.serve.call import Endpoint, ServedProtocol
from ordsmed.serve.refusal import Refusal

Table = dict[str, Any]
FAILURES = {  # kinds of refusal that any endpoint may answer, and their description
    "invalid": "the request is invalid",
    "token": "the token is missing or wrong",
    "unknown": "no such model",
    "cannot": "the model does not have this method",
    "slow": "the body arrived too slowly",
    "large": "too many bytes, texts or characters",
    "busy": "the queue is full: retry after the seconds in Retry-After",
    "memory": "too little memory, or the server is stopping",
    "late": "the deadline has passed",
}


def document(protocols: Sequence[ServedProtocol]) -> Table:
    types = [kind for protocol in protocols for endpoint in protocol.endpoints for kind in _types(endpoint)]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(map(id, types), schemas, strict=True))
    paths: Table = {}
    for protocol in protocols:
        for endpoint in protocol.endpoints:
            entry = _operation(endpoint, protocol, schema_of)
            paths.setdefault(endpoint.path, {})[endpoint.verb.lower()] = entry
    about = "A model's name may precede every path: /NAME/fill-mask. Without a name the first suitable model answers."
    return {
        "openapi": "3.1.0",
        "info": {"title": "ordsmed", "version": __version__, "description": about},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _types(endpoint: Endpoint) -> list[Any]:
    return [kind for kind in (endpoint.request, endpoint.answer) if kind is not None]


def _operation(endpoint: Endpoint, protocol: ServedProtocol, schema_of: dict[int, Any]) -> Table:
    answered = {} if endpoint.answer is None else {"application/json": {"schema": schema_of[id(endpoint.answer)]}}
    responses: Table = {"200": {"description": "the answer", **({"content": answered} if answered else {})}}
    for kind, meaning in FAILURES.items():
        form = protocol.failure(Refusal(kind, ""))
        responses.setdefault(str(form.status), {"description": meaning})
    entry: Table = {
        "operationId": re.sub(r"\W+", "_", f"{endpoint.verb.lower()}{endpoint.path}").strip("_"),
        "tags": [protocol.name],
        "summary": endpoint.does,
        "responses": responses,
    }
    if endpoint.request is not None:
        content = {"application/json": {"schema": schema_of[id(endpoint.request)]}}
        entry["requestBody"] = {"required": True, "content": content}
    names = re.findall(r"\{(\w+)(?::\w+)?\}", endpoint.path)
    if names:
        entry["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    return entry
