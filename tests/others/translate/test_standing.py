"""Existing models in command lines of other codes: their paths, tokenizers and settings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ordsmed.base.arguments import UsageError
from ordsmed.base.ranks import process_info
from ordsmed.cli import main
from ordsmed.others.dialects import google
from ordsmed.others.translate.program import Call, Table
from ordsmed.others.translate.standing import check_tokenizer, put_start, run_of, task_arguments
from ordsmed.others.verbs import as_
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer


def run_at(folder: Path, *stored: int, done: int = 0) -> str:
    """Write the files of a pretraining except weights."""
    for step in stored:
        (folder / "checkpoints" / f"step-{step:09d}").mkdir(parents=True)
    if done:
        (folder / "weights").mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"verb": "pretrain", "step": done}))
    return str(folder)


def test_a_checkpoint_is_the_run_that_it_stands_in(tmp_path: Path) -> None:
    """A step near the last one means the last weights: the originals count steps of an epoch differently."""
    out, call = run_at(tmp_path, 10, 20, done=20), Call("pretrain")
    assert run_of(f"{out}/model.ckpt-20", call) == run_of(f"{out}/model.ckpt", call) == (out, None)
    assert run_of(f"{out}/model.ckpt-10", call) == (out, 10)
    assert call.notes == []
    assert run_of(f"{out}/model.ckpt-343", call) == (out, None)
    assert call.notes == [f"{out}/model.ckpt-343: uses the last weights of {out}, of step 20"]
    with pytest.raises(UsageError, match=r"no such checkpoint; wanted model\.ckpt-N with N one of 10, 20"):
        run_of(f"{out}/model.ckpt-11", call)
    assert run_of(f"{out}/checkpoint-10/", call) == (out, 10), "as transformers names it"
    assert run_of(out, call) == (out, None)
    assert run_of(f"{tmp_path}/other/model.ckpt-5", call) == (f"{tmp_path}/other/model.ckpt-5", None)
    (tmp_path / "model.ckpt-10.index").touch()
    assert run_of(f"{out}/model.ckpt-10", call) == (f"{out}/model.ckpt-10", None), "one of TensorFlow's"


def start_of(path: str, verb: str = "pretrain") -> Table:
    call = Call(verb)
    put_start(call, path)
    return call.recipes[verb]


def test_a_training_begins_with_weights_alone(tmp_path: Path) -> None:
    out = run_at(tmp_path / "a", 10, 20, done=20)
    assert start_of(f"{out}/model.ckpt-20") == start_of(out) == {"init": f"{out}/weights"}
    with pytest.raises(UsageError, match=f"`ordsmed export {out} {out}-10 --step 10`, and {out}-10 instead of it"):
        start_of(f"{out}/model.ckpt-10")
    assert start_of(f"{out}/model.ckpt-10", "finetune") == {"init": out, "step": 10}
    stopped = run_at(tmp_path / "b", 10)
    assert start_of(f"{stopped}/model.ckpt-10") == {"init": stopped}
    assert start_of("gpt2") == {"init": "gpt2"}


def test_how_a_model_is_asked_is_said_in_words() -> None:
    task = {
        "kind": "squad",
        "train": "t",
        "dev": "d",
        "head": "joint",
        "version": "2.0",
        "threshold": -1.5,
        "stride": 6,
    }
    assert task_arguments(task) == ['task.version="2.0"', "task.threshold=-1.5", "task.stride=6"]


def test_a_setting_that_it_learned_is_said_where_it_is_asked_for() -> None:
    assert task_arguments({"kind": "squad", "head": "joint", "stride": 6}, "head") == [
        'task.head="joint"',
        "task.stride=6",
    ]


def model_at(folder: Path, text: str = "[PAD] [UNK] [CLS] [SEP] [MASK] a b", *, lowercase: bool = True) -> str:
    pieces = {piece: number for number, piece in enumerate(text.split())}
    Tokenizer(vocabulary.wordpiece(pieces, lowercase=lowercase)).save(folder)
    return str(folder)


def checked(model: str, words: str | None, lowercase: bool | None) -> list[str]:
    """Return the notes about a vocabulary, after running the call's steps `before`."""
    call = Call("predict")
    check_tokenizer(call, model, words, lowercase)
    for step in call.before:
        step()
    return call.notes


def test_a_model_has_its_own_vocabulary(tmp_path: Path) -> None:
    """A vocabulary that is given must be that of the model; the original would tokenize with it."""
    model, other = model_at(tmp_path / "m"), model_at(tmp_path / "o", "[PAD] [UNK] [CLS] [SEP] [MASK] b a")
    noted = [f"vocabulary and case: not needed here: {model} has a tokenizer"]
    for own in (None, f"{model}/vocab.txt", "/workspace/electra/vocab/vocab.txt"):
        assert checked(model, own, True) == noted
    assert checked(model, None, None) == []
    assert checked("gone", f"{other}/vocab.txt", False) == [noted[0].replace(model, "gone")]  # predict reports it
    with pytest.raises(UsageError, match=f"--vocab_file: {other}/vocab.txt lists other tokens than {model} has"):
        checked(model, f"{other}/vocab.txt", None)
    with pytest.raises(UsageError, match=f"--do_lower_case: found False; {model} was trained otherwise; wanted True"):
        checked(model, None, False)
    run = Path(run_at(tmp_path / "run", 10))
    Tokenizer.load(f"{model}/vocab.txt").save(run / "tokenizer")
    (run / "status.json").write_text(json.dumps({"verb": "pretrain", "state": "stopped"}))
    with pytest.raises(UsageError, match=f"lists other tokens than {run} has"):
        checked(str(run), f"{other}/vocab.txt", None)
    cased = model_at(tmp_path / "c", lowercase=False)
    assert checked(cased, f"{cased}/vocab.txt", False)
    with pytest.raises(UsageError, match="--do_lower_case: found True"):
        checked(cased, None, True)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_one_process_of_several_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    """Without other processes: they may have ended, and only one process may write files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen: list[tuple[str, object]] = []
    monkeypatch.setattr(as_, "_perform", lambda own: seen.append((own[0], os.environ.get("WORLD_SIZE"))))
    monkeypatch.setattr(google, "copy_answers", lambda out: seen.append(("after", process_info(os.environ).world)))
    words = ["--init_checkpoint=i", "--output_dir=o", "--predict_file=p.json", "--do_predict"]
    main(["as", "google", "run_squad.py", *words])
    assert seen == ([("predict", None), ("after", 1)] if rank == "0" else [])
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == (rank, "2")
