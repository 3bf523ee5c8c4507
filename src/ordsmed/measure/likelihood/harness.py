r"""A task of lm-evaluation-harness (tasks/*.yaml) as settings of the probe `choices`.

doc_to_text: "Question: {{goal}}\\nAnswer:"      ->  text = ...
doc_to_choice: "{{[sol1, sol2]}}"               ->  choices = ...
doc_to_target: label                            ->  right = ...

A key that the probe does not support is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ordsmed.base.errors import RecipeError

NAMES = {
    "doc_to_text": "text",
    "doc_to_choice": "choices",
    "doc_to_target": "right",
    "description": "description",
    "target_delimiter": "delimiter",
    "metric_list": "metrics",
    "dataset_kwargs": "files",
}
IDLE = (  # keys that change no result here
    "dataset_name dataset_path doc_to_decontamination_query fewshot_config fewshot_delimiter fewshot_split "
    "generation_kwargs group group_alias metadata num_fewshot output_type should_decontaminate tag task task_alias "
    "test_split training_split validation_split"
)
COPY = "write the task as TOML (docs/evaluation.md)"


class _Function(str):
    """Name of a Python function that a task refers to."""


def read(path: Path, overridden: set[str]) -> dict[str, Any]:
    """Return the settings of the probe, without those in `overridden`."""
    table = _loaded(path, ())
    if table.get("output_type") != "multiple_choice":
        wrong = f"is a task of `{table.get('output_type', 'no output_type')}`"
        raise RecipeError(path, wrong, "output_type: multiple_choice")
    if table.get("num_fewshot"):
        raise RecipeError(
            f"{path}: num_fewshot", f"found {table['num_fewshot']}", "0, as few-shot examples are not supported", COPY
        )
    settings: dict[str, Any] = {}
    for key, value in table.items():
        name = NAMES.get(key, "")
        if name in overridden or key in IDLE.split():
            continue
        if isinstance(value, _Function):
            raise RecipeError(f"{path}: {key}", f"is the Python function {value}", "a template", COPY)
        if not name:
            raise RecipeError(f"{path}: {key}", "is not supported", "a task without it", COPY)
        if name == "metrics":
            value = [entry.get("metric") for entry in value]
        elif name == "files":
            files = value.get("data_files")
            if table.get("dataset_path") not in ("json", "csv", "parquet") or not files:
                raise RecipeError(
                    f"{path}: dataset_kwargs", "names no local files", "data_files of json, csv or parquet"
                )
            if isinstance(files, dict):
                files = files.get(table.get("test_split") or table.get("validation_split") or "", [])
            value = [files] if isinstance(files, str) else files
        settings[name] = list(value.values()) if isinstance(value, dict) else value
    if "files" not in {**settings, **dict.fromkeys(overridden)}:
        wrong = f"its data is `{table.get('dataset_path')}` of the Hugging Face hub"
        raise RecipeError(path, wrong, "local files", f"--probe choices DATA.parquet file={path}")
    return {"metrics": ["acc"], **settings}


def _loaded(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Read a file, merged over the files that it includes; `above` are the files that include it."""
    try:
        import yaml
    except ImportError:
        raise RecipeError(path, "`pyyaml` is not installed", "", "pip install pyyaml") from None

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: _Function(loader.construct_scalar(node)))
    try:
        table = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(path, f"cannot be read: {' '.join(str(error).split())}", "a task, YAML") from None
    if not isinstance(table, dict) or path in above:
        raise RecipeError(path, "includes itself" if path in above else "holds no keys", "a task, YAML")
    included = table.pop("include", [])
    for name in reversed([included] if isinstance(included, str) else included):
        table = {**_loaded(path.parent / name, (*above, path)), **table}
    return table
