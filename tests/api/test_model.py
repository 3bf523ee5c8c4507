"""What `ordsmed.open` gives says what the verbs say, of every kind of folder; what it cannot is refused in a line."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ordsmed
from kit.task_files import LABELS, task_files
from kit.task_models import task_models
from ordsmed import cli
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.measure.evaluation.score_cache import ScoreCache
from ordsmed.weights import weights
from ordsmed.weights.export import export

TEXT = "w7 w80 w90 w3"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return task_files(tmp_path_factory.mktemp("face"), dev=9)


@pytest.fixture(scope="module")
def tasks(data: Path) -> dict[str, Path]:
    return task_models(data)


def opened(folder: Path) -> ordsmed.OpenModel:
    return ordsmed.open(folder, device="cpu")


def test_it_says_what_it_is_and_can(tiny_run: Any, tasks: dict[str, Path]) -> None:
    model = ordsmed.open(str(tiny_run.bert), step=8, device="cpu")
    assert (model.folder, model.family, model.step, model.labels) == (tiny_run.bert, "bert", 8, ())
    assert repr(model) == f"<bert from {tiny_run.bert}, step 8: fill, generate, score, embed>"
    assert opened(tiny_run.gpt2).can == ("generate", "score", "embed")
    assert opened(tasks["tag"]).can == ("tag", "embed")
    assert opened(tasks["pairs"]).can == ("classify", "embed")
    assert opened(tasks["answer"]).can == ("answer", "embed")
    assert opened(tasks["classify"]).labels == LABELS
    assert repr(opened(tasks["tag"])) == f"<bert from {tasks['tag']}: tag, embed>"


def test_it_is_the_same_model_wherever_it_stands(
    tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = export(tiny_run.bert, tmp_path / "hub")
    moved = shutil.copytree(tiny_run.bert / "weights", tmp_path / "moved")
    monkeypatch.setenv("ORDSMED_MODELS", str(tmp_path / "models.toml"))
    (tmp_path / "models.toml").write_text('[names]\n"some/bert" = "hub"\n')
    wanted = opened(tiny_run.bert).fill("the [MASK] fox")
    for place in (hub, str(moved), "some/bert"):
        assert ordsmed.open(place, device="cpu").fill("the [MASK] fox") == wanted


def test_fill_is_that_of_the_verb(tiny_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["fill", str(tiny_run.bert), "the [MASK] fox", "a [MASK] [MASK]", "--best", "3"])
    filled = opened(tiny_run.bert).fill(["the [MASK] fox", "a [MASK] [MASK]"], best=3)
    assert "".join(f"{line}\n" for each in filled for line in each.lines) == capsys.readouterr().out
    alone = opened(tiny_run.bert).fill("the [MASK] fox", best=3).masks[0]
    assert [guess.text for guess in alone] == [guess.text for guess in filled[0].masks[0]]
    together = [guess.probability for guess in filled[0].masks[0]]
    assert [guess.probability for guess in alone] == pytest.approx(together, rel=1e-5)
    assert [len(mask) for mask in filled[1].masks] == [3, 3]
    assert filled[0].masks[0][0].probability > filled[0].masks[0][1].probability > 0
    assert opened(tiny_run.bert).fill([]) == []


def test_generate_is_that_of_the_verb(tiny_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = opened(tiny_run.gpt2)
    cli.main(["generate", str(tiny_run.gpt2), "the old", "", "--tokens", "6", "--best", "9", "--seed", "4"])
    texts = model.generate(["the old", ""], tokens=6, best=9, seed=4)
    assert "".join(f"{each.text}\n" for each in texts) == capsys.readouterr().out
    assert texts[0].text == f"the old{texts[0].continuation}"
    assert model.generate(tokens=6, best=9, seed=4) == texts[1]
    samples = model.generate("the old", tokens=6, best=9, seed=4, samples=2)
    assert samples[0] == texts[0]
    assert samples[1].sample == 1
    assert "".join(model.stream("the old", tokens=6, best=9, seed=4)) == texts[0].continuation
    assert model.generate(["the old", ""], max_new_tokens=6, top_k=9, seed=4) == texts
    with pytest.raises(RecipeError, match=r"generate: no option `topp`; wanted .*; did you mean `top_p`\?"):
        model.generate("the old", topp=0.9)  # type: ignore[call-overload]
    with pytest.raises(RecipeError, match="generate: `top_k` and `best` are the same option; wanted one of them"):
        model.generate("the old", top_k=3, best=3)
    masked = opened(tiny_run.bert)
    assert "[MASK]" not in masked.fill_all("the [MASK] [MASK] fox")
    assert masked.generate("the", tokens=3).tokens == 3


def test_embed_is_that_of_the_verb(tiny_run: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the old fox\n\nit mends\n")
    for form in ({}, {"of": "sentences", "layers": "0,-1"}):
        flags = [word for key, value in form.items() for word in (f"--{key}={value}",)]
        where = [str(tiny_run.bert), str(tmp_path / "in.txt"), str(tmp_path / "out.npz")]
        cli.main(["embed", *where, "--device", "cpu", "--anew", *flags])
        rows: Any = opened(tiny_run.bert).embed(["the old fox", "", "it mends"], **form)  # type: ignore[arg-type]
        with np.load(tmp_path / "out.npz") as file:
            assert [np.array_equal(row.vectors, file[f"{number}"]) for number, row in enumerate(rows)] == [True] * 3
        assert (rows[0].text, rows[0].words, rows[1].words) == ("the old fox", ("the", "old", "fox"), ())
    one = opened(tiny_run.bert).embed("it mends", of="sentences", layers=[0, -1])
    assert np.allclose(one.vectors, rows[2].vectors, atol=1e-6)
    assert opened(tiny_run.bert).embed("it", layers=-1).vectors.shape == (1, rows[0].vectors.shape[-1])
    assert opened(tiny_run.bert).embed([]) == []


@pytest.mark.parametrize("name", ["classify", "number"])
def test_classify_is_what_predict_writes(tasks: dict[str, Path], data: Path, tmp_path: Path, name: str) -> None:
    source = tmp_path / "texts.tsv"
    source.write_text("\n".join(line.split("\t")[0] for line in (data / "dev.tsv").read_text().splitlines()) + "\n")
    cli.main(["predict", str(tasks[name]), str(source), str(tmp_path / "out"), "--device", "cpu"])
    written = [line.split("\t") for line in (tmp_path / "out" / "predictions.tsv").read_text().splitlines()]
    texts = source.read_text().splitlines()[1:]
    said = opened(tasks[name]).classify(texts)
    assert [each.text for each in said] == texts
    if name == "number":
        assert [f"{each.number:.9g}" for each in said] == [row[1] for row in written[1:]]
        assert {(each.label, each.probability, len(each.probabilities)) for each in said} == {(None, None, 0)}
        return
    assert [each.label for each in said] == [row[1] for row in written[1:]]
    assert [[f"{share:.9g}" for share in each.probabilities.values()] for each in said] == [r[3:] for r in written[1:]]
    assert all(
        each.probability == each.probabilities[each.label or ""] == max(each.probabilities.values()) for each in said
    )
    assert opened(tasks[name]).classify(texts[0]).label == said[0].label


def test_files_are_judged_as_the_verbs_judge_them(
    tasks: dict[str, Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, dev = opened(tasks["classify"]), str(data / "dev.tsv")
    cli.main(["evaluate", str(tasks["classify"]), dev, "task.length=24", "--json", "--device", "cpu"])
    scores = json.loads(capsys.readouterr().out)
    assert model.evaluate(dev, length=24).scores == scores
    assert model.evaluate([dev], overrides=["task.length=24"]).scores == scores
    folder, known, lines = model.predict(dev, tmp_path / "out", scores=True, length=24)
    assert known == {name: value for name, value in scores.items() if name != "loss"}
    assert lines[0].startswith(f"{folder}: predictions.tsv of ")
    with pytest.raises(RecipeError, match="out: already exists; wanted a new folder"):
        model.predict([dev], tmp_path / "out")
    with pytest.raises(RecipeError, match=r"task\.rate=1`: unknown setting"):
        model.evaluate(dev, rate=1)


def test_a_probe_is_asked_as_the_verb_asks(
    tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts.txt").write_text("the old fox mends\nit mends the gate\n")
    run, texts, out = tiny_run.gpt2, str(tmp_path / "texts.txt"), str(tmp_path / "scores")
    where = ["--out", out, "--device", "cpu", "--json"]
    cli.main(["evaluate", str(run), "--probe", "perplexity", texts, "window=16", *where])
    told = json.loads(capsys.readouterr().out)
    cleared: list[ScoreCache] = []
    monkeypatch.setattr(ScoreCache, "clear", lambda kept: cleared.append(kept))
    opened(run).evaluate(texts, probe="perplexity", out=out, window=16)
    assert cleared == []
    judged = opened(run).evaluate(texts, probe="perplexity", out=out, window=16, anew=True)
    assert len(cleared) == 1
    assert judged.scores == told
    assert judged.lines[-1].endswith(".json: written")
    assert Path(judged.lines[-1].removesuffix(": written")).is_file()
    with pytest.raises(RecipeError, match=r"^--probe: found perplexit; wanted "):
        opened(run).evaluate(texts, probe="perplexit")
    with pytest.raises(RecipeError, match=r"^--probe perplexity: names no file"):
        opened(run).evaluate(probe="perplexity")


def test_vectors_of_a_file_are_those_of_its_lines(tiny_run: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the old fox\nit mends\n")
    model = opened(tiny_run.bert)
    line = model.embed_file(tmp_path / "in.txt", tmp_path / "out.npy", of="sentences", layers=-1)
    assert line.startswith(f"{tmp_path}/out.npy: 2 lines, 5 words; ")
    rows = model.embed(["the old fox", "it mends"], of="sentences", layers=-1)
    assert np.array_equal(np.load(tmp_path / "out.npy"), [row.vectors for row in rows])


def test_pairs_need_a_second_text_and_others_none(tasks: dict[str, Path]) -> None:
    pairs, alone = opened(tasks["pairs"]), opened(tasks["classify"])
    assert pairs.classify(["w1", "w90"], ["w80", "w3"])[1].label == pairs.classify("w90", "w3").label
    assert pairs.classify("w90", "w3") != pairs.classify("w3", "w90")
    with pytest.raises(RecipeError, match="classify: found 1 text and 0 second texts; wanted a second text for each"):
        pairs.classify("w90")
    with pytest.raises(RecipeError, match="found 2 texts and 1 second text; wanted a second text for each"):
        pairs.classify(["w90", "w1"], ["w2"])
    with pytest.raises(RecipeError, match="1 second text; wanted no second texts: the model did not learn pairs"):
        alone.classify("w90", "w2")
    assert alone.classify([]) == []


def test_tag_is_what_predict_writes(tasks: dict[str, Path], data: Path, tmp_path: Path) -> None:
    cli.main(["predict", str(tasks["tag"]), str(data / "dev.conll"), str(tmp_path / "out"), "--device", "cpu"])
    blocks = (tmp_path / "out" / "dev.conll").read_text().strip().split("\n\n")
    written = [[line.split() for line in block.splitlines()] for block in blocks]
    said = opened(tasks["tag"]).tag([" ".join(row[0] for row in block) for block in written])
    assert [list(zip(each.words, each.tags, strict=True)) for each in said] == [
        [(row[0], row[-1]) for row in block] for block in written
    ]
    assert opened(tasks["tag"]).tag([list(said[0].words)]) == said[:1]
    assert all(0 < share <= 1 for share in said[0].probabilities)
    assert len(said[0].probabilities) == len(said[0].words)
    assert opened(tasks["tag"]).tag(TEXT).words == tuple(TEXT.split())
    assert opened(tasks["tag"]).tag(["", TEXT])[0].tags == opened(tasks["tag"]).tag("").tags == ()


def test_answer_is_that_of_the_verb(tasks: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["answer", str(tasks["answer"]), "w5 ?", TEXT, "--json", "--best", "2", "--device", "cpu"])
    told = json.loads(capsys.readouterr().out)
    said = opened(tasks["answer"]).answer("w5 ?", TEXT, best=2)
    assert (said.text, said.probability, said.null_odds) == (told["answer"], told["probability"], told["null_odds"])
    assert [dataclasses.asdict(span)["text"] for span in said.n_best] == [span["text"] for span in told["n_best"]]
    with pytest.raises(DataError, match="an empty context: there is nothing to answer from"):
        opened(tasks["answer"]).answer("w5 ?", " ")
    with pytest.raises(RecipeError, match="--best: found 0; wanted 1 or more"):
        opened(tasks["answer"]).answer("w5 ?", TEXT, best=0)


REFUSED: list[tuple[str, Callable[[Any], Any], str]] = [
    ("gpt2", lambda m: m.fill("a [MASK]"), r"is a causal model \(gpt2\)"),
    (
        "bert",
        lambda m: m.answer("a", "b"),
        "cannot answer: it is a bert that learned mlm; .*this one can fill, generate, score, embed: `ordsmed fill ",
    ),
    (
        "gpt2",
        lambda m: m.tag("a"),
        "cannot tag: it is a gpt2 that learned clm; .*this one can generate, score, embed: `",
    ),
    ("bert", lambda m: m.classify("a"), "cannot classify: .*wanted a model fine-tuned for that"),
    ("bert", lambda m: m.fill("no mask"), "has no mask"),
    ("bert", lambda m: m.fill("[MASK] " * 200), "found [0-9]+ tokens; wanted at most 64; shorten it"),
    ("bert", lambda m: m.fill("a [MASK]", best=0), "--best: found 0"),
    ("bert", lambda m: m.fill(3), "fill: found int 3; wanted a text, or a list of texts"),
    ("bert", lambda m: m.fill(["a [MASK]", None]), "fill: found NoneType None"),
    ("bert", lambda m: m.embed([b"a"]), "embed: found bytes b'a'"),
    ("bert", lambda m: m.embed("a", layers=9), "--layers: found 9; wanted top, all, mean or numbers from -3 to 2"),
    ("bert", lambda m: m.embed("a", of="letters"), "--of: found letters; wanted words or sentences"),
    ("gpt2", lambda m: m.generate("a", temperature=-1), "--temperature: found -1; wanted 0 or more"),
    ("gpt2", lambda m: m.generate(None), "generate: found NoneType None"),
    ("gpt2", lambda m: m.stream(["a", "b"]), "stream: found 2 texts; wanted one text; call it once per text"),
    ("bert", lambda m: m.fill_all([]), "fill_all: found 0 texts; wanted one text"),
]


@pytest.mark.parametrize(("family", "call", "message"), REFUSED, ids=[message[:30] for _, _, message in REFUSED])
def test_what_it_cannot_is_refused_in_a_line(
    tiny_run: Any, family: str, call: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(OrdsmedError, match=message) as error:
        call(opened(getattr(tiny_run, family)))
    assert "\n" not in str(error.value)


def test_what_a_task_is_not_asked_is_refused(tasks: dict[str, Path]) -> None:
    with pytest.raises(RecipeError, match=r"cannot tag: it is a bert that learned squad; .*can answer, embed"):
        opened(tasks["answer"]).tag(TEXT)
    with pytest.raises(RecipeError, match="answer: found int 3"):
        opened(tasks["answer"]).answer(3, TEXT)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="tag: found int 3"):
        opened(tasks["tag"]).tag(3)  # type: ignore[call-overload]
    with pytest.raises(RecipeError, match="has no head that predicts tokens"):
        opened(tasks["tag"]).fill("a [MASK]")


def test_a_network_without_heads_embeds_and_says_so_of_the_rest(tiny_run: Any, tmp_path: Path) -> None:
    out = export(tiny_run.bert, tmp_path / "hub")
    held = weights.read(out / "model.safetensors")
    weights.write(out / "model.safetensors", {k: v for k, v in held.items() if not k.startswith("cls.")})
    model = opened(out)
    assert model.can == ("embed",)
    assert np.allclose(model.embed("the fox").vectors, opened(tiny_run.bert).embed("the fox").vectors, atol=1e-6)
    with pytest.raises(DataError, match="has a network without the required heads"):
        model.fill("a [MASK]")


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("nowhere", {}, "nowhere: no such folder; wanted a run's folder"),
        (".", {}, "is neither a run nor a model of a known format"),
        ("bert", {"step": 5}, "--step: found 5, but .* has no checkpoint of it; wanted one of 0, 8, 12"),
        ("bert", {"precision": "fp8"}, "--precision: found fp8; wanted fp32 or bf16 or fp16 or int8$"),
        ("bert", {"device": "tpu"}, "--device: found tpu; wanted auto, cpu or cuda"),
        ("bert", {"threads": 0}, "--threads: found 0"),
        ("x" * 300, {}, "^x{300}: File name too long; use a shorter name$"),
    ],
)
def test_what_cannot_be_opened_is_refused(tiny_run: Any, name: str, how: dict[str, Any], message: str) -> None:
    with pytest.raises(OrdsmedError, match=message):
        ordsmed.open({"bert": tiny_run.bert, ".": tiny_run.folder}.get(name, name), **how)


def test_16_bits_are_near(tiny_run: Any) -> None:
    half, full = ordsmed.open(tiny_run.bert, device="cpu", precision="bf16"), opened(tiny_run.bert)
    vectors = half.embed("the old fox").vectors, full.embed("the old fox").vectors
    assert not np.array_equal(*vectors)
    assert np.allclose(*vectors, atol=0.1)
    shares = [m.fill("the [MASK] fox", best=300).masks[0] for m in (half, full)]
    assert sum(guess.probability for guess in shares[0]) == pytest.approx(1, abs=0.01)
    assert shares[0] != shares[1]


def test_a_folder_that_may_only_be_read_will_do(tiny_run: Any, tmp_path: Path, read_only: Callable[..., None]) -> None:
    run = shutil.copytree(tiny_run.bert, tmp_path / "run")
    read_only(run)
    assert opened(run).fill("the [MASK] fox").masks == opened(tiny_run.bert).fill("the [MASK] fox").masks
