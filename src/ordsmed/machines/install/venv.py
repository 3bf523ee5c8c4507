"""A venv on top of a PyTorch module, or with PyTorch from wheels or from source; optionally with a modulefile.

prefix/.ordsmed-0.3.0+g1a2b3c4d.x7Gh2k (venv) <- prefix/ordsmed-0.3.0+g1a2b3c4d (link, made last) <- modulefiles/
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ordsmed.machines.install import shell
from ordsmed.machines.install.plan import EESSI_MODULES, SOURCE_TORCH, Installation

BUILT = {
    "tokenizers": "Rust",
    "safetensors": "Rust",
    "numpy": "C and C++ compilers",
    "msgspec": "a C compiler",
    "zstandard": "a C compiler",
    "torch": "C++ compilers, CMake, and CUDA for GPUs",
}


def files(work: Installation) -> dict[str, str]:
    texts = {"install.sh": shell.script(_lines(work)), **work.lock_files()}
    if work.torch == "source":
        texts["torch-from-source.sh"] = shell.script(_source(work))
    if work.flavor == "module":
        texts[f"{work.name}.lua"] = shell.script(_modulefile(work))
    return texts


def _lines(work: Installation) -> Iterator[str]:
    yield from shell.head(work)
    if work.flavor == "eessi":
        yield f'[ -d {EESSI_MODULES} ] || stop "{EESSI_MODULES}: no such folder; without EESSI use another --by"'
    yield from shell.modules(work, work.modules)
    yield from shell.python(work)
    torch_check = shlex.quote(shell.torch_check(work))
    if work.torch == "modules":
        yield f'step "PyTorch of the modules" "$python" -c {torch_check}'
    yield from shell.wheel(work)
    yield from shell.new_folder()
    if work.flavor == "module":
        yield 'step "its modulefile" cp "$version.lua" "$new/modulefile.lua"'
    inherit = " --system-site-packages" if work.torch == "modules" else ""
    yield f'step "a venv" "$python" -m venv{inherit} "$new"'
    yield 'pip() { "$new/bin/python" -m pip --disable-pip-version-check "$@"; }'
    if work.arch == "ppc64le":
        needs = "; ".join(f"{name}: {compiler}" for name, compiler in BUILT.items() if name != "torch")
        yield f"# there are no wheels for ppc64le: pip builds the packages ({needs})"
    yield from shell.pinned(work, '"$new/bin/python"')
    if work.torch == "source":
        yield "# there is no PyTorch wheel for this machine: build one, unless it exists"
        yield 'built="$prefix/wheels"'
        yield 'ls "$built"/torch-*.whl >/dev/null 2>&1 ||'
        yield '    step "PyTorch from its source" bash torch-from-source.sh "$built"'
        yield 'step "PyTorch that was built here" pip install --no-deps "$built"/torch-*.whl'
    yield f'step "PyTorch of this venv" "$new/bin/python" -c {torch_check}'
    yield 'step "ordsmed by pip" pip install --no-index --no-deps ./ordsmed-*.whl'
    yield from shell.verified(work, '"$new/bin/ordsmed"')
    yield from shell.description(work, '"$new/bin/ordsmed"', f"ordsmed-{work.name}", **_start(work))
    yield shell.LINK
    if work.flavor == "module":
        yield 'menu="$prefix/modulefiles/ordsmed"'
        yield 'step "a modulefile" mkdir -p "$menu"'
        yield 'step "a modulefile" cp "$new/modulefile.lua" "$menu/.$version.part"'
        yield 'mv -f "$menu/.$version.part" "$menu/$version.lua"'
    yield shell.SAVE_RECORD
    if work.flavor == "module":
        yield 'echo "installed: module use $prefix/modulefiles; module load ordsmed/$version"'
    else:
        yield 'echo "installed: $prefix/ordsmed-$version/bin/ordsmed"'


def _start(work: Installation) -> dict[str, object]:
    if work.flavor == "module":
        menu = work.prefix / "modulefiles"
        before = [f"module use {shlex.quote(str(menu))}", "module unload ordsmed", f"module load ordsmed/{work.name}"]
        return {"before": before, "start": ["ordsmed"], "modulefile": f"modulefiles/ordsmed/{work.name}.lua"}
    lines = [*work.place.partition.before, *work.place.site.use] if work.modules else []
    before = [*lines, *(f"module load {shlex.quote(name)}" for name in work.modules)]
    return {"before": before, "start": [str(work.prefix / f"ordsmed-{work.name}/bin/ordsmed")]}


def _modulefile(work: Installation) -> Iterator[str]:
    at = f"{work.prefix}/ordsmed-{work.name}"
    yield f"-- ordsmed {work.name} on {work.title}"
    yield f"help([[Ordsmed {work.name}: pretraining of language models. `ordsmed --help`.]])"
    yield 'whatis("Name: ordsmed")'
    yield f'whatis("Version: {work.name}")'
    yield 'conflict("ordsmed")'
    for line in (*work.place.partition.before, *work.place.site.use):
        match shlex.split(line):
            case ["module", "use", *folders]:
                yield from (f'prepend_path("MODULEPATH", "{folder}")' for folder in reversed(folders))
            case ["module", "load", *names]:
                yield from (f'depends_on("{name}")' for name in names)
            case _:
                yield f"-- first: {line}"
    yield from (f'depends_on("{name}")' for name in work.modules)
    yield f'prepend_path("PATH", "{at}/bin")'
    yield 'setenv("PYTHONNOUSERSITE", "1")'


def _source(work: Installation) -> Iterator[str]:
    """Yield a script that builds PyTorch by the steps of its README, for machines without wheels."""
    gpu = work.place.partition.model
    yield "#!/bin/bash"
    yield f"# build a wheel of PyTorch {SOURCE_TORCH} for {work.title} in the folder $1; it takes hours on all cores"
    yield "# it needs git, GCC, CMake, Ninja" + (", and CUDA with cuDNN from the site's modules" if gpu else "")
    yield "set -euo pipefail"
    yield 'into=$1 && mkdir -p "$into" && into=$(cd "$into" && pwd)'
    if work.arch == "ppc64le" and gpu:
        yield "release=$(nvcc --version | sed -n 's/.*release \\([0-9]*\\)\\.\\([0-9]*\\).*/\\1 \\2/p')"
        yield '[ -n "$release" ] || { echo "nvcc: is not here; load a module of CUDA 12.4 or older" >&2; exit 1; }'
        yield 'read -r major minor <<<"$release"'
        yield 'if [ "$major" -gt 12 ] || { [ "$major" = 12 ] && [ "$minor" -gt 4 ]; }; then'
        yield '    echo "nvcc: found CUDA $major.$minor; wanted 12.4 or older, the last for ppc64le" >&2; exit 1'
        yield "fi"
    yield "work=$(mktemp -d) && trap 'rm -rf \"$work\"' EXIT"
    yield f"git clone --depth 1 --recurse-submodules --shallow-submodules --branch v{SOURCE_TORCH} \\"
    yield '    https://github.com/pytorch/pytorch "$work/pytorch"'
    yield 'python3 -m venv "$work/build" && export PATH="$work/build/bin:$PATH" && cd "$work/pytorch"'
    yield "python -m pip install -r requirements.txt"
    yield f"export PYTORCH_BUILD_VERSION={SOURCE_TORCH} PYTORCH_BUILD_NUMBER=1 BUILD_TEST=0 USE_KINETO=0"
    if gpu and not gpu.amd:
        yield f"export USE_CUDA=1 TORCH_CUDA_ARCH_LIST={gpu.capability}"
    elif not gpu:
        yield "export USE_CUDA=0"
    yield 'python -m pip wheel --no-deps --no-build-isolation --wheel-dir "$into" .'
