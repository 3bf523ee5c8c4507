"""Command lines with fp16 on machines with and without fp16 units."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kit.dialects import called
from ordsmed.base.ranks import ProcessInfo
from ordsmed.others.translate import perform
from ordsmed.others.translate.program import Call, find

NOTE = "fp16: computes in fp32, because no GPU is used and this CPU has no fp16 units"
BERT = ["--train-data", "a.json", "--fp16", "--fp32-embedding"]


def prepared(
    monkeypatch: pytest.MonkeyPatch, code: str, name: str, *words: str, lacks: bool = True, cuda: bool = False
) -> Call:
    monkeypatch.setattr(perform, "lacks_fp16", lambda: lacks)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    program = find(code, name)
    values = program.read(words, ProcessInfo(0, 1), {})
    call = program.translated(values)
    perform.use_fp32_without_fp16(values, call)
    return call


def test_on_a_cpu_without_units_fp32_is_taken_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("megatron", "pretrain_bert.py", *BERT)
    call = prepared(monkeypatch, *asked)
    layout = call.recipes["pretrain"]["layout"]
    assert (layout["precision"], layout["exact"], layout["reduce"]) == ("fp32", [], "fp32")
    assert call.notes[-1] == f"{NOTE}; `layout.precision=fp16` after the flags keeps fp16"
    for how in ({"lacks": False}, {"cuda": True}):
        kept = prepared(monkeypatch, *asked, **how)
        assert kept.recipes["pretrain"]["layout"]["precision"] == "fp16"
        assert not any(note.startswith("fp16") for note in kept.notes)
    kept = prepared(monkeypatch, *asked, "layout.precision=fp16")
    assert kept.recipes["pretrain"]["layout"]["precision"] == "fp16"


def test_a_cpu_that_is_asked_for_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    squad = ("nvidia", "run_tf_squad.py", "--do_train", "--train_file=t", "--output_dir=o", "--amp")
    for words, precision in (([], "fp16"), (["--no_cuda"], "fp32")):
        call = prepared(monkeypatch, *squad, *words, cuda=True)
        assert call.recipes["finetune"]["layout"]["precision"] == precision
    predict = ("nvidia", "run_tf_squad.py", "--do_predict", "--predict_file=p", "--init_checkpoint=r", "--amp")
    for words, precision in (([], "fp16"), (["--no_cuda"], "fp32")):
        call = prepared(monkeypatch, *predict, *words, cuda=True)
        assert call.words[call.words.index("--precision") + 1] == precision
    assert call.notes[-1] == NOTE


def test_a_text_of_that_word_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    call = prepared(monkeypatch, "nvidia", "run_inference.py", "--init_checkpoint=r", "--question=fp16", "--context=c")
    assert (call.words[1], call.notes) == ("fp16", [])


def test_what_is_performed_is_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(perform, "lacks_fp16", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    program = find("megatron", "pretrain_bert.py")
    values = program.read(BERT, ProcessInfo(0, 1), {})
    perform.prepare(program, values, program.translated(values))
    (written,) = tmp_path.glob("work/as/*/pretrain.toml")
    assert 'precision = "fp32"' in written.read_text()
    assert "fp16" in str(called("megatron", "pretrain_bert.py", *BERT).recipes), "printed as requested"


def test_units_of_this_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for here, supported, lacks in ((True, True, False), (True, False, True), (False, True, True)):
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda here=here: here)
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", lambda yes=supported: yes)
        assert perform.lacks_fp16() is lacks
