"""The original ELMo codes: targets of flags and options, compared with tables; then a complete small run."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kit import elmo_files
from kit.absent import Lazy
from kit.dialects import called, differences, resolved
from kit.processes import PATIENT
from ordsmed.base import files, settings
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import DataError
from ordsmed.cli import main
from ordsmed.others.translate import install, perform
from ordsmed.others.translate.program import find
from ordsmed.train import loop

h5py, CODE = Lazy("h5py"), "bilm"
LEAST = ["--train_prefix", "t/*", "--vocab_file", "v", "--save_dir", "o"]
P, C, T = "pretrain: ", "corpus: ", "tokenizer: tokenizer."
PHASE, MODEL = P + "phase[1].", P + "model."
KEYS: dict[str, tuple[Any, dict[str, Any]]] = {  # of --options
    "char_cnn.activation": ("tanh", {MODEL + "activation": "tanh"}),
    "char_cnn.embedding.dim": (4, {MODEL + "letter": 4}),
    "char_cnn.filters": ([[1, 8], [3, 9]], {MODEL + "filters": [[1, 8], [3, 9]]}),
    "char_cnn.max_characters_per_token": (20, {MODEL + "longest_word": 20}),
    "char_cnn.n_highway": (None, {MODEL + "highways": 0}),
    "dropout": (0.2, {MODEL + "dropout": 0.2}),
    "lstm.cell_clip": (5, {MODEL + "cell_clip": 5.0}),
    "lstm.dim": (64, {MODEL + "cells": 64}),
    "lstm.n_layers": (3, {MODEL + "layers": 3}),
    "lstm.proj_clip": (None, {MODEL + "projection_clip": 0.0}),
    "lstm.projection_dim": (32, {MODEL + "width": 32}),
    "lstm.use_skip_connections": (False, {MODEL + "residual": False}),
    "all_clip_norm_val": (5.0, {P + "clip": 5.0}),
    "n_epochs": (3, {PHASE + "epochs": 3.0}),
    "n_train_tokens": (1_000_000, {PHASE + "steps": 10 * 130, PHASE + "epochs": 0.0}),  # a step reads 384 x 20 words
    "batch_size": (4, {PHASE + "batch": 12}),
    "unroll_steps": (10, {PHASE + "length": 10, P + "objective.scale": 10.0}),
    "n_negative_samples_batch": (64, {P + "objective.samples": 64}),
    "sample_softmax": (False, {P + "objective.samples": 0}),
    "learning_rate": (0.1, {PHASE + "learning_rate": 0.1}),
}
UIO = ["--epochs", "3"]  # a flag that only simple_elmo_training has
TRAINING: dict[str, tuple[list[str], list[str], dict[str, Any]]] = {  # the minimal arguments
    "--save_dir": ([], ["x/y"], {P + "out": "x/y"}),
    "--vocab_file": ([], ["w"], {T + "file": "w"}),
    "--train_prefix": ([], ["some/part-"], {C + "source.path": "some/part-*"}),
    "--size": (UIO, ["100000"], {PHASE + "steps": 3 * 13, PHASE + "epochs": 0.0}),  # 384 x 20 words
    "--epochs": (UIO, ["5"], {PHASE + "epochs": 5.0}),
    "--maxchar": (UIO, ["30"], {MODEL + "longest_word": 30}),
}
RESTARTING: dict[str, tuple[list[str], dict[str, Any]]] = {  # of a checkpoint with batch 4, 5 words, 2 x 1,000 of them
    "--n_gpus": (["2"], {PHASE + "batch": 8, PHASE + "steps": 2 * 25}),
    "--batch_size": (["6"], {PHASE + "batch": 6, PHASE + "steps": 2 * 33}),
    "--n_train_tokens": (["400"], {PHASE + "steps": 2 * 20}),
    "--n_epochs": (["3"], {PHASE + "steps": 3 * 50}),
}
TINY: dict[str, Any] = {  # options of a network that learns in a second
    "char_cnn": {"filters": [[1, 4], [2, 4]], "embedding": {"dim": 4}, "n_highway": 1, "max_characters_per_token": 10},
    "lstm": {"dim": 16, "projection_dim": 8},
    "batch_size": 4,
    "n_epochs": 2,
    "n_negative_samples_batch": 16,
    "unroll_steps": 5,
    "all_clip_norm_val": 10.0,
}


def options(**keys: Any) -> list[str]:
    return ["--options", json.dumps(keys)]


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return options such as `lstm.dim` as nested tables."""
    return functools.reduce(lambda inner, name: {name: inner}, reversed(key.split(".")), value)


def test_every_flag_is_in_a_table() -> None:
    flags = {flag.name for flag in find(CODE, "train_elmo.py").flags if flag.goes}
    assert flags - {"--options"} == set(KEYS) | set(TRAINING)
    assert {flag.name for flag in find(CODE, "restart.py").flags} == set(RESTARTING) | set(LEAST[::2])


@pytest.mark.parametrize("key", KEYS)
def test_an_option_arrives(key: str) -> None:
    value, wanted = KEYS[key]
    for table in ({key: value}, nested(key, value)):
        assert differences(CODE, "train_elmo.py", LEAST, [*LEAST, *options(**table)]) == wanted


@pytest.mark.parametrize("flag", TRAINING)
def test_a_flag_of_training_arrives(flag: str) -> None:
    beside, words, wanted = TRAINING[flag]
    before = [*LEAST, *beside]
    assert differences(CODE, "train_elmo.py", before, [*before, flag, *words]) == wanted


def test_what_is_left_out_is_as_in_the_scripts() -> None:
    filters = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
    wanted = {
        C + "source.path": "t/*",
        C + "sentences": "lines",
        C + "duplicates": "keep",
        C + "validation": 0.0,
        C + "normalise": "none",
        T + "kind": "words",
        T + "split": "spaces",
        T + "file": "v",
        MODEL + "width": 512,
        MODEL + "cells": 4096,
        MODEL + "layers": 2,
        MODEL + "highways": 2,
        MODEL + "filters": filters,
        MODEL + "letter": 16,
        MODEL + "longest_word": 50,
        MODEL + "activation": "relu",
        MODEL + "cell_clip": 3.0,
        MODEL + "projection_clip": 3.0,
        MODEL + "residual": True,
        MODEL + "dropout": 0.1,
        P + "objective.samples": 8192,
        P + "objective.scale": 20.0,
        P + "objective.together": False,
        P + "optimizer.kind": "adagrad",
        P + "optimizer.initial": 1.0,
        P + "clip": 10.0,
        P + "save": 1250,
        P + "keep": 2,
        P + "log": 100,
        P + "out": "o",
        PHASE + "epochs": 10.0,
        PHASE + "length": 20,
        PHASE + "batch": 3 * 128,
        PHASE + "learning_rate": 0.2,
        PHASE + "schedule.kind": "constant",
    }
    got = resolved(CODE, "train_elmo.py", *LEAST)
    assert {key: got[key] for key in wanted} == wanted
    other = {MODEL + "cells": 2048, P + "objective.samples": 4096, PHASE + "batch": 2 * 192, PHASE + "epochs": 3.0}
    uio = resolved(CODE, "train_elmo.py", *LEAST, "--maxchar", "50")
    assert {key: uio[key] for key in wanted} == wanted | other
    mixed = resolved(CODE, "train_elmo.py", *LEAST, *UIO, *options(lstm={"dim": 64}, batch_size=5))
    assert (mixed[MODEL + "cells"], mixed[PHASE + "batch"], mixed[P + "objective.samples"]) == (64, 10, 4096)


def test_options_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    path.write_text(json.dumps(TINY | {"n_tokens_vocab": 9}))
    got = called(CODE, "train_elmo.py", *LEAST, "--options", str(path))
    assert got.recipes["pretrain"]["phase"][0]["batch"] == 12
    assert got.recipes["pretrain"]["model"]["cells"] == 16
    assert "--options n_tokens_vocab: not needed here: read from the vocabulary" in got.notes
    assert not any("the options are those in" in note for note in got.notes)
    assert any("train_elmo.py of bilm-tf;" in note for note in called(CODE, "train_elmo.py", *LEAST).notes)
    path.write_text("{")
    with pytest.raises(DataError, match=r"options\.json: not JSON"):
        called(CODE, "train_elmo.py", *LEAST, "--options", str(path))


@pytest.mark.parametrize(
    ("name", "words", "complaint"),
    [
        ("train_elmo.py", LEAST[2:], "no --train_prefix"),
        ("train_elmo.py", [*LEAST, "--n_gpus", "2"], "--n_gpus: no such flag"),
        ("train_elmo.py", [*LEAST, *options(lstm={"dims": 3})], "--options: has no key `lstm.dims`"),
        ("train_elmo.py", [*LEAST, *options(lstm={"dim": "3"})], 'lstm.dim: found "3"; wanted a whole number'),
        ("train_elmo.py", [*LEAST, *options(bidirectional=False)], "--options bidirectional: is not supported"),
        ("train_elmo.py", [*LEAST, *options(share_embedding_softmax=True)], "embedding_softmax: is not supported"),
        ("train_elmo.py", [*LEAST, "--size", "7679"], "--size: found 7,679 words; wanted at least the 7,680"),
        ("train_elmo.py", [*LEAST, *options(n_train_tokens=9)], "tokens: found 9 words; wanted at least the 7,680"),
        ("train_elmo.py", [*LEAST, *options(batch_size=0)], "batch_size: found 0; wanted 1 or more"),
        ("train_elmo.py", [*LEAST, *options(unroll_steps=None)], "unroll_steps: found None; wanted 1 or more"),
        ("train_elmo.py", [*LEAST, *UIO[:1], "0"], "n_epochs: found 0; wanted 1 or more"),
        ("restart.py", ["--save_dir", "none", *LEAST[:4]], "--save_dir: found none, which does not exist"),
        ("run_test.py", ["--save_dir", "none", "--test_prefix", "t"], "no --vocab_file"),
        ("dump_weights.py", ["--save_dir", "none"], "no --outfile"),
        ("dump_weights.py", ["--save_dir", "none", "--outfile="], "--outfile: found nothing; wanted a file name"),
        ("vocabulary.py", ["0"], "found 0 words; wanted 1 or more"),
        ("vocabulary.py", ["3", "a.b=1"], "a.b=1: found a setting without a recipe; wanted only flags"),
        *(
            (f"usage_{kind}.py", [], "wanted `ordsmed embed MODEL TEXTS OUT.h5`")
            for kind in ("cached", "character", "token")
        ),
        ("testchar.py", [], "wanted `ordsmed embed MODEL TEXTS OUT.h5`"),
    ],
)
def test_wrong_words(
    name: str, words: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(complaint)):
        called(CODE, name, *words)


SIGNS = ["<S>", "</S>", "<UNK>"]


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a TensorFlow checkpoint in `o`, its vocabulary, and texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORDSMED_CACHE", str(tmp_path / "cache"))
    asked = elmo_files.options(n_characters=261) | {
        "bidirectional": True,
        "dropout": 0.2,
        "all_clip_norm_val": 4.0,
        "n_epochs": 2,
        "n_train_tokens": 1000,
        "batch_size": 4,
        "unroll_steps": 5,
        "n_negative_samples_batch": 2,
    }
    folder = elmo_files.checkpoint(tmp_path / "o", asked, elmo_files.arrays(asked), 5)
    (tmp_path / "v").write_text("\n".join([*SIGNS, "the", "newts", ""]))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a").write_text("the newts\n" * 9)
    return folder


@pytest.mark.parametrize("flag", RESTARTING)
def test_a_flag_of_a_restart_arrives(flag: str, theirs: Path) -> None:
    words, wanted = RESTARTING[flag]
    assert differences(CODE, "restart.py", LEAST, [*LEAST, flag, *words]) == wanted


def test_a_restart_has_the_options_of_the_checkpoint(theirs: Path) -> None:
    got = resolved(CODE, "restart.py", *LEAST)
    wanted = {
        P + "init": "o",
        P + "out": "o-restart-1",
        MODEL + "cells": 12,
        MODEL + "width": 5,
        MODEL + "letter": 4,
        MODEL + "filters": [[1, 3], [2, 4], [4, 2]],
        MODEL + "dropout": 0.2,
        MODEL + "cell_clip": 0.5,
        P + "clip": 4.0,
        PHASE + "batch": 4,
        PHASE + "length": 5,
        PHASE + "steps": 2 * 50,
        P + "objective.samples": 2,
        P + "objective.scale": 5.0,
        PHASE + "learning_rate": 0.2,
    }
    assert {key: got[key] for key in wanted} == wanted
    assert called(CODE, "restart.py", *LEAST, "--n_gpus", "2").devices == 2
    assert called(CODE, "restart.py", *LEAST, "--n_gpus", "2", world=2).devices == 0
    lacking = elmo_files.options(n_characters=261)
    del lacking["lstm"]["n_layers"], lacking["lstm"]["use_skip_connections"], lacking["lstm"]["cell_clip"]
    (theirs / "options.json").write_text(json.dumps(lacking | {"n_train_tokens": None, "of_no_use": 1}))
    bare = resolved(CODE, "restart.py", *LEAST)  # as the original reads it
    assert [bare[MODEL + key] for key in ("layers", "residual", "cell_clip")] == [1, False, 0.0]


def test_a_restart_of_a_restart_is_the_next(theirs: Path) -> None:
    for number in (2, 10):
        (theirs.parent / f"o-restart-{number}").mkdir()
        (theirs / "options.json").rename(theirs.parent / f"o-restart-{number}" / "options.json")
        theirs = theirs.parent / f"o-restart-{number}"
        got = called(CODE, "restart.py", *LEAST).recipes["pretrain"]
        assert (got["init"], got["out"]) == (f"o-restart-{number}", f"o-restart-{number + 1}")
    (theirs / "options.json").unlink()
    with pytest.raises(UsageError, match=r"--save_dir: o-restart-10 has no options\.json"):
        called(CODE, "restart.py", *LEAST)


@pytest.mark.parametrize(
    ("name", "words"), [("restart.py", LEAST), ("run_test.py", ["--test_prefix", "t", *LEAST[2:]])]
)
def test_the_words_of_a_checkpoint_are_put_beside_it(name: str, words: list[str], theirs: Path) -> None:
    call = called(CODE, name, *words)
    assert "v is copied to o/vocab.txt: the words of the checkpoint's softmax" in call.notes
    assert not (theirs / "vocab.txt").exists(), "not before it is done"
    for step in call.before:
        step()
    assert (theirs / "vocab.txt").read_text() == Path("v").read_text()
    assert not called(CODE, name, *words).before, "it stands there"
    (theirs / "vocab.txt").unlink()
    Path("v").write_text("\n".join(SIGNS))
    wanted = "--vocab_file: v lists 3 words; wanted the 5 of its training, as in o/options.json"
    with pytest.raises(UsageError, match=re.escape(wanted)):
        called(CODE, name, *words)


def test_perplexity_and_weights_of_the_newest(theirs: Path) -> None:
    call = called(CODE, "run_test.py", "--test_prefix", "t/", *LEAST[2:], "--batch_size", "9", "window=7")
    own = perform.words(find(CODE, "run_test.py"), call)
    assert own == ["evaluate", "o", "--out", "o/test", "--probe", "perplexity", "t/a", "way=mean", "window=7"]
    assert "--batch_size: not needed here: the number of lines per batch is chosen by device memory" in call.notes
    theirs.rename(theirs.with_name("o-restart-3"))
    theirs.mkdir()
    call = called(CODE, "dump_weights.py", "--save_dir", "o/", "--outfile", "x/w.hdf5")
    assert (call.verb, call.words) == ("export", ["o-restart-3", "x/w-elmo", "--anew"])


def test_the_perplexity_that_is_told_is_the_one_of_the_call(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder may also have results of the same texts with another window, and of other texts."""
    (theirs / "test").mkdir()
    for name, perplexity, text, when in (
        ("a", 3.5, "t/a", 10),
        ("b", 2.5, "t/a", 30),
        ("c", 4.5, "t/a", 20),
        ("d", 1.5, "t/b", 40),
    ):
        path = theirs / "test" / f"perplexity-{name}.json"
        files.write_json(path, {"perplexity": perplexity, "files": [text]})
        os.utime(path, (when, when))
    for step in called(CODE, "run_test.py", "--test_prefix", "t/a", *LEAST[2:]).after:
        step()
    assert capsys.readouterr().out == "FINISHED!  AVERAGE PERPLEXITY = 2.5\n"


def begin(folder: Path, state: str) -> None:
    """Write the folder of a started run of 68 steps, without weights."""
    call = called(CODE, "train_elmo.py", *LEAST[:4], "--save_dir", folder.name, *options(**TINY))
    for path, text in perform.recipes(find(CODE, "train_elmo.py"), call, []).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folder.mkdir()
    files.write_json(folder / "status.json", {"verb": "pretrain", "state": state})
    recipe = call.recipes["pretrain"] | {"data": f"work/as/{folder.name}/encode.toml"}
    recipe["phase"] = [recipe["phase"][0] | {"steps": 68, "epochs": 0.0}]
    (folder / "recipe.toml").write_text("\n".join(settings.lines(recipe)))


@pytest.mark.parametrize(
    ("words", "on"),
    [
        ([], True),
        (["--n_epochs", "2"], True),
        (["--n_epochs", "3"], False),
        (["--n_gpus", "2"], True),
        (["--batch_size", "4"], False),
        (["--batch_size", "4", "--n_gpus", "3"], True),
        (["--n_epochs", "2", "--n_train_tokens", "2040"], True),
        (["--n_epochs", "2", "--n_train_tokens", "9999"], False),
        (["--n_train_tokens", "2040"], False),
        (["--train_prefix", "v"], False),
    ],
)
def test_a_run_that_was_broken_off_goes_on_with_what_it_has(words: list[str], on: bool, theirs: Path) -> None:
    begin(theirs.with_name("b"), "running")
    call = called(CODE, "restart.py", *LEAST[:4], "--save_dir", "b", *words)
    if on:
        devices = ["--devices", words[-1]] if "--n_gpus" in words else []
        assert perform.words(find(CODE, "restart.py"), call) == ["pretrain", "b", *devices]
    else:
        assert (call.recipes["pretrain"]["init"], call.recipes["pretrain"]["out"]) == ("b", "b-restart-1")
        assert call.recipes["pretrain"]["phase"][0]["batch"] == (4 if "--batch_size" in words else 12)


def test_a_run_of_another_network_is_refused(theirs: Path) -> None:
    begin(theirs.with_name("b"), "running")
    recipe = theirs.with_name("b") / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('kind = "elmo"', 'kind = "bert"'))
    for state in ("running", "done"):
        files.write_json(recipe.with_name("status.json"), {"verb": "pretrain", "state": state})
        with pytest.raises(UsageError, match="--save_dir: b is a run of bert; wanted a run of elmo"):
            called(CODE, "restart.py", *LEAST[:4], "--save_dir", "b")


def test_options_stand_in_the_folder_that_is_written(theirs: Path) -> None:
    """Also if the folder is given after the flags."""
    call = called(CODE, "train_elmo.py", *LEAST, *options(**TINY), "out=x", "out=y")
    (theirs.parent / "y/tokenizer").mkdir(parents=True)
    (theirs.parent / "y/tokenizer/vocab.txt").write_text("\n".join([*SIGNS, "a\x85b", "c\u2028d", ""]))
    for step in call.after:
        step()
    assert json.loads(Path("y/options.json").read_text())["n_tokens_vocab"] == len(SIGNS) + 2


def test_a_run_that_is_done_does_not_go_on(theirs: Path) -> None:
    begin(theirs.with_name("b"), "done")
    call = called(CODE, "restart.py", *LEAST[:4], "--save_dir", "b")
    assert call.recipes["pretrain"]["out"] == "b-restart-1"


def test_programs_stand_where_either_code_has_them(tmp_path: Path) -> None:
    install.install(CODE, str(tmp_path))
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")}
    both = ("train_elmo", "restart", "run_test", "dump_weights")
    assert names == {
        *(f"{folder}/{name}.py" for folder in ("bin", "bilm") for name in both),
        "vocabulary.py",
        "usage_cached.py",
        "usage_character.py",
        "usage_token.py",
        "testchar.py",
    }
    assert (tmp_path / "bin/restart.py").read_text() == (tmp_path / "bilm/restart.py").read_text()


def test_a_call_with_no_verb_shows_its_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no recipe, and standard input is not read."""
    main(["as", CODE, "vocabulary.py", "3", "--recipe"])
    assert capsys.readouterr().out.strip() == ""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Change to a folder with the original's files, texts and options."""
    folder = tmp_path_factory.mktemp("bilm")
    install.install(CODE, str(folder))
    words, draws = [f"w{n}" for n in range(60)], random.Random(1)
    shares = [1 / (n + 1) for n in range(60)]
    (folder / "text").mkdir()
    for name, count in (("text/a", 90), ("text/b", 80), ("held", 20)):
        lines = (" ".join(draws.choices(words, shares, k=draws.randint(3, 12))) + "\n" for _ in range(count))
        (folder / name).write_text("".join(lines))
    (folder / "options.json").write_text(json.dumps(TINY))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ORDSMED_CACHE", str(folder / "cache"))
        yield folder


def weights(run: str) -> bytes:
    return (Path(run) / "weights/model.safetensors").read_bytes()


def stop(step: int) -> None:
    raise loop.Stopped(step, 15)


def shell(place: Path, command: str) -> str:
    """Compare with the output of a command in the original's README."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], cwd=place, env=env, capture_output=True, text=True, timeout=PATIENT)
    assert done.returncode == 0, done.stderr
    return done.stdout


TEXTS = ["--train_prefix", "text/*", "--vocab_file", "vocab.txt"]


@pytest.mark.long
def test_from_texts_to_weights(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of the README: vocabulary, an interrupted and resumed training, a restart, perplexity, HDF5."""
    shell(place, "cat text/* | python vocabulary.py 50 > vocab.txt")
    listed = Path("vocab.txt").read_text().splitlines()
    counts = Counter(" ".join(path.read_text() for path in sorted(place.glob("text/*"))).split())
    assert listed == [*SIGNS, *(word for word, _ in counts.most_common(50))]
    shell(
        place,
        "python bin/train_elmo.py --train_prefix='text/*' --vocab_file vocab.txt --save_dir=whole "
        "--options options.json",
    )
    kept = json.loads(Path("whole/options.json").read_text())
    assert (kept["n_tokens_vocab"], kept["char_cnn"]["n_characters"], kept["batch_size"]) == (53, 261, 4)
    assert kept["lstm"] == {
        "dim": 16,
        "projection_dim": 8,
        "cell_clip": 3.0,
        "proj_clip": 3.0,
        "n_layers": 2,
        "use_skip_connections": True,
    }
    update = loop.train_step
    monkeypatch.setattr(loop, "train_step", lambda *a, **k: update(*a, **k) if k["step"] < 8 else stop(k["step"]))
    with pytest.raises((loop.Stopped, SystemExit)):
        main(["as", CODE, "train_elmo.py", *TEXTS, "--save_dir", "out", "--options", "options.json", "save=6"])
    monkeypatch.undo()
    assert not Path("out/options.json").exists()
    main(["as", CODE, "restart.py", *TEXTS, "--save_dir", "out"])
    assert weights("out") == weights("whole"), "it has gone on"
    assert json.loads(Path("out/options.json").read_text())["batch_size"] == 12
    main(["as", CODE, "restart.py", *TEXTS, "--save_dir", "out", "--n_epochs", "1", "--n_train_tokens", "600"])
    assert settings.flat(settings.read(Path("out-restart-1/recipe.toml")))["phase[1].steps"] == 10
    assert weights("out-restart-1") != weights("out")
    capsys.readouterr()
    main(["as", CODE, "run_test.py", "--test_prefix", "held", *TEXTS[2:], "--save_dir", "out", "--batch_size", "2"])
    line = capsys.readouterr().out.splitlines()[-1]
    perplexity = float(line.removeprefix("FINISHED!  AVERAGE PERPLEXITY = "))
    (scores,) = (json.loads(path.read_text()) for path in place.glob("out-restart-1/test/perplexity-*.json"))
    assert perplexity == scores["perplexity"]
    assert 1 < perplexity < 53
    main(["as", CODE, "dump_weights.py", "--save_dir", "out", "--outfile", "out/weights.hdf5"])
    dumped, own = elmo_files.read(Path("out/weights.hdf5")), load_file("out-restart-1/weights/model.safetensors")
    assert (dumped["char_embed"] == own["model.letters.table.weight"].numpy()).all()
    assert dumped["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_0"].shape == (16, 64)
    assert {path.name for path in Path("out/weights-elmo").iterdir()} >= {"options.json", "vocab.txt", "model.hdf5"}


def test_a_checkpoint_of_tensorflow_is_tested_and_gone_on_with(
    theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its softmax is imported too."""
    main(["as", CODE, "run_test.py", "--test_prefix", "t/a", *LEAST[2:]])
    assert re.search(r"FINISHED!  AVERAGE PERPLEXITY = \d+\.\d+\n\Z", capsys.readouterr().out)
    main(
        ["as", CODE, "restart.py", "--train_prefix", "t", *LEAST[2:], "phase[1].steps=1", "phase[1].learning_rate=1e-9"]
    )
    lines = capsys.readouterr().err
    assert "the weights, but not the optimizer state, of o" in lines
    assert "random weights" not in lines
    softmax = load_file("o-restart-1/weights/model.safetensors")["head.table.weight"]
    assert torch.allclose(softmax, torch.arange(25.0).reshape(5, 5)), "that of the checkpoint"
    main(["as", CODE, "dump_weights.py", "--save_dir", "o", "--outfile", "w.hdf5"])
    with h5py.File("w.hdf5") as file:
        assert file["char_embed"].shape == (261, 4)
