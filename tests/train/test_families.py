"""Promise 2 for every objective: a run whose last checkpoints are gone goes on with the same bits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kit.makers import PAD_SECOND, make_store, make_words
from ordsmed.base import snapshots
from ordsmed.base.run import Run
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain

TRANSFORMER = "heads = 2\npositions = 64\n"
FAMILIES = {  # model, objective, phase
    "roberta mlm": ("", 'cut = "full_sentences"\nrounding = "chance"\nover = "row"\nsigns = true\n', ""),
    "bert mlm": ("", 'unit = "span"\nmask_prob = { start = 0.3, end = 0.15 }\n', ""),
    "modern mlm": ("window = 8\ndropout = 0.1\n", "", ""),
    "megatron_bert mlm_nsp": ("", "", "pack = false\n"),
    "bert mlm_nsp": ("", 'pairs = "order"\n', "pack = false\n"),
    "electra rtd": ("embedding = 16\n", "generator = { width = 16 }\n", ""),
    "electra rtd examples": ("embedding = 16\n", "reference_duplicates = true\n", "pack = false\n"),
    "gpt2 hybrid": ("", "masked = { start = 0.8, end = 0.2 }\n", ""),
    "modern hybrid": ("window = 8\ndropout = 0.1\n", "", ""),
    "modern diffusion": ("window = 8\ndropout = 0.1\n", 'cut = "sentence"\n', ""),
    "elmo bilm": ("cells = 48\nfilters = [[1, 8], [3, 16]]\n", "samples = 30\n", ""),
    "elmo bilm apart": ("cells = 32\nfilters = [[2, 8]]\n", "samples = 0\ntogether = false\nscale = 20.0\n", ""),
}


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_every_objective_goes_on_with_the_same_bits(family: str, tmp_path: Path) -> None:
    (model, objective), more = family.split()[:2], FAMILIES[family]
    wordy = model == "elmo"
    store = make_words(tmp_path / "store") if wordy else make_store(tmp_path / "store", specials=PAD_SECOND)
    path = tmp_path / "run.toml"
    phases = [f"[[phase]]\nsteps = 4\nlength = {n}\nbatch = {b}\nrate = 1e-3\n{more[2]}" for n, b in ((32, 8), (48, 4))]
    path.write_text(
        f'data = "{store}"\nout = "{tmp_path / "run"}"\nsave = 3\nvalidate = 5\nvalidation_rows = 16\n'
        f'[layout]\ndevice = "cpu"\nthreads = 1\n'
        f'[model]\nkind = "{model}"\nwidth = 32\nlayers = 2\n{"" if wordy else TRANSFORMER}{more[0]}'
        f'[objective]\nkind = "{objective}"\n{more[1]}' + "".join(phases)
    )
    folder = pretrain(str(path))
    clock = ("seconds", "tokens_per_second", "left")
    whole = [{k: v for k, v in line.items() if k not in clock} for line in read(folder / "metrics.jsonl")]
    assert len(whole) >= 8
    for step in snapshots.steps(folder / "checkpoints"):
        if step > 3:
            shutil.rmtree(snapshots.path_of(folder / "checkpoints", step))
    Run(folder).set(state="running")
    pretrain(str(folder))
    again = [{k: v for k, v in line.items() if k not in clock} for line in read(folder / "metrics.jsonl")]
    assert again == whole
