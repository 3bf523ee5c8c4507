"""The shell that all installations share: what is asked first, how a step fails in one line, what is left of it.

What is made stands under a name that nothing knows until all of it went well; then a link or a file takes its place.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from ordsmed.machines.install.plan import FLAVORS, LEAST_PYTHON, Installation

ROOM = {"modules": 1, "wheels": 12, "image": 30, "source": 40}  # GiB that are wanted
ROOM_CPU = 3
HEAD = r"""
stop() {
    printf 'install: %s\n' "$*" >&2
    exit 1
}

# a step speaks into the log; where it fails, its last line is the reason
step() {
    what=$1
    shift
    printf '== %s\n' "$what"
    "$@" >"$log" 2>&1 && return
    if grep -qiE 'no space left|quota exceeded' "$log"; then
        stop "$what: a disk is full or a quota used up; free some, or set --prefix, TMPDIR and PIP_CACHE_DIR elsewhere"
    fi
    case $what in
        module*)
            reason=$(tr -s '\n ' '  ' <"$log" | sed 's, Please check the spelling.*,,' | cut -c 1-240)
            stop "$what: $reason; name others by --module"
            ;;
    esac
    stop "$what: $(grep -vE '^ *$|^\[notice\]|^WARNING|^hint' "$log" | tail -n 1 | cut -c 1-300)"
}

whole=""
new=""
locked=""
leave() {
    [ -n "$whole" ] || rm -rf ${new:+"$new"}
    [ -z "$locked" ] || [ -e "$prefix/installed" ] || rm -f "$prefix/.install.lock"
    rm -rf "$log" "$log.json" "$log.validation"
}
log=$(mktemp "${TMPDIR:-/tmp}/ordsmed-install.XXXXXX") || stop "${TMPDIR:-/tmp}: cannot write; set TMPDIR elsewhere"
trap leave EXIT
"""
LOCK = ".install.lock"
LOCKED = r"""
# one at a time: the lock is held as long as this script runs
exec 9>>"$prefix/.install.lock"
"$python" - "$prefix/.install.lock" "$(id -un)" $$ <<'END' 2>"$log" || stop "$prefix: $(tail -n 1 "$log")"
import fcntl, platform, sys, time
path, user, process = sys.argv[1:]
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    with open(path) as file:
        sys.exit(f"{file.read().strip() or 'somebody'} works there; wait until that has ended")
with open(path, "w") as file:
    file.write(f"{user} on {platform.node()}, process {process}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
END
locked=yes"""
DESCRIBED = r"""
facts=$(start version --json 2>/dev/null) || facts=""
"$python" - "$version" "$record" "$facts" "$log.json" "$(id -un)" <<'END'
import json, platform, sys, time
name, record, facts, path, user = sys.argv[1:]
record = json.loads(record)
try:
    facts = json.loads(facts)
except ValueError:  # a version that does not say it
    facts = {}
record.update({key: facts.get(key, "") for key in ("digest", "python", "torch")}, identity=name, by=user)
record.update(when=time.strftime("%Y-%m-%d %H:%M:%S"), host=platform.node())
with open(path, "w") as file:
    json.dump(record, file, indent=1)
END
# what users have already is validated before another takes its place
if [ "$(readlink "$prefix/default")" = "$target" ]; then
    printf '== %s\n' "validate: it takes the place of the default"
    start validate --quick --out "$log.validation" >"$log" 2>&1 ||
        stop "its validation fails, and the default stays: $(grep -m 1 '^error' "$log" || tail -n 1 "$log")"
fi
"""
KEPT = r"""step "a record" mkdir -p "$prefix/installed"
step "a record" cp "$log.json" "$prefix/installed/.$version.part"
step "a record" mv -f "$prefix/installed/.$version.part" "$prefix/installed/$version.json"
"""
PROFILE = """# shellcheck disable=SC1091
type module >/dev/null 2>&1 || . /etc/profile >/dev/null 2>&1 || true"""
LINK = r"""# all went well: from here on it is found by its name
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
    """Who wrote it, what it asks before anything is made."""
    yield "#!/bin/bash"
    yield f"# ordsmed {work.version} on {work.title}:"
    yield f"# {FLAVORS[work.flavor]}"
    if work.words:
        yield f"# written by: {work.words}"
    if work.place.site.note:
        yield from (f"# {line}" for line in work.place.site.note.splitlines())
    yield "set -eo pipefail # not -u: what `module` calls reads variables that are not set"
    yield f"prefix={shlex.quote(str(work.prefix))}"
    if work.flavor != "easybuild":
        yield f"version={work.name}"
    yield "export PYTHONNOUSERSITE=1 # what lies in ~/.local is not part of it"
    yield "# nor is the Python of another installation, which may be on the PATH"
    yield 'PATH=$(tr : "\\n" <<<"$PATH" | grep -vF "$prefix/" | paste -sd : -)'
    yield HEAD
    if work.arch != "unknown":
        remedy = "go to a node of that kind: wheels and libraries of another do not run there"
        yield f'[ "$(uname -m)" = {work.arch} ] || stop "uname -m: found $(uname -m); wanted {work.arch}; {remedy}"'
    yield 'mkdir -p "$prefix" 2>"$log" || stop "$prefix: $(tail -n 1 "$log"); name another folder with --prefix"'
    yield '[ -w "$prefix" ] || stop "$prefix: no permission to write; name another folder with --prefix"'
    yield "free=$(($(df -Pk \"$prefix\" | awk 'NR == 2 {print $4}') / 1048576))"
    room = ROOM_CPU if work.torch == "wheels" and work.index.endswith("/cpu") else ROOM[work.torch]
    yield f'[ "$free" -ge {room} ] || stop "$prefix: $free GiB free; wanted {room}; name another folder with --prefix"'


def modules(work: Installation, names: tuple[str, ...]) -> Iterator[str]:
    """Load what the site says, and say what did not load."""
    before = [*work.place.partition.before, *work.place.site.use] if names else []
    if not names:
        return
    yield ""
    yield PROFILE
    yield 'type module >/dev/null 2>&1 || stop "module: is no command here; stand on a login node of the machine"'
    yield from (f"step {shlex.quote(line)} {line}" for line in before)
    for name in names:
        yield f"step {shlex.quote(f'module load {name}')} module load {shlex.quote(name)}"


def python(work: Installation) -> Iterator[str]:
    """A Python that is new enough, with pip."""
    least = ".".join(map(str, LEAST_PYTHON))
    name = f"python{work.python}" if work.python else "python3"
    remedy = "load a module that holds one (--module), or name another (--python 3.12)"
    yield f'\npython=$(command -v {name}) || stop "{name}: is not here; wanted Python {least} or newer; {remedy}"'
    yield f"\"$python\" -c 'import sys; sys.exit(sys.version_info < {LEAST_PYTHON})' ||"
    yield f'    stop "$python: found $("$python" -V); wanted Python {least} or newer; {remedy}"'
    yield '"$python" -c \'import venv, ensurepip\' 2>"$log" ||'
    yield f'    stop "$python: has no pip ($(tail -n 1 "$log")); install python3-venv, or {remedy}"'


def new_folder() -> Iterator[str]:
    yield LOCKED
    yield '\nnew=$(mktemp -d "$prefix/.ordsmed-$version.XXXXXX" 2>"$log") || stop "$prefix: $(tail -n 1 "$log")"'
    yield 'chmod 755 "$new"'


def description(work: Installation, command: str, target: str, **facts: object) -> Iterator[str]:
    """What it is, before it gets its name: `command` runs it where it lies, `target` is its name below the prefix."""
    place = work.place.name
    site, source = (str(Path(name).absolute()) if Path(name).exists() else name for name in (place, work.source))
    record = {"way": work.flavor, "site": site, "source": source, "target": target, **facts}
    yield "\n# what `ordsmed install --list` says of it"
    yield f"target={shlex.quote(target)}"
    yield f"record={shlex.quote(json.dumps(record))}"
    yield f'start() {{ {command} "$@"; }}'
    yield DESCRIBED.strip()
    yield ""


def wheel(work: Installation) -> Iterator[str]:
    """Ordsmed as one file beside the script."""
    yield '\ncd "$(dirname "$0")"'
    yield "rm -f ordsmed-*.whl"
    if work.bundle:
        yield f"rm -rf bundle && cp -r {shlex.quote(str(work.bundle))} bundle"
        yield "cp bundle/ordsmed-*.whl ."
    else:
        yield f'step "ordsmed as a wheel" "$python" -m pip wheel --no-deps --wheel-dir . {shlex.quote(work.source)}'


def script(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"
