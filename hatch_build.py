"""What a build adds to the package: the commit that it is built from, which `ordsmed version` names."""

from __future__ import annotations

import json
import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Of a checkout; a source distribution holds the file already, an editable installation asks git."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, "src/ordsmed")
        code = runpy.run_path(str(source / "base/identity.py"))
        commit, changed = code["commit_of"](source)
        if version == "editable" or not commit or (source / code["STAMP"]).exists():
            return
        self.folder = tempfile.TemporaryDirectory(prefix="ordsmed-build-")
        stamp = Path(self.folder.name, code["STAMP"])
        stamp.write_text(json.dumps({"commit": commit, "changed": changed}) + "\n", encoding="utf-8")
        place = "src/ordsmed" if self.target_name == "sdist" else "ordsmed"
        build_data["force_include"][str(stamp)] = f"{place}/{stamp.name}"
