"""Folders of sentence-transformers opened as models: vectors as their modules say, and what is not known refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ordsmed
from ordsmed.api.model import open as open_model
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.learn.task import Embedding, LateInteraction, Reranking, TextVectors
from ordsmed.learn.tasks.pairs import TextPairs
from ordsmed.nn.models import bert
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.weights.export import export
from ordsmed.weights.formats.sentence_transformers import SentenceTransformers
from ordsmed.weights.importing import take_over
from ordsmed.weights.origin import Origin
from ordsmed.weights.sentence_modules import vectors_of

TEXTS = ["the old cat sat .", "a dog", "it is so " * 30]
TYPES = "sentence_transformers.models."
COMPARED = "config_sentence_transformers.json"


def vectors(folder: Path, prompt: str = "", texts: list[str] = TEXTS) -> NDArray[Any]:
    model = open_model(folder, device="cpu")
    return np.array([found.vectors for found in model.embed(texts, of="sentences", prompt=prompt)])


def told(path: Path, **changes: Any) -> None:
    """A table of a folder with other values; None takes a key away."""
    table = (json.loads(path.read_text()) if path.exists() else {}) | changes
    path.write_text(json.dumps({key: value for key, value in table.items() if value is not None}))


def of_modules(folder: Path, *kinds: str) -> None:
    """Only these modules."""
    rows = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": TYPES + kind}
        for n, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(rows))


@pytest.fixture(scope="module")
def made(tiny_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    asked = ["query=the old ", "passage=it is ", "length=20"]
    return export(tiny_run.bert, tmp_path_factory.mktemp("made") / "out", to="sentence-transformers", overrides=asked)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "theirs"))


@pytest.mark.parametrize("pool", ["mean", "first", "last"])
def test_vectors_are_pooled_cut_and_prompted_as_the_folder_says(tiny_run: Any, tmp_path: Path, pool: str) -> None:
    asked = [f"pool={pool}", "query=the old ", "length=20", "normalize=false"]
    out = export(tiny_run.bert, tmp_path / "out", to="sentence-transformers", overrides=asked)
    of_run = open_model(tiny_run.bert, device="cpu")
    pooled = {"pool": pool}
    for prompt, before in (("", ""), ("query", "the old "), ("passage", "")):
        wanted = [found.vectors for found in of_run.embed([before + t for t in TEXTS[:2]], of="sentences", **pooled)]
        assert vectors(out, prompt, TEXTS[:2]) == pytest.approx(np.array(wanted), abs=1e-5)
    [short, long] = vectors(out, texts=["it is so it is so", "it is so " * 30])
    assert long == pytest.approx(vectors(out, texts=["it is so " * 6])[0], abs=1e-5)  # 18 and two signs
    assert np.abs(short - long).max() > 1e-3


def test_an_index_reads_and_compares_as_the_folder_says(folder: Path) -> None:
    encoder = TextEncoder(open_model(folder, device="cpu").trained)
    assert (encoder.way, encoder.unit) == ("as trained", True)
    [asked] = encoder.vectors(["a dog"], "query")
    assert asked == pytest.approx(vectors(folder, texts=["the old a dog"]), abs=1e-5)
    key = encoder.key()
    of_modules(folder, "Transformer", "Pooling")  # no vector of length 1 any more, but compared by the cosine
    told(folder / COMPARED, similarity_fn_name=None)  # which is meant where nothing is said
    encoder = TextEncoder(open_model(folder, device="cpu").trained)
    assert encoder.unit
    assert not np.allclose(np.linalg.norm(vectors(folder), axis=1), 1, atol=0.1)
    assert encoder.key() != key
    told(folder / COMPARED, similarity_fn_name="dot")
    assert not TextEncoder(open_model(folder, device="cpu").trained).unit


def test_a_folder_becomes_an_import_and_an_export_with_its_vectors(folder: Path, tmp_path: Path) -> None:
    of_modules(folder, "Transformer", "Pooling")
    told(folder / COMPARED, similarity_fn_name="cosine")
    take_over(folder, tmp_path / "ours")
    again = export(folder, tmp_path / "again", to="sentence-transformers")
    for place in (tmp_path / "ours", again):
        assert vectors(place, "query") == pytest.approx(vectors(folder, "query"), abs=1e-6)
    for place in (folder, again):
        assert vectors_of(place, 999) == {
            "pool": "mean",
            "normalize": False,
            "similarity": "cosine",
            "query": "the old ",
            "passage": "it is ",
            "length": 20,
        }


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode": ["lasttoken"]}, "last"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, "last"),
        ({"pooling_mode_mean_tokens": False}, "mean"),
        ({}, "mean"),
    ],
)
def test_pools_are_named_in_two_ways(folder: Path, pooling: dict[str, Any], pool: str) -> None:
    told(folder / "1_Pooling/config.json", **pooling)
    found = vectors_of(folder, 999)
    assert found
    assert found["pool"] == pool


DAMAGE = [
    (["Transformer", "Pooling", "Dense"], "", {}, r"modules\.json: found modules Dense; wanted Transformer, Pooling"),
    (["Transformer", "WordWeights", "Pooling"], "", {}, r"found modules WordWeights; wanted Transformer, Pooling"),
    (["Pooling", "Normalize"], "", {}, r"found modules Pooling, Normalize; wanted Transformer, Pooling, Normalize; `"),
    ([], "1_Pooling/config.json", {"pooling_mode_max_tokens": True}, r'pooling_mode: found \["mean", "max"\]; wanted'),
    ([], "1_Pooling/config.json", {"pooling_mode": "weightedmean"}, r"pooling_mode: found \[\"weightedmean\"\]"),
    ([], "1_Pooling/config.json", {"include_prompt": False}, r"include_prompt: found False; wanted True"),
    ([], "2_Normalize/config.json", {"module_input_name": "x"}, r"module_input_name: found x; wanted sentence_embedd"),
    ([], COMPARED, {"similarity_fn_name": "euclidean"}, r"similarity_fn_name: found euclidean; wanted cosine or dot"),
    ([], COMPARED, {"prompts": {"query": 3}}, r"prompts: found 3 as query; wanted a text"),
    ([], COMPARED, {"prompts": [3]}, r"prompts: found \[3\]; wanted a table"),
    ([], "sentence_bert_config.json", {"max_seq_length": "x"}, r"max_seq_length: found x; wanted a whole number"),
    ([], "sentence_bert_config.json", {"query_length": 8}, r"query_length: found 8; wanted None"),
]


@pytest.mark.parametrize(("modules", "file", "changes", "message"), DAMAGE)
def test_what_is_not_computed_here_is_refused(
    folder: Path, modules: list[str], file: str, changes: dict[str, Any], message: str
) -> None:
    if modules:
        of_modules(folder, *modules)
    if file:
        told(folder / file, **changes)
    with pytest.raises(OrdsmedError, match=message) as caught:
        open_model(folder, device="cpu")
    assert len(str(caught.value).splitlines()) == 1


def test_large_letters_are_small_ones_where_both_say_so(folder: Path) -> None:
    told(folder / "sentence_bert_config.json", do_lower_case=True)
    assert vectors(folder).any()  # the tokenizer's letters are small in any case
    described = json.loads((folder / "tokenizer.json").read_text())
    described["normalizer"] = None
    (folder / "tokenizer.json").write_text(json.dumps(described))
    told(folder / "tokenizer_config.json", do_lower_case=False)
    with pytest.raises(OrdsmedError, match="do_lower_case: found True; wanted False"):
        open_model(folder, device="cpu")


def test_prompts_of_other_names_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = {"query": "the old ", "passage": "it is ", "cluster": "a ", "none": ""}
    told(folder / COMPARED, prompts=prompts, default_prompt_name="cluster")
    assert vectors(folder, "passage", ["dog"]) == pytest.approx(vectors(folder, texts=["it is dog"]), abs=1e-6)
    said = capsys.readouterr().err
    assert f"{COMPARED}: prompts cluster are not used; --prompt query and passage are" in said
    assert "without --prompt no prompt is put before a text, not even its default prompt cluster" in said


def test_a_training_takes_the_network_alone_and_says_so(
    folder: Path, tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = open_model(tiny_run.bert, device="cpu").trained
    bare = export(tiny_run.bert, tmp_path / "bare", to="huggingface")
    for name in ("config.json", "model.safetensors"):  # with the head that is trained further
        shutil.copy(bare / name, folder / name)
    of_modules(folder, "Transformer", "Pooling", "Dense", "Normalize")
    message = "only its network is used; Pooling, Dense, Normalize of modules.json are ignored, and its prompts que"
    Origin.of(folder).load_into(trained.objective, trained.tokenizer)
    assert message in capsys.readouterr().err
    (tmp_path / "pairs.jsonl").write_text('{"anchor": "a dog", "positive": "the old dog"}\n' * 8)
    data = {"task.train": [str(tmp_path / "pairs.jsonl")], "task.dev": [], "task.length": 32}
    ordsmed.finetune("pairs", init=folder, out=tmp_path / "tuned", steps=2, batch=4, **data)
    said = capsys.readouterr().err
    assert message in said
    assert "stays behind" not in said


def test_vectors_of_no_length_are_compared_by_their_cosine(tmp_path: Path) -> None:
    task = TextPairs(normalize=False, similarity="cosine", temperature=0.1)
    assert task.comparison == TextPairs(temperature=0.1).comparison
    assert task.comparison != TextPairs(normalize=False, temperature=0.1).comparison
    assert TextPairs(similarity="dot").comparison == TextPairs().comparison
    raw = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    found = task._vectors_of({"vector": raw})
    assert found == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))
    assert TextPairs(normalize=False)._vectors_of({"vector": raw}) is raw
    with pytest.raises(ValueError, match="similarity: found with sparse vectors; wanted it with dense vectors only"):
        TextPairs(head="sparse", similarity="dot")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("run", ["bert", "gpt2"])
@pytest.mark.parametrize("modules", [("Transformer", "Pooling"), ("Transformer", "Pooling", "Normalize")])
def test_vectors_are_those_of_sentence_transformers(
    tiny_run: Any, tmp_path: Path, run: str, modules: tuple[str, ...]
) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: pip install -e .[dev]")
    from sentence_transformers import SentenceTransformer

    for pool in ("mean", "last"):
        asked = [f"pool={pool}", "query=the old ", "length=20"]
        out = export(getattr(tiny_run, run), tmp_path / pool, to="sentence-transformers", overrides=asked)
        of_modules(out, *modules)
        told(out / COMPARED, similarity_fn_name=None)
        theirs = SentenceTransformer(str(out), device="cpu")
        theirs.save(str(tmp_path / f"{pool} again"))
        for place in (out, tmp_path / f"{pool} again"):  # as it writes its folders itself, too
            ours = open_model(place, device="cpu")
            assert TextEncoder(ours.trained).unit == (theirs.similarity_fn_name == "cosine")
            encoders = (theirs.encode, ""), (theirs.encode_query, "query"), (theirs.encode_document, "passage")
            for encode, prompt in encoders:
                assert vectors(place, prompt) == pytest.approx(encode(TEXTS), abs=1e-5)


VALUES = {"query": "q: ", "passage": "p: ", "length": 8, "pool": "last", "normalize": False, "similarity": "dot"}
TAKEN = {  # settings that a folder may be given, by what its model learned of sentences
    Reranking: (),
    LateInteraction: ("query", "passage"),
    "sparse": ("query", "passage", "length"),
    "dense": (*VALUES,),
    None: (*VALUES,),
}


@pytest.mark.parametrize("learned", TAKEN, ids=str)
def test_each_setting_that_a_folder_cannot_have_is_refused(learned: Any, tmp_path: Path) -> None:
    base = learned if isinstance(learned, type) else Embedding if learned else object
    objective: Any = type("Learned", (base,), {"shifted": False})()
    objective.vectors = TextVectors("mean", True, {"query": "", "passage": ""}, 32, sparse=learned == "sparse")
    trained = SimpleNamespace(objective=objective, settings=bert.Bert(), kind="bert", causal=False, folder=tmp_path)
    for name, value in VALUES.items():
        form = SentenceTransformers(**{name: value})
        if name in TAKEN[learned]:
            form.check(trained)  # type: ignore[arg-type]
        else:
            with pytest.raises(RecipeError, match=r"^--set: found"):
                form.check(trained)  # type: ignore[arg-type]
