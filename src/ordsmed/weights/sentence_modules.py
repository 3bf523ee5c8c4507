"""How a sentence-transformers folder makes vectors: modules after its network, prompts, similarity.

modules.json                        Transformer, Pooling, Normalize        ->  settings of a task that learns vectors
1_Pooling/config.json               mean, first or last token
sentence_bert_config.json           maximum tokens of a text
config_sentence_transformers.json   prompts, similarity

A folder with custom code is always refused. An unknown module is refused if vectors are needed. If only the network is
needed, a message lists the modules that are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.say import say
from ordsmed.nn.config import expect, short, table_of
from ordsmed.text.tokenizer import Tokenizer

PREFIX = "sentence_transformers."
MODULES, COMPARED = "modules.json", "config_sentence_transformers.json"
NETWORKS = ("Transformer", "MLMTransformer")
DENSE = ["Pooling", "Normalize"]
SPARSE = ["SpladePooling"]
POOLS = {"mean": "mean", "cls": "first", "lasttoken": "last"}  # sentence-transformers' names -> this library's
OLDER = "pooling_mode_"  # keys of older folders: pooling_mode_cls_token: true
PASSAGES = ("document", "passage", "corpus")  # names of the passage prompt; the first that exists is used
REMEDY = "`init=` of a training uses only its network"


def check_code(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise DataError if the network of a sentence-transformers folder, or a module after it, is custom code."""
    rows, path = _rows(folder), folder / MODULES
    code = next((name for name in map(_class_of, rows) if not name.startswith(PREFIX)), "")
    if not code and config.get("auto_map") and (rows or "sentence_transformers" in config):
        path, code = folder / "config.json", f"auto_map, {short(config['auto_map'])}"
    if code:
        problem = f"names custom code ({code}), which is never run"
        raise DataError(path, problem, "modules of sentence-transformers and a network of a known family")


def behind(folder: Path) -> list[str]:
    """Return the class names of the modules after the network; empty if the folder makes no vectors."""
    kinds = [_class_of(row).rpartition(".")[2] for row in _rows(folder)]
    return kinds[1:] if kinds[:1] and kinds[0] in NETWORKS else kinds


def report_ignored(folder: Path) -> None:
    """Say which modules and prompts are ignored when only the network of a folder is used."""
    if modules := behind(folder):
        prompts = [name for name, text in _prompts(folder).items() if text]
        more = f", and its prompts {', '.join(prompts)}" if prompts else ""
        say(f"{folder}: only its network is used; {', '.join(modules)} of {MODULES} are ignored{more}")


def vectors_of(folder: Path, longest: int) -> dict[str, Any] | None:
    """Return how texts become vectors, as settings of a task that learns them; None if the folder does not say.

    Args:
        longest: maximum tokens that the network reads.
    """
    kinds = behind(folder)
    if not kinds:
        return None
    folders = _folders(folder, kinds)
    pooling = folders[0] / "config.json"
    prompts = _prompts(folder)
    table: dict[str, Any] = _sparse(pooling) if kinds == SPARSE else _dense(pooling, prompts, kinds == DENSE)
    if len(folders) > 1 and (folders[1] / "config.json").is_file():
        _check(folders[1] / "config.json", module_input_name=("sentence_embedding",))
    table |= _similarity(folder, "cosine" if table.get("normalize") else "dot", sparse=kinds == SPARSE)
    return {**table, **_group_prompts(folder, prompts), "length": _length(folder, longest)}


def _rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / MODULES
    rows = files.read_json(path) if path.is_file() else []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(path, f"found {short(rows)}", "a list of modules, as sentence-transformers writes it")
    return rows


def _class_of(row: dict[str, Any]) -> str:
    return str(row.get("type", ""))


def _folders(folder: Path, kinds: list[str]) -> list[Path]:
    path, rows = folder / MODULES, _rows(folder)
    if len(kinds) == len(rows) or kinds not in (DENSE[:1], DENSE, SPARSE):
        unknown = [kind for kind in kinds if kind not in DENSE] or [_class_of(row).rpartition(".")[2] for row in rows]
        raise DataError(path, f"found modules {', '.join(unknown)}", "Transformer, Pooling, Normalize", REMEDY)
    if rows[0].get("path"):
        raise DataError(path, f"found the network in {short(rows[0]['path'])}", "a path next to modules.json")
    return [folder / str(row.get("path", "")) for row in rows[1:]]


def _dense(path: Path, prompts: dict[str, str], normalize: bool) -> dict[str, Any]:
    table = files.read_table(path)
    older = [key.removeprefix(OLDER) for key, value in table.items() if key.startswith(OLDER) and value]
    modes = table.get("pooling_mode", [mode.removesuffix("_token").removesuffix("_tokens") for mode in older] or "mean")
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLS:
        raise DataError(path, f"pooling_mode: found {short(modes)}", " or ".join(POOLS), REMEDY)
    if any(prompts.values()):
        _check(path, include_prompt=(True,))
    return {"pool": POOLS[modes[0]], "normalize": normalize}


def _sparse(path: Path) -> dict[str, Any]:
    _check(path, pooling_strategy=("max",), activation_function=("relu",))
    return {"head": "sparse"}


def _similarity(folder: Path, usual: str, *, sparse: bool) -> dict[str, str]:
    path = folder / COMPARED
    named = files.read_table(path).get("similarity_fn_name") if path.is_file() else None
    name = named or ("dot" if sparse else "cosine")  # the defaults of sentence-transformers
    if name not in (("dot",) if sparse else ("cosine", "dot")):
        raise DataError(path, f"similarity_fn_name: found {short(name)}", "dot" if sparse else "cosine or dot", REMEDY)
    return {} if name == usual else {"similarity": name}


def _prompts(folder: Path) -> dict[str, str]:
    path = folder / COMPARED
    try:
        table = table_of(files.read_table(path), "prompts") if path.is_file() else {}
    except ValueError as error:
        raise DataError(path, f"{error}") from None
    if wrong := [name for name, text in table.items() if not isinstance(text, str | None)]:
        raise DataError(path, f"prompts: found {short(table[wrong[0]])} as {wrong[0]}", "a text")
    return {name: text or "" for name, text in table.items()}


def _group_prompts(folder: Path, prompts: dict[str, str]) -> dict[str, str]:
    """Return the prompts of queries and passages, and say which other prompts are ignored."""
    passage = next((name for name in PASSAGES if prompts.get(name)), "")
    unused = [name for name, text in prompts.items() if text and name not in ("query", passage)]
    path = folder / COMPARED
    usual = files.read_table(path).get("default_prompt_name") if path.is_file() else None
    if unused:
        say(f"{path}: prompts {', '.join(unused)} are not used; --prompt query and passage are")
    if usual and prompts.get(str(usual)):
        say(f"{path}: without --prompt no prompt is put before a text, not even its default prompt {usual}")
    return {"query": prompts.get("query", ""), "passage": prompts.get(passage, "")}


def _length(folder: Path, longest: int) -> int:
    """Return the maximum tokens of a text, as the network's module or the tokenizer says, but at most `longest`."""
    path = next((path for path in sorted(folder.glob("sentence_*_config.json")) if path.name != COMPARED), None)
    table = files.read_table(path) if path else {}
    if path:
        lower = (False, True) if _is_lowercase(folder) else (False,)
        plain = {"query_length": (None,), "document_length": (None,), "query_expansion": (None,)}
        _check(path, do_lower_case=lower, module_output_name=(None, "token_embeddings"), **plain)
    location, key = path, "max_seq_length"
    if table.get(key) is None:
        location, key = folder / "tokenizer_config.json", "model_max_length"
        table = files.read_table(location) if location.is_file() else {}
    try:
        return longest if table.get(key) is None else min(int(table[key]), longest)
    except (TypeError, ValueError):
        raise DataError(location, f"{key}: found {short(table[key])}", "a whole number") from None


def _is_lowercase(folder: Path) -> bool:
    pipeline = Tokenizer.load(folder).pipeline
    return bool(pipeline.encode("A Bc").ids == pipeline.encode("a bc").ids)


def _check(path: Path, **understood: tuple[Any, ...]) -> None:
    try:
        expect(files.read_table(path), **understood)
    except ValueError as error:
        raise DataError(path, f"{error}", "", REMEDY) from None
