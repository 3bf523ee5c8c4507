"""A complaint in one line, and the names that were perhaps meant."""

from __future__ import annotations

import errno
import os
import pickle

import pytest

from ordsmed.base import errors, files
from ordsmed.base.errors import DataError, Lost, OrdsmedError, RecipeError, RunError, near, nearest


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (("here", "found that"), "here: found that"),
        (("here", "found that", "this"), "here: found that; wanted this"),
        (("here", "found that", "", "do so"), "here: found that; do so"),
        (("here", "found that", "this", "do so"), "here: found that; wanted this; do so"),
    ],
)
@pytest.mark.parametrize("kind", [RecipeError, DataError, RunError])
def test_a_complaint_is_one_line_and_travels_between_processes(
    kind: type[OrdsmedError], parts: tuple[str, ...], line: str
) -> None:
    error = kind(*parts)
    again = pickle.loads(pickle.dumps(error))
    assert str(error) == str(again) == line
    assert type(again) is kind
    assert (again.place, again.found, again.wanted, again.remedy) == (*parts, "", "")[:4]
    assert not error.echo, "nobody else tells it"


def test_the_nearest_name_is_offered() -> None:
    names = ["linear", "cosine", "constant", "polynomial"]
    assert nearest("cosin", names) == "did you mean `cosine`?"
    assert nearest("xyz", names) == "there are: constant, cosine, linear, polynomial"


@pytest.mark.parametrize(
    ("word", "names", "alike"),
    [
        ("top_k", ["top-k", "top-p"], ["top-k"]),
        ("conll2003", ["conll-2000", "conll-2003"], ["conll-2003"]),
        ("spilt", ["split", "stats"], ["split"]),
        ("mln", ["mlm", "clm"], ["mlm"]),
        ("lerning_rate", ["length", "learning_rate"], ["learning_rate"]),
        ("eval", ["evaluate", "embed"], ["evaluate"]),
        ("brt", ["bert", "bart", "gpt2"], ["bart", "bert"]),
        ("gpu", ["cpu", "gpus"], ["gpus"]),
        ("data", ["dataloader_num_workers"], []),
        ("bert", ["bert-a", "bert-b", "bert-c", "bert-d"], []),
        ("nowhere", ["power9", "lumi"], []),
        ("camembert", ["modernbert", "bert"], []),
        ("lang", ["--anew"], []),
        ("lr", ["--for", "l"], []),
        ("", ["a"], []),
    ],
)
def test_only_a_name_that_is_really_near_is_meant(word: str, names: list[str], alike: list[str]) -> None:
    assert near(word, names) == alike


def test_of_many_names_a_few_are_listed() -> None:
    names = [f"{n:02}-name" for n in range(errors.MAX_LISTED + 1)]
    assert nearest("xyz", names[:-1]) == "there are: " + ", ".join(names[:-1])
    assert nearest("xyz", names) == "there are: " + ", ".join(names[:10]) + " ... and 31 others"


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "processes: the system allows no more of them"),
        (RuntimeError("RuntimeError: can't start new thread"), "the system allows no more of them"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), "process 7 was killed"),
        (RuntimeError("DataLoader worker (pid(s) 7, 8) exited unexpectedly"), "process 7, 8 was killed"),
        (BlockingIOError(errno.EAGAIN, "write could not complete without blocking"), ""),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ""),
    ],
)
def test_a_lost_process_is_told_apart_from_other_errors(error: Exception, found: str) -> None:
    with pytest.raises(Lost if found else type(error)) as raised, errors.lost_processes():
        raise error
    assert found in str(raised.value)
    assert Lost.status == 75, "which a job tries again"


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (OSError("libcudart.so.12: cannot open shared object file: No such file or directory"), "a library"),
        (ImportError("/lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by x.so)"), "a library"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "disk"),
        (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "processes"),
    ],
)
def test_a_refusal_of_the_system_names_its_place(error: Exception, place: str) -> None:
    with pytest.raises(RunError) as raised, files.errors_in_one_line():
        raise error
    assert raised.value.place == place
    assert str(error).removeprefix("[Errno 5] ").removeprefix("[Errno 11] ") in str(raised.value)


def test_a_module_that_is_not_installed_is_no_broken_library() -> None:
    with pytest.raises(ModuleNotFoundError), files.errors_in_one_line():
        raise ModuleNotFoundError("No module named 'x'")
