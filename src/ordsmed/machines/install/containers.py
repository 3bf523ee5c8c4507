"""Container images: CSC's tykky, Apptainer or SingularityCE, and Docker with Enroot and Pyxis.

In an image, ordsmed is in a venv on top of the image's packages: /opt/ordsmed/venv.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ordsmed.base.screen import command
from ordsmed.machines.install import shell
from ordsmed.machines.install.plan import BUNDLED_TORCH, NUMPY, PINS, Installation
from ordsmed.machines.sites import resources

AT = "/opt/ordsmed"  # folder inside the image
PYTHON = f"{AT}/venv/bin/python"


def tykky(work: Installation) -> dict[str, str]:
    """Return the files for tykky.

    Its requirements.txt holds only PyTorch, from PyTorch's index; inside.sh installs the rest.
    """
    index = "" if work.bundle else f"--index-url {work.index}\n"
    return {
        "requirements.txt": f"{index}{work.torch_wanted}\n",
        **work.lock_files(),
        "inside.sh": shell.script(_inside(work)),
        "install.sh": shell.script(_tykky(work)),
    }


def _inside(work: Installation) -> Iterator[str]:
    where = ' --no-index --find-links "$ORDSMED_FILES/bundle"' if work.bundle else ""
    yield "#!/bin/bash"
    yield "# tykky runs this in its container after it has installed PyTorch; the venv is active"
    yield "set -e"
    at = '"$ORDSMED_FILES"'
    yield f"python3 -m pip {shell.packages(work, PINS, at=at, where=where)}"
    yield 'python3 -m pip install --no-index --no-deps "$ORDSMED_FILES"/ordsmed-*.whl'


def _tykky(work: Installation) -> Iterator[str]:
    yield from shell.head(work)
    yield from shell.modules(work, ("tykky", *work.modules))
    yield "command -v pip-containerize >/dev/null ||"
    yield '    stop "pip-containerize: not found; name the module of tykky with --module"'
    yield from shell.python(work)
    yield from shell.wheel(work, into_image=True)
    yield from shell.new_folder()
    yield 'export ORDSMED_FILES="$PWD"'
    if work.bundle:
        yield 'export PIP_NO_INDEX=1 PIP_FIND_LINKS="$PWD/bundle"'
    yield 'step "tykky" pip-containerize new --prefix "$new" --post-install inside.sh requirements.txt'
    yield from shell.verified(work, '"$new/bin/ordsmed"')
    target = f"ordsmed-{work.name}"
    yield from shell.description(work, '"$new/bin/ordsmed"', target, start=[str(work.prefix / target / "bin/ordsmed")])
    yield shell.LINK
    yield shell.SAVE_RECORD
    yield 'echo "installed: $prefix/ordsmed-$version/bin/ordsmed"'


def apptainer(work: Installation) -> dict[str, str]:
    definition, script = shell.script(_definition(work)), shell.script(_apptainer(work))
    return {"ordsmed.def": definition, "install.sh": script, **work.lock_files()}


def _definition(work: Installation) -> Iterator[str]:
    local = work.image.startswith(("/", "./")) or work.image.endswith(".sif")
    yield f"Bootstrap: {'localimage' if local else 'docker'}"
    yield f"From: {work.image.removeprefix('docker://')}"
    yield "\n%labels"
    yield "    org.opencontainers.image.title ordsmed"
    yield f"    org.opencontainers.image.version {work.version}"
    yield "\n%files"
    for name in ("ordsmed-*.whl", *work.lock_files()):
        yield f"    {name} {AT}/"
    if work.bundle:
        yield f"    bundle {AT}/bundle"
    yield "\n%post"
    yield from (f"    {line}" for line in steps(work))
    yield "\n%environment"
    yield f"    export PYTHONNOUSERSITE=1 PATH={AT}/venv/bin:$PATH"
    yield "\n%test"
    yield "    ordsmed version"
    yield "\n%runscript"
    yield '    exec ordsmed "$@"'


def _apptainer(work: Installation) -> Iterator[str]:
    yield from shell.head(work)
    yield from shell.modules(work, work.modules)
    yield from shell.runtime(work)
    yield from shell.python(work)
    yield from shell.wheel(work, into_image=True)
    yield shell.TAKE_LOCK
    yield '\nnew="$prefix/.ordsmed-$version.$$.sif"'
    yield 'step "$(basename "$runtime") build" "$runtime" build "$new" ordsmed.def'
    flags = shell.image_flags(work)
    target = f"ordsmed-{work.name}.sif"
    start = [shell.runtimes(work)[0], *flags, str(work.prefix / target), "ordsmed"]
    inside = f'"$runtime" {shlex.join(flags)} "$new" ordsmed'
    yield from shell.verified(work, inside)
    yield from shell.description(work, inside, target, start=start)
    yield 'mv -f "$new" "$prefix/ordsmed-$version.sif" && whole=yes'
    yield shell.SAVE_RECORD
    yield 'echo "installed: $prefix/ordsmed-$version.sif"'
    words = command("submit", "RECIPE", "--site", work.place.name, "--container")
    yield f'echo "next: {words} $prefix/ordsmed-$version.sif"'


def docker(work: Installation) -> dict[str, str]:
    return {
        "Dockerfile": shell.script(_dockerfile(work)),
        "install.sh": shell.script(_docker(work)),
        "launch.sh": shell.script(_launch(work)),
        "run.sub": shell.script(_run_sub(work)),
        **work.lock_files(),
    }


def _dockerfile(work: Installation) -> Iterator[str]:
    yield f"# ordsmed {work.version} for {work.title}"
    yield f"FROM {work.image.removeprefix('docker://')}"
    yield f"COPY {' '.join(['ordsmed-*.whl', *work.lock_files()])} {AT}/"
    if work.bundle:
        yield f"COPY bundle {AT}/bundle"
    yield "RUN " + " && \\\n    ".join(steps(work))
    yield f"ENV PYTHONNOUSERSITE=1 PATH={AT}/venv/bin:$PATH"
    yield "WORKDIR /workspace"
    yield 'CMD ["ordsmed", "--help"]'


def _docker(work: Installation) -> Iterator[str]:
    yield from shell.head(work)
    yield "engine=$(command -v docker || command -v podman) ||"
    yield '    stop "docker, podman: not found; build the image on a machine that has one of them"'
    yield from shell.python(work)
    yield from shell.wheel(work, into_image=True)
    yield shell.TAKE_LOCK
    yield "\ntag=${version//+/-} # names of images have no +"
    yield 'step "$(basename "$engine") build" "$engine" build --tag "ordsmed:$tag" .'
    target, tag, shared = f"ordsmed-{work.name}.sqsh", work.name.replace("+", "-"), f"{work.prefix}:{work.prefix}"
    start = ["docker", "run", "--rm", "--volume", shared, f"ordsmed:{tag}", "ordsmed"]
    inside = '"$engine" run --rm "ordsmed:$tag" ordsmed'
    yield from shell.verified(work, inside)
    yield from shell.description(work, inside, target, start=start)
    yield "# the image as a file for Enroot, which Pyxis reads on the nodes"
    yield "if command -v enroot >/dev/null; then"
    yield "    case $engine in *podman) from=podman ;; *) from=dockerd ;; esac"
    yield '    new="$prefix/.ordsmed-$version.$$.sqsh"'
    yield '    step "enroot import" enroot import --output "$new" "$from://ordsmed:$tag"'
    yield '    mv -f "$new" "$prefix/ordsmed-$version.sqsh"'
    yield "fi"
    yield "whole=yes"
    yield shell.SAVE_RECORD
    yield 'echo "installed: the image ordsmed:$tag"'
    yield 'echo "next: bash launch.sh, or where enroot is: sbatch -N 2 run.sub pretrain RECIPE"'


def _launch(work: Installation) -> Iterator[str]:
    gpus = " --gpus all" if work.place.partition.gpu != "none" else ""
    yield "#!/bin/bash"
    yield "# run ordsmed on one machine, with the data and results of this folder; without arguments, start a shell"
    yield "set -eu"
    yield "mkdir -p data work"
    yield f"exec docker run --rm -it{gpus} --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 \\"
    yield '    --volume "$PWD/data:/workspace/data" --volume "$PWD/work:/workspace/work" \\'
    yield f'    "ordsmed:{work.name.replace("+", "-")}" "${{@:-bash}}"'


def _run_sub(work: Installation) -> Iterator[str]:
    """Yield a batch script for Pyxis. `ordsmed submit --container FILE --enroot` writes complete jobs."""
    part = work.place.partition
    gpus = part.gpus or 0
    yield "#!/bin/bash"
    yield "# sbatch -N 48 run.sub pretrain electra-base-lamb"
    yield "#SBATCH --job-name=ordsmed"
    if work.place.site.partition:
        yield from (f"#SBATCH {flag}" for flag in part.access)
    yield f"#SBATCH --ntasks-per-node={gpus or 1}"
    if gpus:
        ask = "--gpus-per-node={gpus}" if "{total}" in part.ask else part.ask  # per node: right for any -N
        yield f"#SBATCH {ask.format(gpus=gpus)}"
    cores = resources.cores_of(work.place, gpus, gpus or 1)
    if cores:
        yield f"#SBATCH --cpus-per-task={cores}"
    if memory := resources.memory_flag(work.place, gpus, cores * (gpus or 1), must=False):
        yield f"#SBATCH {memory}"
    elif part.ask_memory == "required":
        yield "# sbatch also needs --mem"
    if work.place.site.account == "required":
        yield "# sbatch also needs --account=NAME"
    yield "set -eu"
    yield 'export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"  # else srun gives one core per process'
    yield f"image=${{IMAGE:-{work.prefix}/ordsmed-{work.name}.sqsh}}"
    yield '[ -e "$image" ] || { echo "run.sub: no $image; install.sh makes it, or set IMAGE" >&2; exit 1; }'
    yield "mkdir -p data work"
    yield "tasks=${SLURM_GPUS_ON_NODE:-${SLURM_NTASKS_PER_NODE:-1}}  # one per allocated GPU"
    yield 'srun --ntasks="$((SLURM_JOB_NUM_NODES * tasks))" --ntasks-per-node="$tasks" \\'
    yield '    --container-image="$image" --container-workdir=/workspace \\'
    yield '    --container-mounts="$PWD/data:/workspace/data,$PWD/work:/workspace/work" \\'
    yield '    ordsmed "$@"'


def steps(work: Installation) -> list[str]:
    inherit = " --system-site-packages" if work.torch == "image" else ""
    where = f" --no-index --find-links {AT}/bundle" if work.bundle else ""
    lines = [
        f"python3 -c {shlex.quote(shell.python_check())}",
        "unset PIP_CONSTRAINT && export PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1",
        f"python3 -m venv{inherit} {AT}/venv",
        f"{PYTHON} -m pip {shell.packages(work, PINS, at=AT, where=where)}",
    ]
    if work.torch == "image":
        numpy = f"{PYTHON} -m pip {shell.packages(work, NUMPY, at=AT, where=where)}"
        lines.append(f"{{ {PYTHON} -c {shlex.quote(shell.numpy_check(work))} || {numpy}; }}")
    elif work.bundle:
        lines.append(f"{PYTHON} -m pip {shell.packages(work, BUNDLED_TORCH, at=f'{AT}/bundle', where=where)}")
    else:
        lines.append(f"{PYTHON} -m pip install --index-url {work.index} {shlex.quote(work.torch_wanted)}")
    lines.append(f"{PYTHON} -c {shlex.quote(shell.torch_check(work).replace(chr(10), '; '))}")
    lines.append(f"{PYTHON} -m pip install --no-index --no-deps {AT}/ordsmed-*.whl")
    return [*lines, f"{AT}/venv/bin/ordsmed version"]
