"""Tiny runs of Megatron's command lines on a CPU: two processes, TFRecords, SentencePiece, evaluation, generation."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.processes import PATIENT
from ordsmed import cli
from ordsmed.base import files
from ordsmed.others.translate import install
from ordsmed.weights.trained_model import open_model

pytestmark = pytest.mark.long
TEXT = "the cat sat on a mat while rain fell over old red roofs and no one came home"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *TEXT.split()]
TINY = (
    "--num-layers 2 --hidden-size 32 --num-attention-heads 2 --batch-size 4 --seq-length 32 --train-iters 6 "
    "--max-position-embeddings 32 --max-preds-per-seq 5 --split 90,10 --eval-interval 3 --eval-iters 2 "
    "--log-interval 2 --lr-decay-iters 6 --hidden-dropout 0 --attention-dropout 0 --text-key text"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Change to a folder with the original's files, a corpus in two files, and a vocabulary."""
    folder = tmp_path_factory.mktemp("megatron")
    install.install("megatron", str(folder))
    (folder / "bin").mkdir()
    (folder / "bin" / "python").write_text(f'#!/usr/bin/env bash\nexec {sys.executable} "$@"\n')
    (folder / "bin" / "python").chmod(0o755)
    draws = random.Random(1)
    for name, count in (("a", 80), ("b", 40), ("held", 9)):
        texts = (
            " ".join(" ".join(draws.choices(TEXT.split(), k=8)).capitalize() + "." for _ in range(5))
            for _ in range(count)
        )
        (folder / f"{name}.json").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ORDSMED_CACHE", str(folder / "cache"))
        yield folder


def shell(place: Path, command: str, read: str = "", **environment: str) -> str:
    """Return the output of a command of the original."""
    env = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", **environment}
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env=env, input=read, capture_output=True, text=True, timeout=PATIENT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def theirs(command: str, code: str = "megatron") -> None:
    """Run a command of the original in this process."""
    cli.main(["as", code, *command.split()])


def losses(folder: str) -> list[float]:
    return [line["loss"] for line in files.read_lines(Path(folder) / "metrics.jsonl") if "loss" in line]


@pytest.fixture(scope="module")
def gpt2(place: Path, tiny_run: Any) -> str:
    """Train with the original's launcher in two processes that split every layer."""
    pieces = tiny_run.gpt2 / "weights" / "tokenizer"
    own = f"{TINY} --tokenizer-path {pieces} --cache-dir cache layout.precision=fp16 --train-data a.json b.json"
    shell(
        place,
        f"bash scripts/pretrain_gpt2.sh {own} --save two --load two --model-parallel-size 2 --devices 2",
        ORDSMED_EXPORT="1",
    )
    theirs(
        f"pretrain_gpt2.py {own} --save one --fp16 --lr 0.00015 --lr-decay-style cosine --tokenizer-type "
        "GPT2BPETokenizer --checkpoint-activations"
    )
    return "two"


def test_a_gpt2_by_two_processes(place: Path, gpt2: str) -> None:
    """The losses equal those of one process; log lines and checkpoints are at the original's paths."""
    assert losses("two") == pytest.approx(losses("one"), rel=2e-3)
    assert len(losses("two")) == 6
    log = (place / "two" / "log-megatron.txt").read_text()
    assert [line.split()[1] for line in log.splitlines() if line.startswith(" iteration ")] == ["2/", "4/", "6/"]
    assert log.count("| loss scale 65536.0 |\n") == 3
    names = {str(path.relative_to("two")) for path in Path("two").glob("iter_*/*/*")}
    assert names == {f"iter_0000006/mp_rank_0{rank}/model_optim_rng.pt" for rank in (0, 1)}
    assert (place / "two" / "latest_checkpointed_iteration.txt").read_text() == "6"


def cloze_share(model: str) -> float:
    """Return the probe's accuracy of last tokens, between 0 and 1."""
    (path,) = Path(model, "scores").glob("cloze-*.json")
    return float(files.read_table(path)["last_token"]) / 100


def test_a_model_is_evaluated(place: Path, gpt2: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = " = Cat = \n\n The cat sat on a mat , while rain fell . \n" * 3
    (place / "wiki.test.tokens").write_text(text)
    (place / "lambada.jsonl").write_text('{"text": "the cat sat on a mat"}\n{"text": "rain fell on a mat"}\n')
    common = f"scripts/run_gpt2_eval.py --num-layers 2 --model-path {gpt2} --batch-size 2 --data-path"
    for words, line in (
        ("wiki.test.tokens", " validation results on wiki | avg loss: "),
        ("lambada.jsonl --cloze-eval", " validation results on wiki | number correct: "),
        (
            "held.json --webtext-eval --eval-iters 3",
            " validation loss at the end of training for test data | LM loss: ",
        ),
    ):
        capsys.readouterr()
        theirs(f"{common} {words}")
        printed = capsys.readouterr().out
        assert line in printed
        if "cloze" in words:
            right, total, share = map(float, re.findall(r"\d\.\d+E[+-]\d+", printed.split("number correct")[1]))
            assert (right, share) == (pytest.approx(total * share), pytest.approx(cloze_share(gpt2), rel=1e-4))
    results = {path.name.partition("-")[0]: files.read_table(path) for path in Path(gpt2, "scores").glob("*.json")}
    assert results["wikitext"]["original_tokens"] == len(text.strip().split(" "))
    assert results["cloze"]["examples"] == 2
    assert results["perplexity"]["windows"] == 6


def test_checkpoints_of_theirs_are_read(place: Path, gpt2: str) -> None:
    """The command line gives the number of heads; the checkpoint is imported once, evaluated and continued."""
    shutil.copytree(Path(gpt2, "iter_0000006"), "theirs/iter_0000006")
    shutil.copytree(Path(gpt2, "tokenizer"), "theirs", dirs_exist_ok=True)
    shutil.copy(Path(gpt2, "latest_checkpointed_iteration.txt"), "theirs")
    Path("wiki.test.tokens").write_text(" = Cat = \n\n The cat sat on a mat .\n")
    perplexities = []
    for model, results in ((gpt2, gpt2), ("theirs", "work/as/taken/theirs-6-2-heads")):
        theirs(
            f"run_gpt2_eval.py --num-attention-heads 2 --model-path {model} --data-path wiki.test.tokens "
            "--overlapping-eval 8"
        )
        tables = [files.read_table(path) for path in Path(results, "scores").glob("wikitext-*.json")]
        (table,) = (table for table in tables if table["settings"]["overlap"] == 8)
        perplexities.append(table["perplexity"])
    assert perplexities[0] == pytest.approx(perplexities[1], rel=1e-6)
    theirs(f"pretrain_gpt2.py {TINY} --tokenizer-path theirs --train-data a.json --load theirs --save begun --lr 1e-9")
    trained, begun = (open_model(name).objective.state_dict() for name in (gpt2, "begun"))
    assert all(torch.allclose(tensor, begun[name], atol=1e-6) for name, tensor in trained.items())


def test_prompts_are_gone_on_with(
    place: Path, gpt2: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The original's script generates until `stop`, greedily at any temperature, or by sampling."""
    way = {"CHECKPOINT_PATH": gpt2, "MAXSEQLEN": "12"}
    by_script = shell(place, "bash scripts/generate_text.sh", read="the cat\nthe old\nplease stop\nrain\n", **way)
    assert by_script.startswith("the cat")
    assert "\nthe old" in by_script
    assert "rain" not in by_script

    def written(words: str) -> str:
        read = SimpleNamespace(buffer=io.BytesIO(b"the cat\nthe old\nstop\n"), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", read)
        theirs(f"generate_samples.py --load {gpt2} --out-seq-length 12 --fp16 {words}")
        return capsys.readouterr().out

    assert written("--top_k 0 --top_p 0 --temperature 9") == by_script
    drawn = written("--top_k 3 --top_p 0.9")
    assert drawn != by_script
    assert drawn == written("--top_k 3 --top_p 0.9")
    assert drawn != written("--top_k 3 --top_p 0.9 --seed 7")


def test_a_bert_by_two_processes(place: Path) -> None:
    """Pretrain on texts with a sentence per line, as the original's script writes them."""
    theirs("presplit_sentences_json.py a.json a_split.json")
    theirs("split_json.py --input_files a_split.json --output_dir parts --test_percent 0.1 0.05")
    own = (
        f"{TINY} --tokenizer-path vocab.txt --presplit-sentences --train-data parts/train.json "
        "--valid-data parts/dev.json --test-data parts/test.json"
    )
    shell(place, f"python pretrain_bert.py {own} --save bert2 --model-parallel-size 2 --devices 2")
    theirs(f"pretrain_bert.py {own} --save bert1")
    assert losses("bert2") == pytest.approx(losses("bert1"), rel=1e-4)
    assert files.read_table(Path("work/as/bert1/corpus/status.json"))["validation"]["documents"] == 8
    assert "| nsp loss" in Path("bert2/log-megatron.txt").read_text()


def test_a_bert_of_tfrecords(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Google's program writes the records, as in the README; the masks are those of the records."""
    texts = [json.loads(line)["text"].replace(". ", ".\n") for line in Path("a.json").read_text().splitlines()]
    Path("sentences.txt").write_text("\n\n".join(texts) + "\n")
    theirs(
        "create_pretraining_data.py --input_file=sentences.txt --output_file=1.tfrecord,2.tfrecord "
        "--vocab_file=vocab.txt --max_seq_length=32 --max_predictions_per_seq=5",
        code="google",
    )
    theirs(
        f"pretrain_bert.py {TINY} --tokenizer-path vocab.txt --use-tfrecords --train-data 1.tfrecord "
        "--valid-data 2.tfrecord --save of_records"
    )
    assert len(losses("of_records")) == 6
    assert "--text-key: has no effect for TFRecords" in capsys.readouterr().err


def test_a_sentencepiece_is_trained_where_there_is_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is trained once: a second run uses the file of the first, and the first resumes with its copy."""
    pytest.importorskip("sentencepiece")
    own = f"{TINY} --train-data a.json --tokenizer-type SentencePieceTokenizer --tokenizer-path piece --vocab-size 90"
    theirs(f"pretrain_bert.py {own} --tokenizer-model-type unigram --save piece1")
    assert "piece.model does not exist: a unigram model of 90 tokens is trained" in capsys.readouterr().err
    assert Path("piece.vocab").read_text().count("\n") <= 90
    theirs(f"pretrain_bert.py {own} --tokenizer-model-type unigram --save piece2 --train-iters 2")
    assert "trained" not in capsys.readouterr().err.replace("is trained on", "")
    theirs(f"pretrain_bert.py {own} --tokenizer-model-type unigram --save piece1")
    assert "piece1: done" in capsys.readouterr().out
