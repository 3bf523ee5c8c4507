"""Shell code that all installation scripts share: checks before the start, error messages and cleanup.

Scripts build under a temporary name. If all steps succeed, a link or a file gives the result its final name.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from ordsmed.machines.install import lock
from ordsmed.machines.install.plan import BUNDLED_TORCH, FLAVORS, NUMPY, PINS, Installation

NUMPY_CHECK = "import sys, numpy; sys.exit(tuple(map(int, numpy.__version__.split('.')[:2])) < {least})"
TORCH_CHECK = """import re, sys, torch
found = tuple(map(int, re.match(r"(\\d+)\\.(\\d+)", torch.__version__).groups()))
sys.exit(None if found >= {least} else f"found torch {{torch.__version__}}; wanted {words} or newer")"""
SPACE = {"modules": 1, "wheels": 12, "image": 30, "source": 40}  # GiB of free disk space that an installation needs
SPACE_CPU = 3
HEAD = r"""
stop() {
    printf 'install: %s\n' "$*" >&2
    exit 1
}

# run a command with its output in the log; if it fails, report the last line of the log
what=""
step() {
    [ "$what" = "$1" ] || printf '== %s\n' "$1" # print the title once for a step of several commands
    what=$1
    shift
    "$@" >"$log" 2>&1 && return
    if grep -qiE 'no space left|quota exceeded' "$log"; then
        stop "$what: a disk or quota is full; free some space, or set --prefix, TMPDIR and PIP_CACHE_DIR to other disks"
    fi
    case $what in
        module*)
            reason=$(tr -s '\n ' '  ' <"$log" | sed 's, Please check the spelling.*,,' | cut -c 1-240)
            stop "$what: $reason; name others with --module"
            ;;
    esac
    stop "$what: $(grep -vE '^ *$|^\[notice\]|^WARNING|^hint|^note:' "$log" | tail -n 1 | cut -c 1-300)"
}

whole=""
new=""
locked=""
leave() {
    [ -n "$whole" ] || rm -rf ${new:+"$new"}
    [ -z "$locked" ] || [ -e "$prefix/installed" ] || rm -f "$prefix/.install.lock"
    rm -rf "$log" "$log.json" "$log.validation"
}
log=$(mktemp "${TMPDIR:-/tmp}/ordsmed-install.XXXXXX") || stop "${TMPDIR:-/tmp}: cannot write; set another TMPDIR"
trap leave EXIT
"""
LOCK = ".install.lock"
TAKE_LOCK = r"""
# one installation at a time: this script keeps the lock until it ends
exec 9>>"$prefix/.install.lock"
"$python" - "$prefix/.install.lock" "$(id -un)" $$ <<'END' 2>"$log" || stop "$prefix: $(tail -n 1 "$log")"
import fcntl, platform, sys, time
path, user, process = sys.argv[1:]
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    with open(path) as file:
        sys.exit(f"is locked by {file.read().strip() or 'a process'}; wait until it has ended")
with open(path, "w") as file:
    file.write(f"{user} on {platform.node()}, process {process}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
END
locked=yes"""
WRITE_RECORD = r"""
facts=$(start version --json 2>/dev/null) || facts=""
"$python" - "$version" "$record" "$facts" "$log.json" "$(id -un)" <<'END'
import json, platform, sys, time
name, record, facts, path, user = sys.argv[1:]
record = json.loads(record)
try:
    facts = json.loads(facts)
except ValueError:  # an old version, which does not report them
    facts = {}
record.update({key: facts.get(key, "") for key in ("digest", "python", "torch")}, identity=name, by=user)
record.update(when=time.strftime("%Y-%m-%d %H:%M:%S"), host=platform.node())
with open(path, "w") as file:
    json.dump(record, file, indent=1)
END
# if this installation is the default, validate the new files before they replace it
if [ "$(readlink "$prefix/default")" = "$target" ]; then
    printf '== %s\n' "validate: this is the default installation"
    start validate --quick --out "$log.validation" >"$log" 2>&1 ||
        stop "its validation fails, so the default is unchanged: $(grep -m 1 '^error' "$log" || tail -n 1 "$log")"
fi
"""
SAVE_RECORD = r"""step "a record" mkdir -p "$prefix/installed"
step "a record" cp "$log.json" "$prefix/installed/.$version.part"
step "a record" mv -f "$prefix/installed/.$version.part" "$prefix/installed/$version.json"
"""
PROFILE = """# shellcheck disable=SC1091
type module >/dev/null 2>&1 || . /etc/profile >/dev/null 2>&1 || true"""
LINK = r"""# every step succeeded: give the installation its name
link="$prefix/ordsmed-$version"
"$python" - "$new" "$link" <<'END' 2>"$log" || stop "$link: $(tail -n 1 "$log"); delete what is in the way"
import os, sys
new, name = sys.argv[1:]
os.symlink(os.path.basename(new), new + ".link")
try:
    os.replace(new + ".link", name)
except OSError:
    os.unlink(new + ".link")
    raise
END
whole=yes"""


def head(work: Installation) -> Iterator[str]:
    yield "#!/bin/bash"
    yield f"# ordsmed {work.version} on {work.title}:"
    yield f"# {FLAVORS[work.flavor]}"
    if work.words:
        yield f"# written by: {work.words}"
    if work.place.site.note:
        yield from (f"# {line}" for line in work.place.site.note.splitlines())
    yield "set -eo pipefail # not -u, because `module` reads variables that are not set"
    yield f"prefix={shlex.quote(str(work.prefix))}"
    if work.flavor != "easybuild":
        yield f"version={work.name}"
    yield "export PYTHONNOUSERSITE=1 # ignore packages in ~/.local"
    yield "# ignore other installations in this prefix, which may be on the PATH"
    yield 'PATH=$(tr : "\\n" <<<"$PATH" | grep -vF "$prefix/" | paste -sd : -)'
    yield HEAD
    if work.arch != "unknown":
        remedy = "run this on such a node: wheels and libraries depend on the architecture"
        yield f'[ "$(uname -m)" = {work.arch} ] || stop "uname -m: found $(uname -m); wanted {work.arch}; {remedy}"'
    yield 'mkdir -p "$prefix" 2>"$log" || stop "$prefix: $(tail -n 1 "$log"); name another folder with --prefix"'
    yield '[ -w "$prefix" ] || stop "$prefix: no permission to write; name another folder with --prefix"'
    yield "free=$(($(df -Pk \"$prefix\" | awk 'NR == 2 {print $4}') / 1048576))"
    gib = SPACE_CPU if work.torch == "wheels" and work.index.endswith("/cpu") else SPACE[work.torch]
    yield f'[ "$free" -ge {gib} ] || stop "$prefix: $free GiB free; wanted {gib}; name another folder with --prefix"'


def modules(work: Installation, names: tuple[str, ...]) -> Iterator[str]:
    before = [*work.place.partition.before, *work.place.site.use] if names else []
    if not names:
        return
    yield ""
    yield PROFILE
    yield 'type module >/dev/null 2>&1 || stop "module: command not found; run this on a login node of the cluster"'
    yield from (f"step {shlex.quote(line)} {line}" if line.startswith("module") else line for line in before)
    for name in names:
        yield f"step {shlex.quote(f'module load {name}')} module load {shlex.quote(name)}"


def python(work: Installation) -> Iterator[str]:
    wanted = f"Python {lock.PYTHONS[0]} to {lock.PYTHONS[-1]}"
    name = f"python{work.python}" if work.python else "python3"
    remedy = "load a module with it (--module), or name another version (--python 3.12)"
    yield f'\npython=$(command -v {name}) || stop "{name}: not found; wanted {wanted}; {remedy}"'
    yield f'"$python" -c {shlex.quote(python_check())} >"$log" 2>&1 ||'
    yield f'    stop "$python: found $("$python" -V); wanted {wanted}; {remedy}"'
    yield '"$python" -c \'import venv, ensurepip\' 2>"$log" ||'
    yield f'    stop "$python: has no pip ($(tail -n 1 "$log")); install python3-venv, or {remedy}"'


def python_check() -> str:
    return f"import sys; v = '%d.%d' % sys.version_info[:2]; sys.exit(None if v in {lock.PYTHONS} else v)"


def torch_check(work: Installation) -> str:
    least = tuple(int(part) for part in work.torch_least.split("."))
    return TORCH_CHECK.format(least=least, words=work.torch_least)


def numpy_check(work: Installation) -> str:
    wanted = next(name for name in work.requirements if lock.normal(name) == "numpy").partition(">=")[2]
    return NUMPY_CHECK.format(least=tuple(int(part) for part in wanted.split(".")[:2]))


def packages(work: Installation, name: str, at: str = ".", where: str | None = None) -> str:
    """Return pip's arguments that install exactly the packages of a requirement file."""
    if where is None:
        where = offline(work)
    only = "" if work.arch == "ppc64le" else " --only-binary :all:"
    return f"install{where} --require-hashes --no-deps{only} --requirement {at}/{name}"


def offline(work: Installation) -> str:
    return f" --no-index --find-links {shlex.quote(str(work.bundle))}" if work.bundle else ""


def pinned(work: Installation, python: str) -> Iterator[str]:
    """Yield lines that install packages into a venv, and PyTorch if it comes as wheels.

    The script must define a function `pip`.
    """
    yield f'step "packages by pip, each file checked" pip {packages(work, PINS)}'
    if work.torch == "wheels" and work.bundle:
        yield f'step "PyTorch by pip" pip {packages(work, BUNDLED_TORCH, at=shlex.quote(str(work.bundle)))}'
    elif work.torch == "wheels":
        yield "# PyTorch's index is not in the lock: torch.json records the installed files and their hashes"
        report = f'--report "$new/torch.json" --index-url {work.index}'
        yield f'step "PyTorch by pip" pip install {report} {shlex.quote(work.torch_wanted)}'
    elif work.torch in ("modules", "image"):
        yield "# PyTorch was built with a certain NumPy: keep it if it is new enough"
        yield f'{python} -c {shlex.quote(numpy_check(work))} >"$log" 2>&1 ||'
        yield f'    step "NumPy by pip" pip {packages(work, NUMPY)}'


def verified(work: Installation, ordsmed: str) -> Iterator[str]:
    """Yield lines that check that the installed ordsmed starts and has the expected code digest."""
    yield f'step "ordsmed" {ordsmed} version'
    if work.code.digest:
        yield f"grep -q ', code {work.code.digest}$' \"$log\" ||"
        remedy = f"{work.source} has changed since these scripts were written: write them again"
        yield f'    stop "ordsmed: found $(tail -n 1 "$log"); wanted code {work.code.digest}; {remedy}"'


def runtimes(work: Installation) -> list[str]:
    """Return the names of container runtimes, the site's runtime first."""
    return sorted(("apptainer", "singularity"), key=lambda name: name != work.place.site.runtime)


def image_flags(work: Installation) -> list[str]:
    gpu = work.place.partition.model
    return ["exec", *(["--rocm" if gpu.amd else "--nv"] if gpu else []), "--bind", str(work.prefix)]


def runtime(work: Installation) -> Iterator[str]:
    first, second = runtimes(work)
    yield f"runtime=$(command -v {first} || command -v {second}) ||"
    yield f'    stop "{first}, {second}: not found; load the module of one (--module), or use a machine that has one"'


def new_folder() -> Iterator[str]:
    yield TAKE_LOCK
    yield '\nnew=$(mktemp -d "$prefix/.ordsmed-$version.XXXXXX" 2>"$log") || stop "$prefix: $(tail -n 1 "$log")"'
    yield 'chmod 755 "$new"'


def description(work: Installation, command: str, target: str, **facts: object) -> Iterator[str]:
    """Yield lines that write the record of the installation.

    `command` starts ordsmed from the temporary folder; `target` is the final path, relative to the prefix.
    """
    location = work.place.name
    site = str(Path(location).absolute()) if Path(location).is_file() else location
    record = {"way": work.flavor, "site": site, "source": work.source, "target": target, **facts}
    yield "\n# the record of the installation, which `ordsmed install --list` prints"
    yield f"target={shlex.quote(target)}"
    yield "# shellcheck disable=SC2016 # the record contains commands of the site unexpanded"
    yield f"record={shlex.quote(json.dumps(record))}"
    yield f'start() {{ {command} "$@"; }}'
    yield WRITE_RECORD.strip()
    yield ""


def wheel(work: Installation, python: str = '"$python"', into_image: bool = False) -> Iterator[str]:
    """Yield lines that put the wheel of ordsmed next to the script; for an image, also the bundle."""
    yield '\ncd "$(dirname "$0")"'
    yield "rm -rf ordsmed-*.whl bundle"
    if work.bundle:
        yield f"cp {shlex.quote(str(work.bundle))}/ordsmed-*.whl ."
        yield from [f"cp -r {shlex.quote(str(work.bundle))} bundle"] if into_image else []
    else:
        yield f'step "ordsmed as a wheel" {python} -m pip wheel --no-deps --wheel-dir . {shlex.quote(work.source)}'


def script(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"
