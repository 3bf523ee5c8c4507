"""Parse robots.txt by RFC 9309: groups of the same name are merged, `*` and `$` match, the longest rule decides.

answer to /robots.txt -> 2xx: its rules | 3xx, 4xx: no rules, all allowed | 429, 5xx: `Failed`, nothing allowed
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote, unquote_to_bytes, urlsplit

from ordsmed.web.http import Reply

NAME = "ordsmed"  # the crawler's name in robots.txt
LARGEST = 500 * 1024  # bytes that are read: the minimum that the RFC requires
AGENT = ("user-agent", "useragent", "user agent")
ALLOW, DELAY = "allow", "crawl-delay"
# includes frequent misspellings
RULES = (ALLOW, DELAY, "disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw")
RECORD, TOKEN = re.compile(r"([^:#]*):([^#]*)"), re.compile(r"\*(?!\S)|[a-z_-]*")
RESERVED = ":/?#[]@!$&'()*+,;=~"  # characters that count as one octet in the length of a rule


@dataclass(frozen=True)
class Pattern:
    """A pattern for the start of a path, or with `$` for the complete path. Escapes are decoded before comparison."""

    parts: tuple[bytes, ...]
    whole: bool
    octets: int

    @classmethod
    def of(cls, text: str) -> Pattern:
        parts = tuple(map(unquote_to_bytes, re.split(r"\*+", text.removesuffix("$"))))
        octets = text.count("*") + text.endswith("$") + sum(len(quote(part, RESERVED)) for part in parts)
        return cls(parts, text.endswith("$"), octets)

    def match(self, path: bytes) -> bool:
        """Return whether the pattern matches a path with its query."""
        first, *rest = self.parts
        if not path.startswith(first):
            return False
        at, end = len(first), len(path)
        if self.whole and rest:
            last = rest.pop()
            end -= len(last)
            if not path.endswith(last):
                return False
        elif self.whole:
            return at == end
        for part in rest:
            start = path.find(part, at)
            if start < 0:
                return False
            at = start + len(part)
        return at <= end


@dataclass
class RobotRules:
    """The paths of a host that a crawler may request, and the delay between requests."""

    patterns: list[tuple[Pattern, bool]] = field(default_factory=list)
    "patterns, and whether they allow the path; the first match decides"
    delay: float = 0.0
    "seconds between two requests"

    def allow(self, url: str) -> bool:
        parts = urlsplit(url)
        path = unquote_to_bytes((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        return next((allowed for pattern, allowed in self.patterns if pattern.match(path)), True)


def read_rules(reply: Reply, seconds: float) -> RobotRules:
    """Return the rules in an answer, which must arrive within `seconds`."""
    if 300 <= reply.status < 500 and reply.status != 429:
        return RobotRules()
    if not 200 <= reply.status < 300:
        raise reply.failure()
    text = b""
    for block in reply.blocks(seconds=seconds):
        text += block
        if len(text) > LARGEST:
            # drop the last, incomplete line: it may allow more than the whole line
            text = text[: max(text.rfind(b"\n"), text.rfind(b"\r"))]
            break
    return parse(text.decode("utf-8", "replace"))


def parse(text: str, name: str = NAME) -> RobotRules:
    """Return the rules of a robots.txt for the crawler `name`, or else those for all crawlers."""
    groups = defaultdict[str, RobotRules](RobotRules)
    agents, group_ended = list[str](), True  # after a rule, the next name starts another group
    for key, value in _records(text):
        if key in AGENT:
            agents = [*([] if group_ended else agents), TOKEN.match(value.lower())[0]]  # type: ignore[index]  # "" fits
            groups[agents[-1]]  # creates the group: one without a rule allows all
            group_ended = False
        elif key in RULES:
            group_ended = True
            for agent in agents:
                _add(groups[agent], key, value)
    rules = groups[name if name in groups else "*"]
    rules.patterns.sort(key=lambda rule: (rule[0].octets, rule[1]), reverse=True)
    return rules


def _add(rules: RobotRules, key: str, value: str) -> None:
    if key == DELAY:
        with contextlib.suppress(ValueError):
            if 0 <= (delay := float(value)) < math.inf:
                rules.delay = delay
    elif value:
        rules.patterns.append((Pattern.of(value), key == ALLOW))


def _records(text: str) -> Iterator[tuple[str, str]]:
    for line in re.split(r"[\r\n]+", text.removeprefix("\ufeff")):
        if record := RECORD.match(line):
            yield record[1].strip().lower(), record[2].strip()
