"""The page at / in a real browser: every view, the equivalent Python lines, and no request to other hosts."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import ordsmed
from kit import browser as kit_browser
from kit.browser import Browser
from kit.served import Running, running
from kit.task_files import task_files
from kit.task_models import task_models
from ordsmed.base.menu import PACKAGE_ROOT

EVIL = "<img src=x onerror=\"document.title='broken in'\">"
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
TOKEN = "a-long-secret"


@pytest.fixture(scope="module")
def pages(tiny_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of two runs and of models fine-tuned for each task."""
    tasks = task_models(task_files(tmp_path_factory.mktemp("served") / "tasks", dev=3))
    names = ("classify", "pairs", "number", "tag", "answer")
    texts, index = (tmp_path_factory.mktemp("index") / name for name in ("texts.txt", "index"))
    texts.write_text(f"the old {EVIL} is here\n\nsomething else\n")
    ordsmed.index(tiny_run.bert, texts, index)
    models = {"bert": tiny_run.bert, "gpt2": tiny_run.gpt2, **{name: tasks[name] for name in names}}
    with running(models, indexes=[f"mine={index}"], checkpoints=True) as served:
        yield served


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    if missing := kit_browser.absent():
        pytest.skip(missing)
    with kit_browser.browser() as opened:
        yield opened


@pytest.fixture
def page(window: Browser, pages: Running) -> Browser:
    """Open the page again, with the light theme and a desktop's width."""
    window.resize(1000, 900)
    window.scheme("light")
    window.open("about:blank")
    window.log("browser"), window.requests()
    window.open(pages.url)
    window.until("return document.querySelector('#form button')")
    return window


def ask(page: Browser, view: str, *models: str, **fields: Any) -> str:
    """What is answered in a view, as text."""
    page.run("location.hash = arguments[0].map(encodeURIComponent).join('&')", [view, *models])
    page.until("return document.querySelector('[aria-current]').hash === location.hash")
    for name, value in fields.items():
        page.write(f"[name={name}]", str(value))
    page.click("button.main")
    return answered(page)


def answered(page: Browser) -> str:
    results = "document.querySelector('#results')"
    page.until(f"return {results}.ariaBusy === 'false' && {results}.children.length")
    return str(page.run(f"return {results}.innerText"))


def lines(page: Browser) -> dict[str, str]:
    """Those that ask the same, by their names."""
    script = """return [...document.querySelectorAll(".code")].map(
        one => [one.querySelector("figcaption").firstChild.data, one.querySelector("pre").textContent])"""
    return dict(page.run(script))


def printed(program: str) -> str:
    """What lines of Python say."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    return out.getvalue()


def shelled(command: str) -> list[str]:
    """What lines of a shell say, or nothing where curl is not here."""
    if shutil.which("curl") is None:
        return []
    done = subprocess.run(
        ["sh", "-c", command.replace("curl ", "curl -sS ")], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def near(pages: Running, name: str) -> ordsmed.OpenModel:
    return pages.service.models.by_name[name].model


# What the server gives


def test_browsers_get_the_page_and_programs_what_they_got(pages: Running) -> None:
    shown = httpx.get(pages.url, headers=HTML)
    assert shown.headers["content-type"].startswith("text/html")
    assert (shown.headers["cache-control"], shown.headers["vary"]) == ("no-cache", "accept")
    for header in ({}, {"accept": "application/json"}, {"accept": "application/json, text/html"}):
        assert [model["name"] for model in httpx.get(pages.url, headers=header).json()["models"]][:2] == [
            "bert",
            "gpt2",
        ]
    assert httpx.get(f"{pages.url}/bert", headers=HTML).json()["models"][0]["run"]
    assert httpx.get(f"{pages.url}/page/nothing.js").status_code == 404
    again = httpx.get(pages.url, headers={**HTML, "if-none-match": shown.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.get(pages.url, headers={**HTML, "host": "evil.example"}).status_code == 403
    assert httpx.get(f"{pages.url}/page/page.js", headers={"origin": "https://evil.example"}).status_code == 403


def test_the_page_is_small_and_names_nothing_outside() -> None:
    files = [path for path in (PACKAGE_ROOT / "serve/page").iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 60_000
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}, path  # the name of SVG
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|localStorage|\bstyle=", text), (
            path
        )
        assert max(map(len, text.splitlines())) <= 120, path


def test_a_run_tells_its_loss_and_no_paths(pages: Running, tiny_run: Any) -> None:
    told = httpx.get(f"{pages.url}/bert/run")
    facts = told.json()
    losses = [line["loss"] for line in ordsmed.TrainingRun(tiny_run.bert).metrics if "validation" not in line]
    assert facts["points"] == [[step, loss, loss, loss] for step, loss in enumerate(losses, 1)]
    assert facts["state"] == "done"
    assert facts["validations"]
    assert str(tiny_run.folder) not in told.text
    assert "/tmp" not in told.text
    assert httpx.get(f"{pages.url}/run").json()["name"] == "bert"  # the first that is one
    refused = httpx.get(f"{pages.url}/tag/run")
    assert (refused.status_code, refused.json()["place"]) == (400, "tag")


# Views


def test_gaps_are_filled(page: Browser, pages: Running) -> None:
    text = 'it\'s the [MASK] of "$HOME" [MASK]'
    said = ask(page, "fill", "bert", text=text, best=3)
    filled = near(pages, "bert").fill(text, best=3)
    for [best, *_] in filled.masks:
        share = f"{best.probability * 100:.{2 if best.probability < 0.0995 else 1}f} %"
        assert re.search(rf"^{re.escape(best.text)}\s+{share}$", said, re.MULTILINE), said
    assert page.run("return document.querySelectorAll('.bars tbody tr').length") == 6
    assert printed(lines(page)["Python"]).splitlines() == filled.lines
    for line in shelled(lines(page)["curl"]):
        assert json.loads(line)[0]["masks"][1][0]["text"] == filled.masks[1][0].text
    page.write("[name=text]", "none")
    page.click(".insert")
    assert page.run("return document.querySelector('[name=text]').value") == "none[MASK]"
    assert '"none[MASK]"' in lines(page)["curl"]


def test_texts_are_written_as_they_come_by_two_models(page: Browser, pages: Running) -> None:
    said = ask(page, "write", "gpt2", "bert", text="the", tokens=6, seed=3)
    how = {"tokens": 6, "seed": 3, "temperature": 0.8, "share": 0.95}
    for name in ("gpt2", "bert"):
        column = page.run(f"return document.querySelector('#results [aria-label={name}] .text').textContent")
        assert column == "the" + "".join(near(pages, name).stream("the", **how))
    assert said.count("as many as were asked for; seed 3") == 2
    assert printed(lines(page)["Python"]) == "".join(
        "".join(near(pages, name).stream("the", **how)) for name in ("gpt2", "bert")
    )
    assert [line for line in shelled(lines(page)["curl"]) if line == "data: [DONE]"] in ([], ["data: [DONE]"] * 2)


def test_writing_can_be_stopped(page: Browser, pages: Running) -> None:
    page.run("location.hash = 'write&bert'")
    page.until("return document.querySelector('[name=tokens]')")
    page.write("[name=tokens]", "4000")
    page.click("button.main")
    page.until("return document.querySelector('#results .text')?.textContent.length > 20")
    page.click("#stop")
    page.until("return document.querySelector('#status').textContent.startsWith('stopped')")
    page.until("return document.querySelector('#stop').hidden")
    assert page.run("return document.querySelector('#results .text').textContent.length") > 20
    kit_browser.wait_for(lambda: not pages.service.batcher.waiting)


def test_classes_tags_and_answers(page: Browser, pages: Running) -> None:
    said = ask(page, "classify", "classify", text="w7 w80 w90")
    best = near(pages, "classify").classify("w7 w80 w90")
    assert said.split()[1] == best.label
    assert best.label in printed(lines(page)["Python"])
    number = near(pages, "number").classify("w7 w80").number
    assert f"{number:.3f}" in ask(page, "classify", "number", text="w7 w80")
    ask(page, "classify", "pairs", text="w7 w80", second="w90")
    assert f"{near(pages, 'pairs').classify('w7 w80', 'w90').label}" in printed(lines(page)["Python"])
    text = "w7  w80 w90 😀 w3 w7"
    ask(page, "tag", "tag", text=text)
    tagged = near(pages, "tag").tag(text)
    marks = page.run("return [...document.querySelectorAll('mark')].map(mark => mark.firstChild.data)")
    assert "".join("".join(marks).split()) == "".join(
        word for word, tag in zip(tagged.words, tagged.tags, strict=True) if tag != "O"
    )
    assert str(next(zip(tagged.words, tagged.tags, strict=True))) in printed(lines(page)["Python"])
    context = "😀 w1 w70 w3 w90 w91 w4"
    ask(page, "answer", "answer", question="w70", context=context)
    found = near(pages, "answer").answer("w70", context)
    assert page.run("return document.querySelector('mark').textContent") == found.text
    assert printed(lines(page)["Python"]) == f"{found.text} {found.probability}\n"


def test_tags_of_words_are_spans(page: Browser) -> None:
    script = """const [tags, labels] = arguments, words = "Anna Berg was 😀 in Bergen Norway".split(" ");
        return import("./page/views.js").then(({views}) => [...views.tag.show([{words, tags, probabilities: words.map(
            () => 0.5)}], {text: words.join("  ")}, {}, {labels}).querySelectorAll("mark")].map(
            mark => [mark.firstChild.data, mark.lastChild.textContent, mark.className, mark.title]))"""
    iob = page.run(
        script, ["B-PER", "I-PER", "O", "O", "O", "B-LOC", "B-LOC"], ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    )
    assert iob == [
        ["Anna  Berg", "PER", "c0", "PER: 50.0 %"],
        ["Bergen", "LOC", "c1", "LOC: 50.0 %"],
        ["Norway", "LOC", "c1", "LOC: 50.0 %"],
    ]
    assert page.run(script, ["O"] * 7, ["O"]) == []
    plain = page.run(script, ["NOUN", "NOUN", "VERB", "O", "O", "NOUN", "NOUN"], ["NOUN", "VERB"])
    assert [row[0] for row in plain] == ["Anna", "Berg", "was", "Bergen", "Norway"]


def test_surprisal_is_colored_by_words_and_by_tokens(page: Browser, pages: Running) -> None:
    text = "the default, naïve 😀 value"
    said = ask(page, "surprisal", "bert", "gpt2", text=text)
    for name in ("bert", "gpt2"):
        scored = near(pages, name).score(text)
        parts = f"document.querySelectorAll('#results [aria-label={name}] .part')"
        for chosen, wanted in (("words", scored.words), ("tokens", scored.tokens)):
            page.write("[name=parts]", chosen)
            titles = page.run(f"return [...{parts}].map(one => one.title)")
            assert titles == ["not scored" if part.bits is None else f"{part.bits:.1f} bits" for part in wanted]
            script = f"""return [...{parts}[0].closest("p").childNodes].map(
                node => node.data ?? node.firstChild.data).join("")"""
            shown = page.run(script)
            assert shown.replace("⋯", "") == text
    assert "pseudo-perplexity" in said
    assert str(near(pages, "gpt2").score(text).words[1]) in printed(lines(page)["Python"])
    for line in shelled(lines(page)["curl"]):
        assert '"log_likelihood"' in line


def test_surprisal_over_the_checkpoints_of_a_run(page: Browser, pages: Running) -> None:
    told = {model["name"]: model["checkpoints"] for model in httpx.get(pages.url).json()["models"]}
    assert (told["bert"], told["gpt2"]) == (True, True)
    page.run("location.hash = 'surprisal&bert'")
    page.until("return document.querySelector('[name=steps]')")
    page.click("[name=steps]")
    ask(page, "surprisal", "bert", text="the default value")
    script = "return [...document.querySelectorAll('#results tbody tr')].map(one => one.innerText.split(/\\s+/))"
    rows = page.run(script)
    kept = pages.service.models.by_name["bert"].at_steps("all")
    wanted = [(each.model.step, each.model.score("the default value").log_likelihood) for each in kept]
    assert len(rows) == len(wanted) >= 2
    for (step, shown), (step_wanted, log) in zip(rows, wanted, strict=True):
        assert (int(step), float(shown.replace(",", ""))) == (step_wanted, pytest.approx(log, rel=1e-3))
    assert "at_steps()" in lines(page)["Python"]


def test_pairs_and_neighbors(page: Browser, pages: Running) -> None:
    texts = ["the value is set", "the set value is"]
    said = ask(page, "pairs", "gpt2", text="\n".join(texts))
    good, bad = near(pages, "gpt2").score(texts)
    right = good.log_likelihood > bad.log_likelihood
    assert said.startswith(f"{right:d} of 1 right")
    assert printed(lines(page)["Python"]) == f"{right} {texts[0]} {texts[1]}\n"
    said = ask(page, "pairs", "gpt2", text="one line alone")
    assert said == "text: found 1 line; wanted two for each pair"
    assert ask(page, "neighbors", "bert", first="it", rest=" \n\n").startswith("sentences: found none; wanted")
    ask(page, "neighbors", "bert", first="the value", rest="a key\nthe value\n\nit raises")
    rows = page.run("return [...document.querySelectorAll('#results tbody tr')].map(row => row.innerText.split('\\t'))")
    assert rows[0] == ["the value", "1.0000"]
    cosines = [float(word) for word in re.findall(r"-?\d\.\d*", printed(lines(page)["Python"]))]
    assert [float(value) for _, value in rows] == pytest.approx(sorted(cosines, reverse=True), abs=1e-4)


def test_the_loss_of_runs_is_drawn(page: Browser, pages: Running) -> None:
    page.run("location.hash = 'training&bert&gpt2'")
    page.until("return document.querySelector('.chart path.line.c1')")
    said = answered(page)
    facts = json.loads(printed(lines(page)["Python"]).splitlines()[0].replace("'", '"').replace("None", "null"))
    assert facts["summary"] in said
    described = page.run("return document.querySelector('.chart [role=img]').ariaLabel")
    assert f"{facts['points'][-1][2]:.4g} at step {facts['points'][-1][0]:g}" in described
    assert page.run("return document.querySelectorAll('.chart path.dots.c0').length") == len(facts["validations"])


# What holds of all of it


def test_what_others_wrote_stays_text(page: Browser, pages: Running) -> None:
    said = ask(page, "surprisal", "bert", text=f"{EVIL} the")
    assert "<img" in said
    assert "onerror" in ask(page, "neighbors", "bert", first="it", rest=EVIL)
    refused = ask(page, "fill", "bert", text=EVIL)
    assert "has no mask; wanted" in refused
    assert EVIL[:20] in refused
    ask(page, "write", "gpt2", text=EVIL, tokens=2)
    assert page.run("return [document.querySelectorAll('img').length, document.title]") == [0, "Write: ordsmed"]
    with pytest.raises(AssertionError, match="TrustedHTML"):
        page.run("document.body.innerHTML = arguments[0]", EVIL)


def test_an_index_is_searched_by_the_model_that_made_it(page: Browser) -> None:
    found = ask(page, "search", "bert", question="the old one", k=1)
    assert f"the old {EVIL} is here" in found
    assert "something else" not in found


def test_nothing_leaves_the_host_and_no_script_fails(page: Browser, pages: Running) -> None:
    views = page.run("return import('./page/views.js').then(found => Object.keys(found.views))")
    named = {"fill": "bert", "write": "gpt2", "classify": "classify", "tag": "tag", "answer": "answer"}
    for view in views:
        ask(page, view, named.get(view, "bert"))
    sent = page.requests()
    assert len(sent) > len(views) + 5
    assert {url for url in sent if not url.startswith(pages.url)} == set()
    assert [entry["message"] for entry in page.log("browser")] == []


def test_on_a_telephone_nothing_is_wider_than_the_screen_and_dark_is_dark(page: Browser) -> None:
    page.resize(360, 740)
    page.scheme("dark")
    wide = " ".join(["word"] * 30) + "\n" + "long" * 60
    for view, model, fields in (
        ("fill", "bert", {"text": f"{wide} [MASK]"}),
        ("write", "gpt2", {"text": wide, "tokens": 3}),
        ("surprisal", "bert&gpt2", {"text": "the default value is set"}),
        ("tag", "tag", {"text": "w80 w90 w7"}),
        ("training", "bert&gpt2", {}),
        ("neighbors", "bert", {"first": "it", "rest": wide}),
    ):
        ask(page, view, *model.split("&"), **fields)
        assert page.run("return document.documentElement.scrollWidth") <= 360, view
    colors = page.run("const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]")
    (paper, ink) = (sum(map(int, re.findall(r"\d+", color))) for color in colors)
    assert paper < 150 < 600 < ink


def test_a_keyboard_is_enough(page: Browser) -> None:
    page.press("Tab")
    assert page.run("return document.activeElement.className") == "skip"
    for _ in range(12):
        page.press("Tab")
        if page.run("return document.activeElement.textContent") == "Surprisal":
            break
    page.press("Enter")
    page.until("return document.querySelector('[aria-current]').textContent === 'Surprisal'")
    assert page.run("return document.activeElement.textContent") == "Surprisal"  # and continues from there
    while page.run("return document.activeElement.name") != "text":
        page.press("Tab")
    page.press("Control", "Enter")
    assert "bits a token" in answered(page)
    unlabelled = (
        "return [...document.querySelectorAll('input,select,textarea')].filter(one => !one.labels.length).length"
    )
    assert page.run(unlabelled) == 0
    outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_a_token_is_asked_for_and_kept_nowhere(window: Browser, tiny_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ordsmed.serve.app import Access

    with running({"bërt's": tiny_run.bert}, access=Access(token=TOKEN)) as served:
        window.open(served.url)
        window.until("return !document.querySelector('#entry').hidden")
        assert window.run("return document.activeElement.id") == "token"
        for word, script in (
            ("wrong-secret", "return document.querySelector('#about').innerText.includes('wrong')"),
            (TOKEN, "return document.querySelector('#entry').hidden && document.querySelector('#form button')"),
        ):
            window.write("#token", word)
            window.press("Enter")
            window.until(script)
        ask(window, "fill", "bërt's", text="a [MASK]", best=1)
        assert "ORDSMED_TOKEN" in lines(window)["curl"]
        monkeypatch.setenv("ORDSMED_TOKEN", TOKEN)
        said = printed(lines(window)["Python"])
        assert said.startswith("a [MASK]")
        for line in shelled(lines(window)["curl"]):
            assert json.loads(line)[0]["text"] == "a [MASK]"
        page = window.run("""return document.documentElement.outerHTML
            + JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])""")
        assert TOKEN not in page
        window.open("about:blank")
