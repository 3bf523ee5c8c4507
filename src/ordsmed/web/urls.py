"""Select the addresses to crawl from lists of URLs and dumps of Reddit submissions, each once.

    # a comment                                       |
    http://example.com/a?utm_source=x#top             |->  http://example.com/a, ...
    {"url": "...", "score": 5, "is_self": false ...}  |    and the number left out by each rule

The rules are those with which links of Reddit became a corpus in 2019: enough points, no blacklisted domain, no file
type without prose. The original compared names only with the middle label of a domain. Here `example.com` means that
domain and its subdomains; only a name without a dot (`example`) matches `example.com`, `www.example.co.uk` and so on.
The first character of a line decides whether it is a link or a submission.
"""

import functools
import ipaddress
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote, urlsplit

from ordsmed.base.checks import regular
from ordsmed.base.errors import DataError
from ordsmed.base.files import checksum, survive_disk, writing
from ordsmed.base.keys import text_number
from ordsmed.base.say import Progress, many
from ordsmed.text import read
from ordsmed.text.text_hashes import SeenTexts
from ordsmed.web.hosts import in_ascii
from ordsmed.web.http import public

USUAL = Path(__file__).parent / "blacklists" / "usual.txt"
SHORT = 8  # characters: only `http://` and a letter
LONG = 4096


def _words(table: str) -> frozenset[str]:
    return frozenset(table.split())


EXTENSIONS = _words("""
    3gp 7z aac ai aiff apk asf avi avif bin bmp bz2 cab csv dat deb divx dmg doc docx djvu eps epub exe f4v flac flv
    gif gifv gz heic ico iso jar jpeg jpg js jpe json m3u m4a m4v mid midi mkv mobi mov mp2 mp3 mp4 mpeg mpg msi odp
    ods odt ogg ogv opus otf pdf pkg pls png pps ppt pptx ps psd rar raw rm rpm rtf svg swf tar tgz tif tiff torrent
    ttf wav webm webp wma wmv woff woff2 xls xlsx xml xz zip zst css
""")
TRACKING = re.compile(r"(?<![^&])(?:utm_[^=&]*|fbclid|gclid)(?=[=&]|$)", re.IGNORECASE)
KEPT = "%/:=&?~+!$,;'@()*"  # characters of path and query that are not escaped, in addition to letters and digits
PLAIN = re.compile(f"[A-Za-z0-9_.{re.escape(KEPT)}-]*")
ODD = re.compile("[\x00-\x20\x7f-\xa0\ufffd\u2028\u2029\ud800-\udfff]")  # never part of an address
NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_][a-z0-9_-]{0,62}(?:\.[a-z0-9_][a-z0-9_-]{0,62})*")
SECOND = _words("ac co com edu go gob gov mil ne net nom or org")  # before a country's two letters
LOCAL = (".localhost", ".local", ".internal", ".lan", ".home.arpa")


@dataclass(frozen=True)
class Rules:
    """Settings that select addresses."""

    score: int = 3
    "minimum points of a Reddit submission"
    over_18: bool = False
    "keep submissions marked as over 18"
    blacklist: list[str] = field(default_factory=lambda: ["usual"])
    "files with a domain per line (or a name without a dot: in any top-level domain); `usual` is the built-in file"
    patterns: list[str] = field(default_factory=list)
    "regular expressions; addresses that contain a match are left out"

    def __post_init__(self) -> None:
        regular("patterns", self.patterns)

    def rules_stamp(self) -> list[object]:
        """Return the rules with sizes and times of the blacklists."""
        lists = [checksum(path) if path == USUAL else read.stamp([path]) for path in _blacklists(self)]
        return [self.score, self.over_18, lists, self.patterns]


def addresses(paths: Sequence[Path], rules: Rules, left_out: Counter[str], private: bool = False) -> Iterator[str]:
    """Yield the addresses that pass the rules, normalized and in order. Count the others in `left_out`."""
    seen, fault = SeenTexts(), _fault_of(rules, private)
    for link in (link for path in paths for link in _links(path, rules, left_out)):
        url, host = normalized(link)
        reason = fault(link, url, host) or ("" if seen.add(number(url)) else "duplicate address")
        if reason:
            left_out[reason] += 1
        else:
            yield url


def fault_of(rules: Rules, private: bool = False) -> Callable[[str], str]:
    """Return a function that returns why the rules exclude the target of a redirect, or ""."""
    fault = _fault_of(rules, private)
    return lambda link: fault(link, *normalized(link))


def write_list(
    inputs: Sequence[str], name: str, rules: Rules, *, private: bool = False, anew: bool = False
) -> list[str]:
    """Write the addresses that pass the rules to a file, atomically. Return lines to print."""
    out = Path(name)
    if out.suffix.lower() in (".gz", ".bz2", ".xz", ".zst"):
        raise DataError(out, "found a compressed file", "a name such as addresses.txt", "compress it afterwards")
    if out.exists() and not (anew and out.is_file()):
        raise DataError(
            out,
            "exists",
            "",
            "give another file" + (", or add `--anew`, which moves this file aside" if out.is_file() else ""),
        )
    paths, left_out, count = read.files(inputs), Counter[str](), 0
    if out.exists() and any(path.samefile(out) for path in paths):
        raise DataError(out, "is one of the input lists", "another output file", "give another")
    with survive_disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with writing(out, keep=True) as file, Progress("addresses", 0, "") as progress:
        for url in addresses(paths, rules, left_out, private):
            file.write(f"{url}\n".encode("ascii"))
            count += 1
            progress.add(1)
    exclusions = ", ".join(f"{number_:,} {reason}" for reason, number_ in left_out.most_common())
    return [f"{out}: {many(count, 'address')}" + (f"; left out: {exclusions}" if exclusions else "")]


def normalized(link: str) -> tuple[str, str]:
    """Return the normalized address and its host, or two empty strings if it is not a web address."""
    if ODD.search(link) or len(link) > LONG:
        return "", ""
    try:
        parts = urlsplit(link)
        port, host = parts.port, _host(parts.hostname or "")
    except ValueError:
        return "", ""
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        return "", ""
    location = host if port in (None, 443 if parts.scheme == "https" else 80) else f"{host}:{port}"
    path, query = parts.path or "/", parts.query
    if TRACKING.search(query):
        query = "&".join(part for part in query.split("&") if not TRACKING.match(part))
    url = f"{path}?{query}" if query else path
    return f"{parts.scheme}://{location}{url if PLAIN.fullmatch(url) else quote(url, KEPT)}", host


def number(url: str) -> int:
    """Return a 64-bit hash of a normalized address. http and https are the same."""
    return text_number(url.partition("://")[2])


def is_private(host: str) -> bool:
    """Return whether the host's name alone shows that it is this machine or in a private network."""
    try:
        return not public(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return not public(ipaddress.ip_address(socket.inet_aton(host)))  # 127.1, 0x7f000001, 2130706433
    except OSError:
        return "." not in host or host.endswith(LOCAL)


def blacklisted(host: str, names: frozenset[str]) -> bool:
    """Return whether the list contains the host, a domain above it, or the middle label of its domain."""
    labels = host.split(".")
    return any(".".join(labels[i:]) in names for i in range(len(labels) - 1)) or _middle(labels) in names


def _fault_of(rules: Rules, private: bool) -> Callable[[str, str, str], str]:
    names = frozenset(name for path in _blacklists(rules) for name in _names(path))
    patterns = [re.compile(pattern) for pattern in rules.patterns]
    banned = functools.lru_cache(1 << 16)(lambda host: blacklisted(host, names))
    inner = functools.lru_cache(1 << 16)(is_private)

    def fault(link: str, url: str, host: str) -> str:
        if not url:
            return "malformed address"
        if banned(host):
            return "blacklisted domain"
        last = url.partition("?")[0].split("/", 3)[-1].lower().rpartition("/")[2]
        if (last.rpartition(".")[2] if "." in last else "") in EXTENSIONS:
            return "no page by its extension"
        if any(pattern.search(url) for pattern in patterns):
            return "pattern in address"
        if len(link) <= SHORT:
            return "short address"
        return "private host" if not private and inner(host) else ""

    return fault


def _blacklists(rules: Rules) -> list[Path]:
    return [path for name in rules.blacklist for path in ([USUAL] if name == "usual" else read.files(name))]


def _names(path: Path) -> Iterator[str]:
    for row, line in enumerate(read.lines(path), 1):
        name = line.partition("#")[0].strip().lower()
        if name and not NAME.fullmatch(name):
            raise DataError(f"{path}:{row}", f"found {name[:60]!r}", "a domain (example.com) or a name (example)")
        if name:
            yield name


def _links(path: Path, rules: Rules, left_out: Counter[str]) -> Iterator[str]:
    import msgspec

    decode = msgspec.json.Decoder(_Submission, strict=False).decode
    for line in read.lines(path, "replace"):
        line = line.strip()
        if not line.startswith("{"):
            if line and not line.startswith("#"):
                yield line
            continue
        try:
            record = decode(line)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            left_out["bad JSON"] += 1
            continue
        if reason := _reason_to_skip(record, rules):
            left_out[reason] += 1
        else:
            yield str(record["url"]).strip().replace("&amp;", "&")  # older dumps escape it


class _Submission(TypedDict, total=False):
    url: str | None
    score: int | None
    is_self: bool | None
    over_18: bool | None


def _reason_to_skip(submission: _Submission, rules: Rules) -> str:
    if submission.get("is_self"):
        return "self post"
    if (submission.get("score") or 0) < rules.score:
        return "low score"
    if submission.get("over_18") and not rules.over_18:
        return "over 18"
    return "" if submission.get("url") else "no address"


def _host(name: str) -> str:
    if ":" in name:
        return f"[{ipaddress.ip_address(name)}]"
    name = in_ascii(name).removesuffix(".")
    return name if NAME.fullmatch(name) else ""


def _middle(labels: list[str]) -> str:
    """Return the registered name of a domain: `example` for www.example.com and example.co.uk."""
    if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in SECOND:
        return labels[-3]
    return labels[-2] if len(labels) > 1 else ""
