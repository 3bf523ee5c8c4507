"""What many tests share."""

from __future__ import annotations

import builtins
import errno
import functools
import gc
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import pytest

from kit.absent import ADD_ONS, of_missing_add_on, wanted
from kit.machine import no_gain_by_16_bits
from kit.makers import make_store, synthetic_text
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.say import show_details
from ordsmed.cli import verb

os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir()) / "ordsmed-tests-cache")  # nothing of the user's
no_gain_by_16_bits()  # recipes that name no precision are fp32's, on every machine and in every process
if switch := os.environ.get("ATEN_CPU_CAPABILITY"):  # torch's compiler takes other vectors' kernels out of its cache
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / f"ordsmed-compiled-{switch}")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # bits depend on threads, and those would on what else the machine does

os.environ.pop("COLUMNS", None)  # lines are as wide as they like, whoever looks on
os.unsetenv("COLUMNS")  # pytest imports readline, which tells it to processes that are started, past os.environ
if importlib.util.find_spec("hypothesis"):  # tests/gpu runs where it is not
    from hypothesis import settings
    from hypothesis.configuration import set_hypothesis_home_dir

    set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "ordsmed-hypothesis")  # it writes paths: not in a checkout
    settings.register_profile("daily", deadline=None, max_examples=25)  # a busy machine is no wrong result
    settings.register_profile("full", deadline=None, max_examples=200)
    settings.load_profile("full" if os.environ.get("ORDSMED_GRID") == "full" else "daily")


@pytest.fixture
def details() -> Iterator[None]:
    """As with -v: what is else for the log alone is said aloud."""
    show_details()
    yield
    show_details(False)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of add-ons that are not installed."""
    return of_missing_add_on(collection_path) or None


def pytest_collection_finish() -> None:
    """What is imported stays: it is not looked through again for what could be let go of."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """What a test's fixtures need and is not installed is a reason to skip it."""
    return (yield from skipped_for_want())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """So is what it needs itself."""
    return (yield from skipped_for_want())


def skipped_for_want() -> Iterator[None]:
    try:
        return (yield)
    except Exception as error:
        if package := wanted(error):
            pytest.skip(f"`{package}` is not installed")
        raise


@pytest.fixture(scope="session", autouse=True)
def verbs_of_missing_add_ons_are_skipped() -> Iterator[None]:
    """A test that calls a verb of an add-on is skipped where the add-on is not installed."""
    plain = verb.find

    def find(name: str) -> verb.Verb:
        try:
            return plain(name)
        except UsageError as error:
            if "of the add-on" in str(error):
                pytest.skip(str(error))
            raise

    with pytest.MonkeyPatch.context() as patched:
        if ADD_ONS:
            patched.setattr(verb, "find", find)
        yield


@pytest.fixture(scope="session", autouse=True)
def disks_are_not_waited_for() -> Iterator[None]:
    """No test takes the power away, so a file that is synced need not have reached the disk: a third of the waiting.

    What is no file is refused as ever; `synced` (below) sees each call.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: os.fstat(handle) and None)
        yield


@pytest.fixture(scope="session", autouse=True)
def files_of_what_was_refused_are_closed() -> Iterator[None]:
    """What was being read is let go of with the error that `pytest.raises` caught, at once and in its order.

    Error, frames and a test's own variable are a circle, which is found whenever it is looked for: a file in it may
    come before who would close it, and the warning of that was some later test's.
    """
    plain = pytest.RaisesExc.__exit__

    def left(self: Any, kind: Any, error: Any, trace: Any) -> bool:
        caught = plain(self, kind, error, trace)
        while caught and error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__
        return caught

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pytest.RaisesExc, "__exit__", left)
        yield


@pytest.fixture(autouse=True)
def remedies_are_valid(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every error that a test raises in this process advises only commands, options and settings that exist."""
    raised: list[OrdsmedError] = []
    plain = OrdsmedError.__init__

    @functools.wraps(plain)
    def noted(error: OrdsmedError, *parts: Any, **named: Any) -> None:
        plain(error, *parts, **named)
        callers = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(None))
        if not any(name.startswith("ordsmed.others.") for name in callers):  # whose options are those of other programs
            raised.append(error)

    monkeypatch.setattr(OrdsmedError, "__init__", noted)
    yield
    advising = [error for error in raised if re.search("`|--", f"{error.wanted}{error.remedy}")]
    if advising and not ADD_ONS:  # whose commands are among the remedies
        from kit import remedies

        wrong = [
            f"{error}: {fault}"
            for error in advising
            for fault in remedies.of_error(error.place, error.wanted, error.remedy)
        ]
        assert not wrong, "\n".join(dict.fromkeys(wrong))


@pytest.fixture(autouse=True)
def environment_again() -> Iterator[None]:
    """What a test leaves in the environment is no other's: starting Dask's workers sets MKL_NUM_THREADS for good."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(autouse=True)
def denormals_again() -> Iterator[None]:
    """Training in this process flushes subnormal numbers to 0; the next test has them again."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real public data beside the checkout; tests that need them are skipped where there are none."""
    path = Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no shared data beside this checkout")
    return path


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is pushed to the disk ("sync", its path) and what is renamed ("rename", to what), in order."""
    told, sync = list[tuple[str, str]](), os.fsync

    def renamed(inner: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path, target: (inner(path, target), told.append(("rename", os.fspath(target))))[0]

    monkeypatch.setattr(
        os, "fsync", lambda handle: (sync(handle), told.append(("sync", os.readlink(f"/proc/self/fd/{handle}"))))[0]
    )
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, renamed(getattr(os, name)))
    return told


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a folder one that may only be read, for root too: what would change it meets the system's error."""

    def close(folder: Path, number: int = errno.EROFS) -> None:
        def guarded(inner: Callable[..., Any], writes: Callable[..., bool]) -> Callable[..., Any]:
            def call(path: Any, *args: Any, **how: Any) -> Any:
                inside = not isinstance(path, int) and Path(os.fsdecode(path)).absolute().is_relative_to(folder)
                if inside and writes(*args, **how):
                    raise OSError(number, os.strerror(number), os.fspath(path))
                return inner(path, *args, **how)

            return call

        def asked(mode: str = "r", *_: Any, **how: Any) -> bool:
            return bool(set("wax+") & set(how.get("mode", mode)))

        writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
        for name in ("mkdir", "unlink", "rmdir", "rename", "replace", "remove"):
            monkeypatch.setattr(os, name, guarded(getattr(os, name), lambda *_, **__: True))
        monkeypatch.setattr(os, "open", guarded(os.open, lambda flags, *_, **__: bool(flags & writing)))
        monkeypatch.setattr(io, "open", guarded(io.open, asked))
        monkeypatch.setattr(builtins, "open", io.open)

    return close


@dataclass(frozen=True)
class TinyRuns:
    """Two finished runs on the same invented sentences, and the stores they learned from."""

    folder: Path
    bert: Path
    gpt2: Path


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> TinyRuns:
    """A BERT and a GPT-2 of two layers, trained a few steps through corpus, tokenizer, encode and pretrain."""
    from ordsmed.train.pretrain.pretrain import pretrain

    folder = tmp_path_factory.mktemp("tiny")
    (folder / "texts.txt").write_text(synthetic_text(60), encoding="utf-8")
    _recipe(folder, "corpus", TINY_CORPUS)
    found = {}
    for model, kind in (("bert", "wordpiece"), ("gpt2", "bytebpe")):
        _recipe(folder, f"tokenizer-{model}", TINY_TOKENIZER, kind=kind, size=300)
        _recipe(folder, f"encode-{model}", TINY_ENCODE, model=model)
        learned = {"model": model, "objective": "mlm" if model == "bert" else "clm"}
        found[model] = pretrain(str(_recipe(folder, f"pretrain-{model}", TINY_PRETRAIN, **learned)))
    return TinyRuns(folder, **found)


@pytest.fixture(scope="session")
def tiny_roberta(tiny_run: TinyRuns) -> Path:
    """The same sentences encoded with a tokenizer in RoBERTa's order."""
    from ordsmed.base import run
    from ordsmed.data.encode import Encoding

    made = _recipe(
        tiny_run.folder, "tokenizer-roberta", TINY_TOKENIZER + 'order = "roberta"\n', kind="bytebpe", size=300
    )
    made.write_text(made.read_text().replace("tokenizer-bytebpe", "tokenizer-roberta"))
    return run.obtain(Encoding, str(_recipe(tiny_run.folder, "encode-roberta", TINY_ENCODE, model="roberta")))


@pytest.fixture(scope="session")
def tiny_words(tiny_run: TinyRuns) -> Path:
    """The same sentences encoded as whole words."""
    from ordsmed.base import run
    from ordsmed.data.encode import Encoding

    _recipe(tiny_run.folder, "tokenizer-words", TINY_TOKENIZER + "least = 2\n", kind="words", size=40)
    return run.obtain(Encoding, str(_recipe(tiny_run.folder, "encode-words", TINY_ENCODE, model="words")))


def _recipe(folder: Path, name: str, text: str, **values: object) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(Template(text).substitute(folder=folder.as_posix(), **values), encoding="utf-8")
    return path


TINY_CORPUS = """
validation = 0.1
language = "en"
licence = "CC0-1.0"
title = "Invented sentences"
out = "$folder/corpus"
[source]
kind = "text"
path = "$folder/texts.txt"
"""
TINY_TOKENIZER = """
corpus = "$folder/corpus.toml"
out = "$folder/tokenizer-$kind"
[tokenizer]
kind = "$kind"
size = $size
"""
TINY_ENCODE = """
corpus = "$folder/corpus.toml"
tokenizer = "$folder/tokenizer-$model.toml"
out = "$folder/encode-$model"
"""
TINY_PRETRAIN = """
data = "$folder/encode-$model.toml"
out = "$folder/$model"
save = 4
keep = 2
validate = 4
validation_rows = 8
layout = { device = "cpu", precision = "fp32" }
[model]
kind = "$model"
width = 64
layers = 2
heads = 2
positions = 64
[objective]
kind = "$objective"
[[phase]]
steps = 8
length = 32
batch = 4
learning_rate = 1e-3
warmup = 2
[[phase]]
steps = 4
length = 64
batch = 4
learning_rate = 5e-4
"""


@pytest.fixture(scope="session")
def nursery() -> Iterator[Callable[..., Any]]:
    """Ask the nursery (kit/nursery.py): {"words", "env"} -> process id, {"poll": process id} -> exit status.

    `lab.faulty` (kit/lab) can be named by its recipes.
    """
    kit = Path(__file__).parent / "kit"
    path = os.pathsep.join([str(kit), str(kit.parent), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, kit / "nursery.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
    ) as process:
        assert process.stdin
        assert process.stdout

        def ask(**asked: Any) -> Any:
            assert process.stdin
            assert process.stdout
            print(json.dumps(asked), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        assert ask() == "ready"
        yield ask
        process.stdin.close()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoded folder of text made from a seed."""
    return make_store(tmp_path_factory.mktemp("data") / "store")


@pytest.fixture
def recipe(store: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write a pretraining recipe over `store`; keywords change its text."""

    def write(
        name: str = "run", kind: str = "bert", objective: str = "mlm", steps: int = 12, extra: str = "", **top: object
    ) -> Path:
        top = {"data": str(store), "out": str(tmp_path / name), "save": 4, "validate": 6, "validation_rows": 8, **top}
        lines = [f"{key} = {value!r}".replace("'", '"') for key, value in top.items()]
        lines += ["[layout]", 'device = "cpu"', "threads = 1", 'precision = "fp32"']
        lines += ["[model]", f'kind = "{kind}"', "width = 32", "layers = 2", "heads = 2", "positions = 64"]
        lines += ["[objective]", f'kind = "{objective}"']
        lines += [
            "[[phase]]",
            f"steps = {steps}",
            "length = 32",
            "batch = 8",
            "learning_rate = 2e-3",
            "warmup = 2",
            extra,
        ]
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write
