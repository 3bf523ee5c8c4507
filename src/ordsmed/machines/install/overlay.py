"""An overlay: ordsmed in a venv on top of an image with PyTorch, packed into one squashfs file.

image + the lock -> PREFIX/ordsmed-0.2.0-1f2e3d4c5b6a.sqsh <- PREFIX/ordsmed-0.2.0.sqsh; in a job /user-software

The documentation of LUMI and Olivia recommends this: the site maintains the image, and nodes open one file, not
thousands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ordsmed.base.screen import command
from ordsmed.machines.install import shell
from ordsmed.machines.install.plan import Installation
from ordsmed.machines.sites.slurm import OVERLAID

ORDSMED = f"{OVERLAID}/bin/ordsmed"
FILES = "/ordsmed-files"  # folder of the script, inside the container while the overlay is built


def files(work: Installation) -> dict[str, str]:
    scripts = {"install.sh": shell.script(_lines(work)), "inside.sh": shell.script(_inside(work))}
    return {**scripts, **work.lock_files()}


def _lines(work: Installation) -> Iterator[str]:
    yield from shell.head(work)
    yield from shell.modules(work, work.modules)
    yield from shell.runtime(work)
    remedy = "load a module with squashfs-tools (--module), or run this on a node that has it"
    yield f'command -v mksquashfs >/dev/null || stop "mksquashfs: not found; {remedy}"'
    yield f"image={shlex.quote(work.image)}"
    if "://" not in work.image:
        yield '[ -r "$image" ] || stop "$image: no such file; name an image that contains PyTorch (--image)"'
    yield 'python=$(command -v python3) || stop "python3: not found; load a module that has it (--module)"'
    yield '\ncd "$(dirname "$0")"'
    yield from shell.new_folder()
    yield 'mkdir "$new/venv"'
    folders = [f'"$PWD:{FILES}"', f'"$new/venv:{OVERLAID}"']
    if not work.bundle and not work.source.startswith("ordsmed=="):
        folders.append(shlex.quote(work.source))
    if work.bundle:
        folders.append(shlex.quote(str(work.bundle)))
    binds = " ".join(f"--bind {folder}" for folder in folders)
    yield f'inside() {{ "$runtime" exec {binds} "$image" "$@"; }}'
    yield "rm -f ordsmed-*.whl"
    if work.bundle:
        yield f"cp {shlex.quote(str(work.bundle))}/ordsmed-*.whl ."
    yield f'step "ordsmed in a venv of the image" inside bash {FILES}/inside.sh'
    yield "pack() {"
    yield '    mksquashfs "$new/venv" "$new/ordsmed.sqsh" -noappend -no-xattrs -no-progress -processors 1'
    yield "}"
    yield 'step "mksquashfs" pack'
    target = f"ordsmed-{work.name}.sqsh"
    flags = shell.image_flags(work)
    laid = f'"$runtime" {shlex.join(flags)} --bind "$new/ordsmed.sqsh:{OVERLAID}:image-src=/" "$image" {ORDSMED}'
    start = [shell.runtimes(work)[0], *flags, "--bind", f"{work.prefix / target}:{OVERLAID}:image-src=/"]
    yield from shell.verified(work, laid)
    yield from shell.description(work, laid, target, start=[*start, work.image, ORDSMED])
    yield "# waiting jobs keep the file for which they were written; the link points to the newest file"
    yield 'sum=$(sha256sum "$new/ordsmed.sqsh" | cut -c 1-12)'
    yield 'file="$prefix/ordsmed-$version-$sum.sqsh"'
    yield '[ ! -e "$image" ] || image=$(readlink -f "$image")'
    yield 'echo "$image" >"$file.image"'
    yield 'mv -f "$new/ordsmed.sqsh" "$file"'
    yield 'ln -sfn "$(basename "$file")" "$new/link" && mv -fT "$new/link" "$prefix/ordsmed-$version.sqsh"'
    yield 'rm -rf "$new" && whole=yes'
    yield shell.SAVE_RECORD
    yield 'echo "installed: $file, for $image"'
    words = command("submit", "RECIPE", "--site", work.place.name)
    yield f'echo "next: {words} --overlay $prefix/ordsmed-$version.sqsh"'


def _inside(work: Installation) -> Iterator[str]:
    python = f"{OVERLAID}/bin/python"
    yield "#!/bin/bash"
    yield f"# in the image: make a venv in {OVERLAID} that sees the image's packages"
    yield "set -eo pipefail"
    yield f"cd {FILES}"
    yield "unset PIP_CONSTRAINT # NVIDIA's images pin their packages; this venv does not change those"
    yield "export PYTHONNOUSERSITE=1"
    yield "log=$(mktemp) && trap 'rm -f \"$log\"' EXIT"
    yield 'step() { shift; "$@"; }'
    yield f"python3 -c {shlex.quote(shell.python_check())}"
    if not work.bundle:
        yield f"python3 -m pip wheel --no-deps --wheel-dir . {shlex.quote(work.source)}"
    yield f"python3 -m venv --system-site-packages {OVERLAID}"
    yield f'pip() {{ {python} -m pip --disable-pip-version-check "$@"; }}'
    yield f"{python} -c {shlex.quote(shell.torch_check(work))}"
    yield from shell.pinned(work, python)
    yield "pip install --no-index --no-deps ./ordsmed-*.whl"
