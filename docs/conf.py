"""How Sphinx makes a site of these pages (`make site`); what it has, in which order, is read from README.md here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sphinx.search import languages
from sphinx.search.en import SearchEnglish

HERE = Path(__file__).parent
ROOT = HERE.parent
MAP = "docs/README"
START = "README.html"
IN_A_LINE = "From raw text to a language model that Hugging Face loads: one command and one recipe format."

project = "ordsmed"
extensions = ["myst_parser"]
root_doc = MAP
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "AGENTS.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/**.md",
]  # not what commands write
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


def map_of(text: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """The headings of a map, and below each its pages: a name, the place in the checkout, a line."""
    parts = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        links = re.findall(r"^- \[([^]]+)\]\(([^)]+)\.md\)(?:: )?(.*)$", body, re.MULTILINE)
        pages = [(name, str((HERE / link).resolve().relative_to(ROOT)), line) for name, link, line in links]
        parts.append((heading, pages))
    return parts


def below(page: str) -> list[str]:
    """The pages in a folder of a page's name."""
    return [f"{page}/{path.stem}" for path in sorted((ROOT / page).glob("*.md"))]


def navigate(app: Any, page: str, source: list[str]) -> None:
    """The map has its pages below it, and a page those in a folder of its name."""
    if page == MAP:
        trees = [(part, [f"{name} </{place}>" for name, place, _ in pages]) for part, pages in map_of(source[0])]
    else:
        trees = [("", [f"/{name}" for name in below(page)])] if below(page) else []
    for heading, pages in trees:
        options = [":hidden:", *([f":caption: {heading}"] if heading else [])]
        source[0] += "\n\n" + "\n".join(["```{toctree}", *options, "", *pages, "```"]) + "\n"


class FlagSearch(SearchEnglish):
    """English, where flags and settings are found however they are written: joint_head, --joint-head, joint head."""

    _word_re = re.compile(r"[^\W_]+")
    js_splitter_code = r"var splitQuery = (query) => query.split(/[^\p{Letter}\p{Number}]+/gu).filter((word) => word);"


def first_sentence(page: str) -> str:
    """What a page begins with, without marks."""
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8").split("\n\n")[1]
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)|[*`]", r"\1", " ".join(text.split()))
    return re.split(r"(?<=[.:]) ", plain)[0].rstrip(":")


def llms(text: str) -> str:
    """The map of the site for a language model (llmstxt.org): every page with a line."""
    lines = [f"# {project}", "", f"> {IN_A_LINE}"]
    for heading, pages in map_of(text):
        lines += ["", f"## {heading}", ""]
        for name, page, line in pages:
            lines.append(f"- [{name}]({page}.html): {line}")
            for inner in below(page):
                title = (ROOT / f"{inner}.md").read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
                lines.append(f"- [{title}]({inner}.html): {first_sentence(inner)}")
    return "\n".join(lines) + "\n"


TEXTS: dict[str, str] = {}  # page -> its sections without other marks, for what search results say of it


def collect(app: Any, page: str, template: str, context: dict[str, Any], document: Any) -> None:
    """Keep the text of a page."""
    if "body" in context and document is not None:
        text = re.sub(r'<a class="headerlink".*?</a>|<(?!/?section)[^>]*>', "", context["body"])
        TEXTS[page] = f'<div role="main">{text}</div>'


def finish(app: Any, error: Exception | None) -> None:
    """A browser that opens the folder begins at the first page, a language model at llms.txt; texts for the search."""
    if error is None:
        (Path(app.outdir) / "llms.txt").write_text(llms((ROOT / f"{MAP}.md").read_text("utf-8")), encoding="utf-8")
        script = f"var TEXTS = {json.dumps(TEXTS, ensure_ascii=False)};\n"
        (Path(app.outdir) / "_static/texts.js").write_text(script, encoding="utf-8")
        refresh = f'<meta http-equiv="refresh" content="0; url={START}">'
        text = f'<!doctype html><title>{project}</title>{refresh}<a href="{START}">{project}</a>\n'
        (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """What Sphinx asks for."""
    languages["en"] = FlagSearch
    app.connect("source-read", navigate)
    app.connect("html-page-context", collect)
    app.connect("build-finished", finish)
