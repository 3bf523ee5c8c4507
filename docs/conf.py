"""How Sphinx makes a site of these pages (`make site`); what it has, in which order, is read from README.md here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.search import languages
from sphinx.search.en import SearchEnglish

HERE = Path(__file__).parent
ROOT = HERE.parent
MAP = "docs/README"
START = "README.html"

project = "ordsmed"
extensions = ["myst_parser"]
root_doc = MAP
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**.md"]  # not what commands leave beside them
exclude_patterns = [".*", "build", "dist", "src", "tests", "work", "shared"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = project
html_theme_options = {"light_css_variables": {"code-font-size": "75%"}}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(HERE / "search.js")
html_copy_source = False
html_show_copyright = False


def trees_of(text: str) -> list[tuple[str, list[str]]]:
    """The headings of a map, and the pages under each, by its words for them and their place in the checkout."""
    found = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        links = re.findall(r"^- \[([^]]+)\]\(([^)]+)\.md\)", body, re.MULTILINE)
        found.append((heading, [f"{name} </{(HERE / link).resolve().relative_to(ROOT)}>" for name, link in links]))
    return found


def navigate(app: Any, page: str, source: list[str]) -> None:
    """The map has its pages below it, and a page those in a folder of its name."""
    if page == MAP:
        trees = trees_of(source[0])
    else:
        below = [f"/{page}/{path.stem}" for path in sorted((ROOT / page).glob("*.md"))]
        trees = [("", below)] if below else []
    for heading, pages in trees:
        options = [":hidden:", *([f":caption: {heading}"] if heading else [])]
        source[0] += "\n\n" + "\n".join(["```{toctree}", *options, "", *pages, "```"]) + "\n"


class FlagSearch(SearchEnglish):
    """English, where flags and settings are found however they are written: joint_head, --joint-head, joint head."""

    _word_re = re.compile(r"[^\W_]+")
    js_splitter_code = r"var splitQuery = (query) => query.split(/[^\p{Letter}\p{Number}]+/gu).filter((word) => word);"


def begin(app: Any, error: Exception | None) -> None:
    """A browser that is shown the folder begins at the first page."""
    if error is None:
        refresh = f'<meta http-equiv="refresh" content="0; url={START}">'
        text = f'<!doctype html><title>{project}</title>{refresh}<a href="{START}">{project}</a>\n'
        (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """What Sphinx asks for."""
    languages["en"] = FlagSearch
    app.connect("source-read", navigate)
    app.connect("build-finished", begin)
