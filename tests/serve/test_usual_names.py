"""A folder that is served without a name gets a name that is valid in a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordsmed.serve.models import _default_name


@pytest.mark.parametrize(
    ("folder", "name"),
    [("a run", "a-run"), ("50 %#1", "50---1"), ("models", "models-model"), ("tiny-bert", "tiny-bert")],
)
def test_the_name_of_a_folder(folder: str, name: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    assert _default_name(str(tmp_path / folder)) == name
    assert _default_name("google/electra-small") == "google/electra-small", "a published name is itself"
