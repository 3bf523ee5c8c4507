"""Answers, tested without a server: spans of tagged words, and the error form of unknown paths."""

from __future__ import annotations

from typing import Any

import pytest

from ordsmed.serve import app
from ordsmed.serve.protocols.huggingface import _entities
from ordsmed.serve.refusal import Refusal
from ordsmed.use.predict import Tagged

TEXT = "Anna  Li met Bo in Oslo"
SPANS = {
    "B-PER I-PER O B-PER O B-LOC": "Anna  Li=PER Bo=PER Oslo=LOC",
    "B-PER B-PER O I-PER O I-LOC": "Anna=PER Li=PER Bo=PER Oslo=LOC",
    "B-PER I-LOC I-LOC E-LOC S-LOC L-LOC": "Anna=PER Li met Bo=LOC in Oslo=LOC",
    "I-PER I-PER I-PER O O O": "Anna  Li met=PER",
    "foo-bar foo-bar O PER PER I-foo": "Anna  Li=foo-bar Bo in=PER Oslo=foo",
    "O O O O O O": "",
}


@pytest.mark.parametrize("tags", SPANS)
def test_words_of_a_span_are_joined(tags: str) -> None:
    words, scores = tuple(TEXT.split()), (0.9, 0.7, 0.5, 0.3, 0.2, 0.1)
    tagged = Tagged(words, tuple(tags.split()), scores)
    found = _entities(TEXT, tagged, True, ["O"])
    assert [(TEXT[each.start : each.end], each.entity) for each in found] == [(each.word, None) for each in found]
    assert " ".join(f"{each.word}={each.entity_group}" for each in found) == SPANS[tags]
    for each in found:
        inside = [score for word, score in zip(words, scores, strict=True) if word in each.word.split()]
        assert each.score == pytest.approx(sum(inside) / len(inside))
    single = _entities(TEXT, tagged, False, ["O"])
    named = [(word, tag, score) for word, tag, score in zip(words, tags.split(), scores, strict=True) if tag != "O"]
    assert [(each.word, each.entity, each.score) for each in single] == named


@pytest.mark.parametrize(
    ("ignored", "spans"),
    [([], "Anna Li_met Bo in Oslo"), (["O"], "Anna Bo Oslo"), (["PER", "O"], "Oslo"), (["O", "B-PER"], "Bo Oslo")],
)
def test_tags_and_kinds_may_be_ignored(ignored: list[str], spans: str) -> None:
    tagged = Tagged(tuple(TEXT.split()), ("B-PER", "O", "O", "I-PER", "O", "B-LOC"), (0.5,) * 6)
    assert " ".join(each.word.replace(" ", "_") for each in _entities(TEXT, tagged, True, ignored)) == spans


def test_a_word_behind_an_ignored_one_joins_no_other_span() -> None:
    found = _entities(
        "Oslo Anna Li", Tagged(("Oslo", "Anna", "Li"), ("B-LOC", "B-PER", "I-PER"), (0.5,) * 3), True, ["B-PER"]
    )
    assert [(each.word, each.entity_group) for each in found] == [("Oslo", "LOC"), ("Li", "PER")]


FORMS: dict[str, Any] = {
    "openai": lambda body: body["error"]["message"],
    "huggingface": lambda body: body["error"],
    "embeddings_inference": lambda body: body["error"],
    "ordsmed": lambda body: body["error"],
}


@pytest.mark.parametrize("name", FORMS)
def test_an_unknown_path_is_refused_in_the_form_of_its_neighbors(name: str) -> None:
    [protocol] = [each for each in app.protocols() if each.name == name]
    others = {endpoint.path for each in app.protocols() if each.name != name for endpoint in each.endpoints}
    for endpoint in protocol.endpoints:
        if endpoint.path.count("/") > 1 and endpoint.path not in others:
            assert app._nearest(f"{endpoint.path}/more").name == name
    assert FORMS[name](protocol.failure(Refusal("unknown", "there is no GET /x")).body)
