"""The pages as a site: each is on the map, all links lead somewhere, and nothing is asked of the network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs/README.md"
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "AGENTS", "CHANGELOG", "SECURITY")),
    *sorted(ROOT.glob("docs/**/*.md")),
]


class Links(HTMLParser):
    """What a page loads, where it leads, and the places within it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: set[str] = set()
        self.leads: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {key: value or "" for key, value in attrs}
        self.places |= {own[key] for key in ("id", "name") if key in own}
        if "src" in own:
            self.loaded.add(own["src"])
        if "href" in own:
            (self.leads if tag == "a" else self.loaded).add(own["href"])


def built(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What `make site` does."""
    for module in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(module)
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    words = re.findall(r"bin/python (-m sphinx .*) build/site$", make.replace("$(BIN)", "bin"), re.MULTILINE)[0].split()
    return subprocess.run([sys.executable, *words, str(out)], cwd=source, capture_output=True, text=True)


def test_every_page_is_on_the_map() -> None:
    """Once; a page in a folder of another page's name belongs to that one."""
    links = re.findall(r"^- \[[^]]+\]\(([^)]+)\)", MAP.read_text(encoding="utf-8"), re.MULTILINE)
    named = sorted((MAP.parent / link).resolve() for link in links)
    own = sorted(path for path in PAGES if path != MAP and not path.parent.with_suffix(".md").exists())
    assert named == own, "docs/README.md names every page once"


@pytest.mark.long
def test_the_site(tmp_path: Path) -> None:
    made = built(ROOT, tmp_path / "out")
    assert (made.returncode, made.stderr) == (0, "")
    out = tmp_path / "out"
    for page in PAGES:
        assert (out / page.relative_to(ROOT)).with_suffix(".html").is_file()
    pages = {path: Links(path) for path in sorted(out.rglob("*.html"))}
    for path, page in pages.items():
        assert [link for link in page.loaded if urlsplit(link).netloc] == [], f"{path.name} loads from elsewhere"
        for link in page.loaded | page.leads:
            there = urlsplit(link)
            if there.scheme or link == "#":
                continue
            target = (path.parent / unquote(there.path)).resolve() if there.path else path
            assert target.exists(), f"{path.name}: {link}"
            if there.fragment and target in pages:
                assert unquote(there.fragment) in pages[target].places, f"{path.name}: {link}"
    listed = re.findall(r"^- \[.+\]\((.+)\): .{10,}$", (out / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(
        page.relative_to(ROOT).with_suffix(".html").as_posix() for page in PAGES if page != MAP
    )
    for path in [*out.rglob("*.css"), *out.rglob("*.js")]:
        asked = re.findall(r"url\(['\"]?(?:https?:)?//|@import", path.read_text(encoding="utf-8"))
        assert asked == [], f"{path.name} loads from elsewhere"
    assert "searchindex.js" in " ".join(pages[out / "search.html"].loaded)
    index = json.loads((out / "searchindex.js").read_text(encoding="utf-8").removeprefix("Search.setIndex(")[:-1])
    assert [term for term in index["terms"] if "_" in term] == [], "joint_head and --joint-head are the same words"
    assert "\nvar splitQuery" in (out / "_static/language_data.js").read_text(encoding="utf-8"), "a const is an error"
    texts = json.loads((out / "_static/texts.js").read_text(encoding="utf-8").removeprefix("var TEXTS = ")[:-2])
    assert {*texts} == {page.relative_to(ROOT).with_suffix("").as_posix() for page in PAGES}, "a result has an excerpt"
    assert '<section id="a-model">' in texts["docs/daily-use"]
    assert '"_static/texts.js"' in (out / "_static/language_data.js").read_text(encoding="utf-8")
    nvidia = index["docnames"].index("docs/coming-from/nvidia")
    assert all(nvidia in index["terms"][word] for word in ("joint", "head"))
    assert "README.html" in pages[out / "index.html"].leads
    navigation = pages[out / "README.html"].leads
    assert {"docs/daily-use.html", "docs/coming-from/google.html", "docs/design/README.html"} <= navigation


@pytest.mark.long
def test_broken_links_fail(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs/static", tmp_path / "docs/static")
    for name in ("conf.py", "search.js"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs")
    (tmp_path / "docs/README.md").write_text("# Map\n\n## Part\n\n- [a page](page.md)\n", encoding="utf-8")
    right, wrong = "[b](#page) [c](README.md#part)", "[a](away.md) [b](#nothing) [c](README.md#nobody)"
    (tmp_path / "docs/page.md").write_text(f"# Page\n\n{right} {wrong}\n", encoding="utf-8")
    (tmp_path / "runs.md").write_text("# Of `ordsmed report --markdown`\n", encoding="utf-8")
    (tmp_path / "docs/alone.md").write_text("# On no map\n", encoding="utf-8")
    made = built(tmp_path, tmp_path / "out")
    assert made.returncode == 1
    assert all(name in made.stderr for name in ("'away.md'", "'nothing'", "'nobody'", "alone.md"))
    assert made.stderr.count("WARNING") == 4, made.stderr
