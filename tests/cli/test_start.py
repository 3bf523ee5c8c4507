"""Every verb that computes starts on the device it should, on machines with two GPUs, one and none.

CUDA is stubbed where a process first touches it: what is refused there is refused as torch refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.makers import SPECIAL, make_store
from kit.task_files import task_files
from ordsmed import cli
from ordsmed.base import files, settings
from ordsmed.base.folder import SETTINGS, TOKENIZER, WEIGHTS
from ordsmed.base.machine import memory
from ordsmed.learn.objective import fresh
from ordsmed.learn.tasks import squad
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import weights
from ordsmed.weights.foreign import Networks

WORDS = ["what", "?", "it", "is", "wet", "."]
NETWORK = ["model.kind=bert", "model.width=16", "model.layers=1", "model.heads=2", "model.inner=16"]


class Started(Exception):
    """The process has a device; nothing more is asked for."""


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A machine with so many GPUs; a process ends where it has taken one, or none."""

    def have(count: int) -> None:
        def take(device: Any) -> None:
            index = torch.cuda._utils._get_device_index(device)  # what torch does first: no index, a ValueError
            assert 0 <= index < count, "CUDA error: invalid device ordinal"
            raise Started(f"cuda:{index}")

        def take_none() -> None:
            raise Started("cpu")

        properties = SimpleNamespace(total_memory=1 << 34, name="some GPU", major=8, minor=0)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", take)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(memory, "keep_freed_memory", take_none)

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return have


def model_of(folder: Path) -> Path:
    """A model that answers at random."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    tokenizer, task = Tokenizer.load(folder / "vocab.txt"), squad.Squad(length=48)
    network = bert.Bert(width=16, layers=1, heads=2, inner=16, positions=64)
    weights.write(folder / WEIGHTS, own_tensors(fresh(task, network, tokenizer, 3)))
    files.write_text(folder / SETTINGS, settings.write(Networks(model=network, task=task)))
    tokenizer.save(folder / TOKENIZER)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """A command for each verb."""
    folder = tmp_path_factory.mktemp("start")
    data = task_files(folder)
    store = make_store(folder / "store")
    run = str(model_of(folder / "run"))
    (folder / "lines.txt").write_text("a line\n")
    (folder / "pretrain.toml").write_text(
        f'data = "{store}"\nout = "{folder}/pretrained"\n[model]\nkind = "bert"\nwidth = 16\nlayers = 1\nheads = 2\n'
        '[objective]\nkind = "mlm"\n[[phase]]\nsteps = 2\nlength = 16\nbatch = 4\nrate = 1e-3\n'
    )
    (folder / "finetune.toml").write_text(
        f'tokenizer = "{data}/vocab.txt"\nout = "{folder}/tuned"\nsteps = 2\nbatch = 4\n[model]\nkind = "bert"\n'
        f'width = 16\nlayers = 1\nheads = 2\n[task]\nkind = "squad"\nlength = 32\ntrain = "{data}/train.json"\n'
    )
    file = str(data / "dev.json")
    return {
        **{verb: [verb, str(folder / f"{verb}.toml")] for verb in ("pretrain", "finetune")},
        "evaluate": ["evaluate", run, file],
        "predict": ["predict", run, file, str(folder / "out")],
        "answer": ["answer", run, "what ?", "It is wet."],
        "embed": ["embed", run, str(folder / "lines.txt"), str(folder / "v.npz")],
        "bench": ["bench", "bert-base", *NETWORK, "tokens=2000", "vocabulary=99"],
        "overhead": ["bench", "overhead"],
        "task": ["bench", "finetune", *NETWORK],
        "elmo": ["bench", "elmo-small"],
    }


TRAIN = ("pretrain", "finetune")
ASK = ("evaluate", "predict", "answer", "embed")
BENCH = ("bench", "overhead", "task", "elmo")


def device(words: list[str], verb: str, asked: str) -> list[str]:
    return [*words, *(["--device", asked] if verb in ASK else [f"layout.device={asked}"])] if asked else words


@pytest.mark.parametrize("verb", [*TRAIN, *ASK, *BENCH])
@pytest.mark.parametrize(
    ("count", "asked", "taken"),
    [
        (0, "auto", "cpu"),
        (1, "auto", "cuda:0"),
        (2, "auto", "cuda:0"),
        (1, "cuda", "cuda:0"),
        (2, "cuda", "cuda:0"),
        (2, "cuda:1", "cuda:1"),
        (2, "cpu", "cpu"),
    ],
)
def test_every_verb_takes_its_device(
    gpus: Callable[[int], None], made: dict[str, list[str]], verb: str, count: int, asked: str, taken: str
) -> None:
    gpus(count)
    with pytest.raises(Started, match=rf"^{taken}$"):
        cli.main(device(made[verb], verb, asked))


@pytest.mark.parametrize("verb", [*TRAIN, *ASK, *BENCH])
@pytest.mark.parametrize(
    ("count", "asked", "said"),
    [
        (0, "cuda", "found cuda, but torch sees no GPU; name `cpu` or `auto`"),
        (1, "cuda:1", "found cuda:1; wanted cuda:0"),
        (1, "gpu", "found gpu; wanted auto, cpu or cuda"),
    ],
)
def test_a_device_that_is_not_there_is_one_line(
    gpus: Callable[[int], None],
    made: dict[str, list[str]],
    capsys: pytest.CaptureFixture[str],
    verb: str,
    count: int,
    asked: str,
    said: str,
) -> None:
    gpus(count)
    with pytest.raises(SystemExit, match=r"^1$"):
        cli.main(device(made[verb], verb, asked))
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.endswith(said)
    assert ("--device: " if verb in ASK else "device: ") in told


@pytest.mark.parametrize("verb", TRAIN)
@pytest.mark.parametrize(("local", "count", "taken"), [(0, 2, "cuda:0"), (1, 2, "cuda:1"), (1, 0, "cpu")])
def test_each_of_two_processes_takes_its_own(
    gpus: Callable[[int], None],
    made: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    local: int,
    count: int,
    taken: str,
) -> None:
    gpus(count)
    for name, value in (("RANK", local), ("WORLD_SIZE", 2), ("LOCAL_RANK", local), ("LOCAL_WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))
    with pytest.raises(Started, match=rf"^{taken}$"):
        cli.main([*made[verb], "--devices", "2"])


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("more", [[], ["--devices", "2"], ["layout.device=auto"]])
def test_a_dry_run_takes_no_device(
    gpus: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    count: int,
    more: list[str],
) -> None:
    gpus(count)
    monkeypatch.chdir(tmp_path)
    cli.main(["pretrain", "tiny/bert", "--dry-run", *more])
    assert f"accumulation 1 x devices {2 if '--devices' in more else 1}" in capsys.readouterr().out


@pytest.mark.parametrize("verb", [*TRAIN, *ASK])
def test_threads_are_set_before_anything_is_computed(
    gpus: Callable[[int], None], made: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    gpus(0)
    found: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    with pytest.raises(Started):
        cli.main([*made[verb], "--threads", "3"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(Started):
        cli.main(made[verb])
    assert found == [3, 1]


@pytest.mark.parametrize("verb", [*TRAIN, *ASK])
@pytest.mark.parametrize("value", ["0", "-1", "abc", "1e3", "99999"])
def test_threads_that_cannot_be_are_one_line(
    made: dict[str, list[str]], capsys: pytest.CaptureFixture[str], verb: str, value: str
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main([*made[verb], "--threads", value])
    assert capsys.readouterr().err == f"ordsmed: --threads: found {value}; wanted a whole number, 1 to 1,024\n"


@pytest.mark.parametrize("words", [["pretrain", "tiny/bert"], ["finetune", "cola"], ["show", "tiny/bert"]])
@pytest.mark.parametrize("value", ["0", "-1", "abc", "2.0"])
def test_devices_that_cannot_be_are_one_line(capsys: pytest.CaptureFixture[str], words: list[str], value: str) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main([*words, "--devices", value])
    assert capsys.readouterr().err == f"ordsmed: --devices: found {value}; wanted a whole number, 1 or more\n"


def test_more_processes_than_a_machine_bears_are_not_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("ordsmed.base.launch.local._once", lambda *_: pytest.fail("started"))
    with pytest.raises(SystemExit, match=r"^1$"):
        cli.main(["pretrain", "tiny/bert", "--devices", "100000"])
    assert capsys.readouterr().err.startswith("ordsmed: --devices: found 100,000 processes; wanted at most ")


def test_the_trained_folder_is_untouched(made: dict[str, list[str]]) -> None:
    assert not (Path(made["pretrain"][1]).parent / "pretrained").exists()


def test_who_was_started_side_by_side_is_told_to_go_on_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from ordsmed.base.ending import GOES_ON, stop_lines
    from ordsmed.base.launch import local

    assert stop_lines("pretrain", ["a b", "--anew"], GOES_ON).endswith("resume with:\n    ordsmed pretrain 'a b'")
    begun: list[dict[str, str]] = []
    monkeypatch.setattr(local.subprocess, "Popen", lambda command, env, **_: begun.append(env))
    local._process(["pretrain", "x"], 1, 3, 4567)
    monkeypatch.setenv("ORDSMED_DEVICES", begun[0]["ORDSMED_DEVICES"])
    assert stop_lines("pretrain", ["x"], GOES_ON).endswith("resume with:\n    ordsmed pretrain x --devices 3")


def test_an_unknown_recipe_is_no_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["recipes", "stdlb"])
    assert capsys.readouterr().err.startswith("ordsmed: `stdlb`: no built-in recipe and no file; ")
