"""A server answers the clients that exist with what `ordsmed.open` gives, to the last digit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

import ordsmed
from kit.served import Running, running


@pytest.fixture(scope="module")
def served(tiny_run: Any) -> Iterator[Running]:
    with running({"bert": tiny_run.bert, "gpt2": tiny_run.gpt2}) as server:
        yield server


@pytest.fixture(scope="module")
def bert(tiny_run: Any) -> ordsmed.OpenModel:
    return ordsmed.open(tiny_run.bert, device="cpu")


def test_it_says_what_it_serves(served: Running) -> None:
    described = httpx.get(served.url).json()
    assert [(model["name"], model["can"]) for model in described["models"]] == [
        ("bert", ["fill", "generate", "score", "embed"]), ("gpt2", ["generate", "score", "embed"]),
    ]  # fmt: skip
    assert {"/fill-mask", "/v1/embeddings", "/health"} <= set(described["paths"])
    assert httpx.get(f"{served.url}/health").json() == {"status": "ok"}


def test_masks_are_filled_as_from_python(served: Running, bert: ordsmed.OpenModel) -> None:
    answer = httpx.post(f"{served.url}/fill-mask", json={"inputs": "the [MASK] fox", "parameters": {"top_k": 3}}).json()
    guesses = bert.fill("the [MASK] fox", best=3).masks[0]
    assert [(each["score"], each["token_str"], each["token"]) for each in answer] == [
        (guess.probability, guess.text, guess.token) for guess in guesses
    ]
    assert answer[0]["sequence"].startswith("the ")
    assert "[MASK]" not in answer[0]["sequence"]


def test_embeddings_are_of_unit_length(served: Running, bert: ordsmed.OpenModel) -> None:
    answer = httpx.post(f"{served.url}/v1/embeddings", json={"model": "bert", "input": ["the fox", "a gate"]}).json()
    for each, text in zip(answer["data"], ["the fox", "a gate"], strict=True):
        vector = bert.embed(["the fox", "a gate"], of="sentences")[each["index"]].vectors
        assert np.allclose(each["embedding"], vector / np.linalg.norm(vector), atol=1e-7), text
