"""The web page for browsers: static files, with headers that forbid loading anything from other hosts."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = {
    **{f"{kind}-src": "'self'" for kind in ("script", "style", "img", "connect")},
    **{name: "'none'" for name in ("default-src", "base-uri", "form-action", "frame-ancestors", "trusted-types")},
    "require-trusted-types-for": "'script'",  # text is never parsed as markup
}
HEADERS = {
    "content-security-policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # revalidate: another version of ordsmed has another page
}


@functools.cache
def files() -> dict[str, tuple[bytes, str]]:
    """Return the content and the ETag of each file, by name."""
    contents = {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}
    return {name: (content, f'"{hashlib.sha256(content).hexdigest()[:16]}"') for name, content in contents.items()}


def wants_page(request: Request) -> bool:
    """Return whether a browser wants to display the answer. Programs accept JSON or anything."""
    kinds = {part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")}
    return "text/html" in kinds and "application/json" not in kinds


def file(name: str, request: Request) -> Response:
    content, tag = files()[name]
    headers = {**HEADERS, "etag": tag, "vary": "accept"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=TYPES[Path(name).suffix])
