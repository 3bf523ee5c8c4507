"""Decide how to install on a site: the method, the source of PyTorch, and the packages for pip.

InstallWish, site -> Installation: flavor, torch, requirements, prefix -> written by one of install/*.py
"""

from __future__ import annotations

import re
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from ordsmed import __version__
from ordsmed.base import files, menu
from ordsmed.base.errors import DataError, RecipeError, nearest
from ordsmed.base.identity import Identity, identity, identity_of
from ordsmed.base.launch.site import Destination
from ordsmed.base.screen import command
from ordsmed.machines.install import lock

FLAVORS = {
    "venv": "a venv, on top of the site's PyTorch module if it has one, else with PyTorch's wheels",
    "module": "a venv, and an Lmod modulefile that loads it together with PyTorch",
    "eessi": "a venv on top of the PyTorch of EESSI, a software stack shared by many sites",
    "tykky": "a container made by CSC's tykky, with commands that hide it",
    "apptainer": "an Apptainer or SingularityCE image",
    "overlay": "a squashfs file, mounted over an image that contains PyTorch",
    "docker": "a Docker image, for Enroot and Pyxis",
    "easybuild": "an easyconfig in NLPL's naming, on EasyBuild's PyTorch",
}
LEAST_PYTHON = (3, 11)
PYTORCH = "https://download.pytorch.org/whl"
SLIM = "docker.io/library/python:{python}-slim"
NVIDIA = "nvcr.io/nvidia/pytorch:25.06-py3"  # torch 2.8, for x86_64 and aarch64
IN_IMAGES = "3.12"  # Python version in images
MANIFEST = "bundle.json"
PINS, NUMPY, BUNDLED_TORCH = "lock.txt", "numpy.txt", "torch.txt"  # requirement files for pip
TORCH = {  # pinned version per index of PyTorch; the versions of other indexes are not known
    ("x86_64", "cpu"): "2.13.0",
    ("aarch64", "cpu"): "2.13.0",
    ("x86_64", "cu126"): "2.13.0",
    ("x86_64", "cu128"): "2.11.0",
    ("x86_64", "rocm6.4"): "2.9.1",
}
EESSI = "EESSI/2025.06"
EESSI_MODULES = "/cvmfs/software.eessi.io/init/modules"
EESSI_TORCH = "PyTorch/2.7.1-foss-2024a-CUDA-12.6.0"
SOURCE_TORCH = "2.7.1"  # newest version that builds with CUDA 12.4, the last CUDA for ppc64le


@dataclass(frozen=True)
class InstallWish:
    site: str
    flavor: str = ""  # empty: the site's default
    prefix: str = ""  # folder of the software
    modules: tuple[str, ...] = ()  # instead of the site's modules
    image: str = ""
    source: str = ""  # requirement or folder of ordsmed, for pip
    extras: tuple[str, ...] = ()
    bundle: str = ""  # folder of downloaded wheels
    python: str = ""  # 3.12
    out: str = ""  # folder of the written scripts


@dataclass(frozen=True)
class Installation:
    place: Destination
    flavor: str
    torch: str  # modules, image, wheels or source
    index: str  # index of PyTorch's wheels
    modules: tuple[str, ...]
    image: str  # base image
    source: str
    extras: tuple[str, ...]
    requirements: tuple[str, ...]
    prefix: Path
    folder: Path
    bundle: Path | None
    python: str
    code: Identity  # identity of the installed code
    words: str = ""  # command that requested it

    @property
    def arch(self) -> str:
        return self.place.partition.arch

    @property
    def title(self) -> str:
        site, part = self.place.site, self.place.partition.name
        return f"{site.title or self.place.name}{f', partition {part}' if site.partition else ''}"

    @property
    def version(self) -> str:
        return self.code.version

    @property
    def name(self) -> str:
        """Return the unique name of the installed code: 0.3.0+g1a2b3c4d."""
        return str(self.code)

    @property
    def wanted(self) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.source}{extras}" if "==" not in self.source else self.source.replace("==", f"{extras}==")

    @property
    def torch_wanted(self) -> str:
        """Return pip's requirement for PyTorch, with an exact version if the index is known to have it."""
        pinned = TORCH.get((self.arch if self.arch != "unknown" else "x86_64", self.index.rpartition("/")[2]))
        official = self.index.startswith(PYTORCH)
        return f"torch=={pinned}" if pinned and official else f"torch>={self.torch_least}"

    @property
    def torch_least(self) -> str:
        return next(name for name in self.requirements if name.startswith("torch>")).partition(">=")[2]

    @property
    def roots(self) -> list[str]:
        """Return the required packages, without PyTorch if a module or an image provides it."""
        brought = [lock.TORCH] if self.torch in ("wheels", "source") else []
        apart = (lock.TORCH, lock.WITH_TORCH)
        return [*brought, *(name for name in self.requirements if lock.normal(name) not in apart)]

    @property
    def pinned(self) -> list[lock.Pinned]:
        """Return all packages to install except PyTorch, with their dependencies."""
        return lock.resolved(self.roots, arch="" if self.arch == "unknown" else self.arch)

    def lock_files(self) -> dict[str, str]:
        """Return the requirement files with digests for pip.

        NumPy has a separate file if a module or an image provides PyTorch, which was built with a NumPy.
        """
        if self.bundle:
            there = [path for name in (PINS, NUMPY) if (path := self.bundle / name).is_file()]
            return {path.name: path.read_text(encoding="utf-8") for path in there}
        apart = [] if lock.TORCH in self.roots else ["numpy"]
        head = f"# ordsmed {self.version}: versions, and the SHA-256 of every file that pip may install"
        texts = {PINS: lock.lines(self.roots, self.arch, self.python, without=apart)}
        if apart:
            texts[NUMPY] = lock.lines(apart, self.arch, self.python)
        return {name: "\n".join([head, *lines, ""]) for name, lines in texts.items()}


def decide(wish: InstallWish, words: str = "") -> Installation:
    """Return the installation for a wish, or raise an error if it is not possible. Nothing is written."""
    location = Destination.find(wish.site)
    location.refuse_retired()
    if wish.source and wish.bundle:
        remedy = (
            f"`{command('install', '--site', wish.site, '--source', wish.source, '--bundle', 'NEW')}` makes another"
        )
        raise RecipeError("--source", "found with --from, whose bundle contains an ordsmed", "one of them", remedy)
    flavor = wish.flavor or location.site.packages[0]
    if flavor not in FLAVORS:
        raise RecipeError("--by", f"found {flavor}", "", nearest(flavor, FLAVORS))
    if flavor == "eessi":
        location = _on_eessi(location, wish.modules)
    contained = flavor in ("apptainer", "docker", "tykky")
    modules = wish.modules or (() if contained else location.modules)
    image = wish.image or (location.site.container if flavor in ("apptainer", "overlay") else "")
    torch, index = _torch(location, flavor, modules, image)
    source = wish.source or _own_source()
    source = str(Path(source).absolute()) if Path(source).exists() else source  # pip would download a bare name
    partition = f"-{location.partition.name}" if location.site.partition else ""
    name = re.sub(r"[^\w.-]+", "-", Path(location.name.partition(":")[0]).stem + partition)
    installation = Installation(
        place=location,
        flavor=flavor,
        torch=torch,
        index=index,
        modules=tuple(modules),
        image=image or (_image(location) if flavor in ("apptainer", "docker") else ""),
        source=source,
        extras=_extras(wish.extras, source),
        requirements=requirements(source, wish.extras),
        prefix=Path(wish.prefix or Path("work/software") / name).expanduser().absolute(),
        folder=Path(wish.out or Path("work/install") / f"{name}-{flavor}").absolute(),
        bundle=Path(wish.bundle).absolute() if wish.bundle else None,
        python=_python(wish.python),
        words=words,
        code=_code(source, wish.bundle),
    )
    return _of_bundle(installation) if installation.bundle else installation


def _torch(destination: Destination, flavor: str, modules: tuple[str, ...], image: str) -> tuple[str, str]:
    """Return the source of PyTorch and the index of its wheels.

    Raise an error if only pip has it and the site forbids PyTorch by pip.
    """
    site, part = destination.site, destination.partition
    if flavor == "easybuild":
        if part.arch == "ppc64le" or (part.model and part.model.amd):
            problem = f"found easybuild, which has no PyTorch for {part.gpu} on {part.arch}"
            raise RecipeError(
                "--by",
                problem,
                "",
                "`--by venv` builds it from source"
                if part.arch == "ppc64le"
                else "`--by apptainer` uses the site's image",
            )
        return "modules", ""
    if image or (flavor in ("apptainer", "docker") and _image(destination) == NVIDIA):
        return "image", ""
    if flavor == "overlay":
        problem = f"missing; no image of {destination.name} with PyTorch is known"
        raise RecipeError("--image", problem, "its file", "`--by apptainer` makes a new image")
    hold = bool(destination.modules) or any("torch" in name.lower() for name in modules)
    if flavor != "tykky" and modules and hold:
        return "modules", ""
    index = wheels(destination)
    if flavor == "module" and site.pip_torch != "allowed":
        problem = f"missing; no module of {destination.name} with PyTorch is known"
        raise RecipeError("--module", problem, "its name", "`module avail` there lists them; `--by venv` uses wheels")
    if flavor in ("apptainer", "docker", "tykky") and not index:
        problem = f"found {flavor}; no wheels or image of PyTorch are known for {part.gpu} on {part.arch}"
        raise RecipeError("--by", problem, "", "`--by venv` builds it from source, or name an image that contains it")
    if site.pip_torch == "forbidden" and index:
        problem = f"missing; {destination.name} forbids PyTorch by pip, so a module with PyTorch is needed"
        ways = [f"`--by {name}`" for name in destination.site.packages if name in ("apptainer", "easybuild", "docker")]
        remedy = f"or {' or '.join(ways) or '`--by apptainer`'}"
        raise RecipeError("--module", problem, "its name in `module avail`", remedy)
    return ("wheels", index) if index else ("source", "")


def _on_eessi(destination: Destination, modules: tuple[str, ...]) -> Destination:
    """Return the destination with EESSI's modules instead of the site's, because the two are incompatible."""
    part = destination.partition
    if part.arch not in ("x86_64", "aarch64", "unknown") or (part.model and part.model.amd):
        problem = f"found eessi, which has no PyTorch for {part.gpu} on {part.arch}"
        raise RecipeError("--by", problem, "", "leave it out to install in the site's default way")
    if part.gpu == "none" and not modules:
        problem = f"missing; the name of a PyTorch without CUDA in {EESSI} is unknown"
        raise RecipeError("--module", problem, f"`--module {EESSI} --module PyTorch/...`", "`module spider PyTorch`")
    use = ("module --force purge", "unset MODULEPATH", f"module use {EESSI_MODULES}")
    return replace(
        destination,
        site=replace(destination.site, use=use, modules=(EESSI, EESSI_TORCH)),
        partition=replace(part, modules=(), before=()),
    )


def wheels(destination: Destination) -> str:
    part = destination.partition
    if part.wheels:
        return part.wheels
    if part.arch == "ppc64le":
        return ""
    if part.model is None:
        return f"{PYTORCH}/{'cpu' if destination.layout['device'] == 'cpu' else 'cu126'}"
    if part.arch == "aarch64":
        return "" if part.model.amd or float(part.model.capability) < 8 else f"{PYTORCH}/cu128"
    return f"{PYTORCH}/{'rocm6.4' if part.model.amd else 'cu126'}"


def _image(destination: Destination) -> str:
    """Return the base image: plain Python, or NVIDIA's image with PyTorch if the site forbids PyTorch by pip."""
    part = destination.partition
    if destination.site.pip_torch == "forbidden" and part.model and not part.model.amd and part.arch != "ppc64le":
        return NVIDIA
    return SLIM.format(python=IN_IMAGES)


def _own_source() -> str:
    """Return this checkout, or a requirement of this version if it is not a checkout."""
    root = menu.PACKAGE_ROOT.parent.parent
    return str(root) if _project(str(root)) else f"ordsmed=={__version__}"


def _code(source: str, bundle: str) -> Identity:
    """Return the identity of a checkout or a wheel. For a requirement that pip downloads, only the version is known."""
    wheels = sorted(Path(bundle).glob("ordsmed-*.whl")) if bundle else [Path(source)]
    if wheels and wheels[0].suffix == ".whl" and wheels[0].is_file():
        try:
            with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheels[0]) as wheel:
                wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith("ordsmed/")])
                return identity_of(Path(folder) / "ordsmed")
        except (zipfile.BadZipFile, FileNotFoundError):
            problem = "is not a wheel of ordsmed"
            raise DataError(wheels[0], problem, "", "make it again: `pip wheel --no-deps .`") from None
    if _project(source):
        package = Path(source) / "src/ordsmed"
        return identity() if package == menu.PACKAGE_ROOT else identity_of(package)
    return Identity(source.partition("==")[2] or __version__, "", False, "")


def _project(source: str) -> dict[str, Any]:
    path = Path(source) / "pyproject.toml"
    if not path.is_file():
        return {}
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    return project if project.get("name") == "ordsmed" else {}


def requirements(source: str, extras: tuple[str, ...] = ()) -> tuple[str, ...]:
    if project := _project(source):
        optional = project["optional-dependencies"]
        return tuple([*project["dependencies"], *(name for extra in extras for name in optional.get(extra, ()))])
    try:
        listed = [line.partition(";") for line in metadata.requires("ordsmed") or ()]
    except metadata.PackageNotFoundError:
        wanted = "the folder of its pyproject.toml"
        raise DataError(source, "is not a checkout of ordsmed", wanted, "name one with --source") from None
    return tuple(
        name.strip()
        for name, _, when in listed
        if not when or any(f"'{extra}'" in when.replace('"', "'") for extra in extras)
    )


def _extras(requested: tuple[str, ...], source: str) -> tuple[str, ...]:
    project = _project(source)
    known = (
        list(project["optional-dependencies"])
        if project
        else list(metadata.metadata("ordsmed").get_all("Provides-Extra") or ())
    )
    for name in requested:
        if name not in known:
            raise RecipeError("--extras", f"found {name}", "", nearest(name, known))
    return requested


def _python(version: str) -> str:
    if not version:
        return ""
    if not re.fullmatch(r"3\.\d+", version) or tuple(map(int, version.split("."))) < LEAST_PYTHON:
        raise RecipeError("--python", f"found {version}", f"{LEAST_PYTHON[0]}.{LEAST_PYTHON[1]} or newer, as 3.12")
    lock.check_python(version)
    return version


def _of_bundle(installation: Installation) -> Installation:
    """Return the installation with its bundle's Python version. Raise an error if the bundle is for another machine."""
    assert installation.bundle
    path = installation.bundle / MANIFEST
    if not path.is_file():
        remedy = command("install", "--bundle", installation.bundle, "--site", installation.place.name)
        raise RecipeError("--from", f"{installation.bundle} has no {MANIFEST}", "a bundle", f"`{remedy}` makes one")
    bundle = files.read_json(path)
    if "sha256" not in bundle:
        remedy = command("install", "--bundle", "NEW", "--site", installation.place.name)
        raise RecipeError(
            "--from", f"{installation.bundle} has no hashes: an older ordsmed made it", "", f"`{remedy}` makes one"
        )
    if installation.arch not in ("unknown", bundle["arch"]):
        raise RecipeError(
            "--from", f"found wheels for {bundle['arch']}", f"{installation.arch}, for {installation.title}"
        )
    if installation.python and installation.python != bundle["python"]:
        raise RecipeError("--from", f"found wheels for Python {bundle['python']}", f"{installation.python}")
    image = installation.image.replace(SLIM.format(python=IN_IMAGES), SLIM.format(python=bundle["python"]))
    return replace(installation, python=bundle["python"], image=image)


def python_here() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
