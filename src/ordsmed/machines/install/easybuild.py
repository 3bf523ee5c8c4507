"""An easyconfig in NLPL's naming, one module per package and toolchain, on top of EasyBuild's PyTorch.

PyTorch/2.9.1-foss-2024a-CUDA-12.6.0 -> nlpl-ordsmed/0.1.0-foss-2024a-cuda-12.6.0-Python-3.12.3
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from ordsmed.base.errors import RecipeError, nearest
from ordsmed.machines.doctor.host import within
from ordsmed.machines.install import lock, shell
from ordsmed.machines.install.plan import Installation

USUAL = "PyTorch/2.9.1-foss-2024a"
CUDA = "-CUDA-12.6.0"


@dataclass(frozen=True)
class Generation:
    python: str
    binutils: str
    packages: str
    scipy: str
    tokenizers: str
    numpy: str  # in the bundle of `scipy`
    filelock: str  # in the bundle of `packages`, like the next fields
    rich: str
    idna: str
    jinja2: str


GENERATIONS = {
    "2024a": Generation("3.12.3", "2.42", "2024.06", "2024.05", "0.21.4", "1.26.4", "3.15.1", "13.7.1", "3.7", "3.1.4"),
    "2025a": Generation("3.13.1", "2.42", "2025.04", "2025.06", "0.22.2", "2.3.1", "3.18.0", "14.0.0", "3.10", "3.1.6"),
}
PINNED = ("msgspec", "tomli-w", "zstandard")  # not in EasyBuild's collection; built from source
AS_WHEEL = "safetensors"  # EasyBuild's version is too old, and building it needs Rust
OF_ORDSMED = "0" * 64  # placeholder for the digest of the wheel that install.sh builds


@dataclass(frozen=True)
class TorchModule:
    version: str
    year: str
    cuda: str

    @property
    def suffix(self) -> str:
        return f"-cuda-{self.cuda}" if self.cuda else ""


def torch_module(work: Installation) -> TorchModule:
    """Return the PyTorch module that the user named, else the newest one of EasyBuild's collection."""
    usual = USUAL + (CUDA if work.place.partition.gpu != "none" else "")
    named = [name for name in work.modules if name.startswith("PyTorch/") and "foss" in name]
    name = named[0] if named else usual
    match = re.fullmatch(r"PyTorch/([\d.]+)-foss-(\d{4}[ab])(?:-CUDA-([\d.]+))?", name)
    if not match:
        raise RecipeError("--module", f"found {name}", f"one as EasyBuild names it: {usual}")
    version, year, cuda = match.groups()
    if year not in GENERATIONS:
        problem = f"found {name}; {nearest(year, GENERATIONS)}"
        raise RecipeError("--module", problem, "", "older toolchains have a Python before 3.11 or no tokenizers")
    if not within(version, least := f">={work.torch_least}"):
        raise RecipeError("--module", f"found {name}", f"PyTorch {least}", f"the collection has {usual}")
    return TorchModule(version, year, cuda or "")


def name(work: Installation) -> str:
    torch = torch_module(work)
    return f"nlpl-ordsmed/{work.version}-foss-{torch.year}{torch.suffix}-Python-{GENERATIONS[torch.year].python}"


def files(work: Installation) -> dict[str, str]:
    easyconfig = f"{name(work).replace('/', '-')}.eb"
    return {easyconfig: shell.script(_easyconfig(work)), "install.sh": shell.script(_lines(work, easyconfig))}


def _easyconfig(work: Installation) -> Iterator[str]:
    torch = torch_module(work)
    has = GENERATIONS[torch.year]
    yield "easyblock = 'PythonBundle'"
    yield "\nname = 'nlpl-ordsmed'"
    yield f"version = '{work.version}'"
    yield f"versionsuffix = '{torch.suffix}-Python-%(pyver)s'"
    yield "\nhomepage = 'https://github.com/ltgoslo'"
    yield 'description = """Ordsmed: pretraining of contextual language models, from raw text to a folder that Hugging'
    yield 'Face loads; on one device or on many nodes."""'
    yield f"\ntoolchain = {{'name': 'foss', 'version': '{torch.year}'}}"
    yield f"\nbuilddependencies = [('binutils', '{has.binutils}')]"
    yield "\ndependencies = ["
    yield f"    ('Python', '{has.python}'),"
    yield f"    ('Python-bundle-PyPI', '{has.packages}'),"
    yield f"    ('SciPy-bundle', '{has.scipy}'),"
    cuda = f", '-CUDA-{torch.cuda}'" if torch.cuda else ""
    yield f"    ('PyTorch', '{torch.version}'{cuda}),"
    yield f"    ('tokenizers', '{has.tokenizers}'),"
    yield "]"
    yield "\nexts_list = ["
    for package in PINNED:
        entry = lock.resolved([package])[0]
        yield f"    ('{package.replace('-', '_')}', '{entry.version}', {{"
        yield f"        'sources': ['{entry.source}'],"
        yield f"        'checksums': ['{entry.files[entry.source]}'],"
        yield "    }),"
    wheel = lock.resolved([AS_WHEEL])[0]
    names = {arch: wheel.wheels(arch, has.python.rpartition(".")[0])[0] for arch in lock.ARCHES}
    yield f"    ('{AS_WHEEL}', '{wheel.version}', {{"
    yield f"        'sources': ['{names['x86_64'].replace('x86_64', '%(arch)s')}'],"
    yield "        'checksums': [{"
    for name in names.values():
        yield f"            '{name}':"
        yield f"                '{wheel.files[name]}',"
    yield "        }],"
    yield "    }),"
    yield "    (name[5:], version, {"
    yield "        'sources': ['ordsmed-%(version)s-py3-none-any.whl'],"
    yield f"        'checksums': ['{OF_ORDSMED}'],"
    yield "    }),"
    yield "]"
    yield "\nsanity_check_paths = {"
    yield "    'files': ['bin/ordsmed'],"
    yield "    'dirs': ['lib/python%(pyshortver)s/site-packages/ordsmed'],"
    yield "}"
    code = f" | grep ', code {work.code.digest}$'" if work.code.digest else ""
    yield f'\nsanity_check_commands = ["ordsmed version{code}"]'
    yield "\nmoduleclass = 'ai'"


def _lines(work: Installation, easyconfig: str) -> Iterator[str]:
    modules = tuple(module for module in work.modules if not module.startswith(("PyTorch/", "NCCL/")))
    yield from shell.head(work)
    yield from shell.modules(work, modules)
    yield shell.PROFILE
    yield 'command -v eb >/dev/null || step "module load EasyBuild" module load EasyBuild'
    yield from shell.python(work)
    yield from shell.wheel(work)
    yield "\n# EasyBuild writes the module last, so a failed installation has none"
    yield f'sed -i "s/{OF_ORDSMED}/$(sha256sum ordsmed-*.whl | cut -d " " -f 1)/" {shlex.quote(easyconfig)}'
    yield 'step "eb" eb --robot --modules-tool=Lmod --module-syntax=Lua --installpath "$prefix" \\'
    yield f'    --sourcepath "$PWD:$prefix/sources" {shlex.quote(easyconfig)}'
    yield "whole=yes"
    yield f'echo "installed: module use $prefix/modules/all; module load {name(work)}"'
