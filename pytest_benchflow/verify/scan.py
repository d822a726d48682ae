"""What in a sandbox could change what a verifier runs: read in one command, before the agent and again after it."""

from __future__ import annotations

import base64
import io
import re
import shlex
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import VerifierError
from pytest_benchflow.core.text import exit_status, one_line
from pytest_benchflow.sandboxes import OWN_ENV
from pytest_benchflow.verify.pins import named_variables
from pytest_benchflow.verify.spoiled import EnvironmentSpoiled, spoiled_error

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Service

MAX_CONTENT_BYTES = 200 << 10
"""Larger files of a name that is looked for are known by name only."""
_MAX_ARCHIVE_BYTES = 12 << 20
_MAX_UNPACKED_BYTES = 256 << 20
_TIMEOUT_SEC = 180.0

#: Files that test runners, interpreters and build tools read by themselves.
NAMES = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"),
    *("pyproject.toml", ".coveragerc", "setup.py", "noxfile.py", "hatch.toml", "flit.ini", "MANIFEST.in"),
    *("Makefile", "makefile", "GNUmakefile", "package.json", ".npmrc", ".mocharc*", "jest.config*"),
    *("vitest.config*", "ava.config*", "karma.conf*", ".nycrc*", ".taprc", "uv.toml", "pip.conf", "pip.ini"),
    *(".rspec", "bunfig.toml", ".yarnrc", ".yarnrc.yml", ".pnpmfile.*", ".bazelrc", "jvm.config", "babel.config*"),
    *("sitecustomize.*", "usercustomize.*", "pyvenv.cfg", "requirements*.txt"),
    *(".proverc", ".Rprofile", ".Renviron", ".octaverc", "playwright.config*", "cypress.config*", "jasmine.json"),
    *(".c8rc*", "behave.ini", ".behaverc", "nose2.cfg", "unittest.cfg", ".noserc", "phpunit.xml*", ".babelrc*"),
    *(".swcrc", "vite.config*", "tsconfig.json", "mypy.ini", ".mypy.ini", ".pylintrc", "pylintrc", ".flake8"),
    *("ruff.toml", ".ruff.toml", "spec_helper.rb", "rails_helper.rb", "test_helper.rb", "Rakefile", "maven.config"),
    *("extensions.xml", "rust-toolchain*", "*.mk"),
    *(".git", "config", "HEAD", "commondir"),
)
_PATHS = (
    "*/bin/python*",
    *("*/site-packages/*.pth", "*/dist-packages/*.pth", "*-packages/__editable__*"),
    *("*.git/config", "*.git/config.worktree", "*.git/modules/*/config", "*.git/worktrees/*/config*"),
    *("*/hooks/*", "*.git/info/attributes", "*/.cargo/config", "*/.cargo/config.toml"),
)

# Paths with line ends are left out here: `odd` has those. Everything goes out through one base64, the archive last.
_SCRIPT = r"""
roots=({roots}) tops=({tops}) programs=({programs}) extra=({extra})
{first}
live=() livetops=() livedirs=()
for d in "${{roots[@]}}"; do [ -d "$d" ] && live+=("$d"); done
for d in "${{tops[@]}}"; do [ -d "$d" ] && [ ! -L "$d" ] && livetops+=("$d"); done
for d in "${{programs[@]}}"; do [ -d "$d" ] && livedirs+=("$d"); done
named=({named})
pruned=(-type d '(' -name node_modules -o -path '*.git/objects' -o -path '*.git/refs' ')' -prune -o)
nl=$'\n'
files() {{
  [ ! -f /etc/passwd ] || echo /etc/passwd
  [ ${{#live[@]}} = 0 ] || find "${{live[@]}}" -xdev "${{pruned[@]}}" ! -path "*$nl*" \
    '(' -type l -o -type f -size -{blocks} '(' "${{named[@]}}" ')' ')' -print
  for f in "${{extra[@]}}"; do
    [ ! -f "$f" ] && [ ! -L "$f" ] || printf '%s\n' "$f"
  done
  [ ${{#livedirs[@]}} = 0 ] || find "${{livedirs[@]}}" -maxdepth 1 ! -path "*$nl*" \
    '(' -type l -o -type f -size -{blocks} ')' -print
}}
all() {{
  if [ ${{#live[@]}} != 0 ]; then
    printf '\0\0#facts\0'
    # The first half looks at every file and never holds, so that the second one does too.
    find "${{live[@]}}" -xdev "${{pruned[@]}}" ! -path "*$nl*" \
      '(' ! -path '*/site-packages/*.pyc' \
      '(' -name '*.pyc' -o ! -type d ! -type l '(' "${{named[@]}}" ')' '(' -size +{over} -o ! -type f ')' ')' \
      -exec stat -c 'F%i %s %z|%n' {{}} + -type d -type f \
      -o '(' -type p -o -type f -links +1 ')' -exec stat -c 'S%d:%i %F|%n' {{}} + ')' 2>/dev/null
    {odd}
  fi
  printf '\0\0#limits\0'
  {{ printf '%s\n' "$(</proc/1/limits)"; }} 2>/dev/null
  printf '\0\0#waiting\0'
  for f in /logs/verifier/* /logs/verifier/.[!.]* /tests/* /verifier/*; do
    [ -e "$f" ] || [ -L "$f" ] && [[ $f != *"$nl"* ]] && printf '%s\n' "$f"
  done
  printf '\0\0#linked\0'
  for d in "${{roots[@]}}"; do [ -L "$d" ] && printf '%s\n' "$d"; done
  if [ ${{#livetops[@]}} != 0 ]; then
    printf '\0\0#modules\0'
    find "${{livetops[@]}}" -maxdepth 2 ! -path "*$nl*" '(' -name '*.py' -o -name '*.pyc' -o -name '*.so' ')' -print
  fi
  if [ -n '{since}' ] && [ ${{#live[@]}} != 0 ]; then
    printf '\0\0#fresh\0'
    fresh=$(find "${{live[@]}}" -xdev ! -path "*$nl*" '(' -path '*/node_modules/*' -o -path '*/site-packages/*' ')' \
      ! -type d -newerct '@{since}' -print 2>/dev/null)
    printf '%s\n' "$fresh"
    printf '\0\0#hiding\0'
    while IFS= read -r f; do
      case $f in
        */site-packages/*/__init__.*) d=${{f%/*}} ;;
        */site-packages/*.so) d=${{f##*/}} d=${{f%/*}}/${{d%%.*}} ;;
        *) continue ;;
      esac
      [ -e "$d.py" ] && printf '%s\n' "$d"
    done <<<"$fresh"
  fi
  {more}
  list=$(files)
  printf '\0\0#files\0'
  if [ -n "$list" ]; then
    flags=
    # GNU's tar reads escapes in names.
    [[ $list == *\\* && $(tar --version 2>/dev/null) == *GNU* ]] && flags=--verbatim-files-from
    printf '%s\n' "$list" | tar -czf - --no-recursion $flags -T - 2>/dev/null | head -c {limit}
  fi
}}
all | base64
echo '#end'
"""

# An agent's; before it came there was nothing to take away.
_ODD = r"""
    printf '\0\0#odd\0'
    find "${live[@]}" -xdev "${pruned[@]}" -path "*$nl*" '(' -type l -o "${named[@]}" ')' -print0
"""
# A pattern such as * gives programs their names as options.
_OPTIONS = r"""
    printf '\0\0#options\0'
    find "${{live[@]}}" -xdev "${{pruned[@]}}" -name '-?*' ! -type d -newerct '@{since}' -print0 2>/dev/null
"""

# What the image's own variables name is looked at as well.
_FROM_ENV = r"""
others=()
entries() {{
  words=()
  local rest=$1:
  while [ -n "$rest" ]; do words+=("${{rest%%:*}}") rest=${{rest#*:}}; done
}}
entries "${{PATH:-}}"
for d in "${{words[@]}}"; do
  case $d in
    /bin | /sbin | /usr/bin | /usr/sbin | /usr/local/bin | /usr/local/sbin) ;;
    {inside}) programs+=("$d") others+=("$d") ;;
    /*) others+=("$d") ;;
  esac
done
above=()
for d in "${{others[@]}}"; do
  while [ -n "$d" ]; do above+=("$d/") d=${{d%/*}}; done
done
if [ ${{#above[@]}} != 0 ]; then
  # Not root's, or open to all: what is below may be anybody's.
  while IFS= read -r p; do
    for d in "${{others[@]}}"; do [[ $d/ != "$p"* ]] || programs+=("$d"); done
  done < <(exec find "${{above[@]}}" -maxdepth 0 '(' ! -user 0 -o -perm -2 ! -perm -1000 ')' -print 2>/dev/null)
fi
while IFS= read -r p; do
  programs+=("${{p%/*}}/bin")
done < <(exec find "${{roots[@]}}" -xdev -name node_modules -prune -o -name pyvenv.cfg -print 2>/dev/null)
entries "${{NODE_PATH:-}}"
for d in "${{words[@]}}"; do case $d in /*) programs+=("$d") ;; esac; done
entries "${{PYTHONPATH:-}}"
for d in "${{words[@]}}"; do
  case $d in '') ;; /*) tops+=("${{d%/}}") ;; *) tops+=("${{roots[0]}}/${{d#./}}") ;; esac
done
"""

_FACTS = r"""
printf '\0\0#binaries\0'
for d in /usr/local/bin /usr/local/sbin /usr/bin /usr/sbin /bin /sbin "${{others[@]}}"; do
  [ -L "$d" ] || {{ cd "$d" 2>/dev/null && printf '%s\n' *; }}
done
cd /
printf '\0\0#packages\0'
printf '%s\n' /usr/lib/python3*/*-packages/* /usr/lib/python3/dist-packages/* /usr/local/lib/python3*/*-packages/*
printf '\0\0#added\0'
for f in /usr/lib/python3*/*-packages/*.pth /usr/local/lib/python3*/*-packages/*.pth; do
  [ -f "$f" ] && while IFS= read -r line; do [[ $line == /* ]] && printf '%s\n' "$line"; done <"$f"
done
printf '\0\0#sites\0'
sites=()
while IFS=: read -r _ _ uid _ _ home _; do
  [ "$uid" = {verifier} ] || continue
  for d in "$home"/.local/lib/python3*/site-packages; do
    [ -d "$d" ] && [ "$(cd -P "$d" && pwd)" = "$d" ] && printf '%s\n' "$d" && sites+=("$d")
  done
  break
done </etc/passwd
printf '\0\0#now\0'
echo "${{EPOCHREALTIME:-$(date +%s.%N)}}"
printf '\0\0#ids\0'
for user in {users}; do printf '%s %s\n' "$user" "$(id -u "$user" 2>/dev/null)"; done
printf '\0\0#env\0'
env -0 </dev/null
printf '\0\0#programs\0'
for p in /proc/[0-9]*; do
  {{ IFS= read -r line <"$p/stat"; }} 2>/dev/null || continue
  name=${{line#*(}}; set -- ${{line##*) }}
  case " $$ $PPID $BASHPID " in *" ${{p#/proc/}} "* | *" $2 "*) continue ;; esac
  echo "${{p#/proc/}}:${{20}} ${{name%)*}}"
done
"""

# For each path that a variable names, and all directories above it, whose it is and who may write there.
_OWNERS = r"""
printf '\0\0#owners\0'
owners() {{
  local -A dirs=()
  local p IFS=$':=,; \t\n'
  set -f
  for p in {variables} "${{sites[@]}}"; do
    [[ $p == /* ]] || continue
    p=${{p%/}}
    while [ -n "$p" ]; do dirs[$p]=1; p=${{p%/*}}; done
  done
  set +f
  [ ${{#dirs[@]}} = 0 ] || stat -L -c '%u %a|%n' -- "${{!dirs[@]}}" 2>/dev/null
}}
owners
"""


class TooManyFiles(EnvironmentSpoiled):
    """There is more of what has to be looked at than any honest workspace has."""

    def __init__(self) -> None:
        super().__init__("the workspace has more links and build files than can be looked at")


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file or link whose name says that something reads it by itself."""

    path: str
    content: bytes
    mode: int
    uid: int
    gid: int
    link: str | None = None

    @property
    def text(self) -> str:
        """The content as text, whatever it is."""
        return self.content.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Scan:
    """What a sandbox held at one moment."""

    files: Mapping[str, ScannedFile] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    """What tells versions apart of bytecode, and of files whose content was not read."""
    odd: tuple[str, ...] = ()
    """Paths with line ends."""
    options: tuple[str, ...] = ()
    """New files whose names look like options of a program."""
    modules: frozenset[str] = frozenset()
    """What Python could import from the directories that it may look into first."""
    packages: frozenset[str] = frozenset()
    """Names of what is installed for the system's interpreters."""
    env: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    """Names of what runs, by NUMBER:START."""
    binaries: frozenset[str] = frozenset()
    """Names of the programs in the system's directories."""
    added: tuple[str, ...] = ()
    """Directories that the system's interpreters look into because of .pth files."""
    sites: tuple[str, ...] = ()
    """Directories of Python packages that the image installed for the verifier's user alone."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """Numbers of users."""
    pipes: frozenset[str] = frozenset()
    """Named pipes."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """What tells files apart that have several names."""
    waiting: frozenset[str] = frozenset()
    """What lies where results and tests will be."""
    limits: str = ""
    """What process 1 may use, from which commands of the harness come."""
    now: str = ""
    """The sandbox's clock, if it tells more than seconds."""
    fresh: tuple[str, ...] = ()
    """What was written in directories of installed packages."""
    hiding: tuple[str, ...] = ()
    """Packages among that, by their names, that hide a module beside them."""
    owners: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """User and mode of directories."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What else is asked of a sandbox before an agent comes."""

    users: Sequence[str]
    """Users whose numbers are to be told."""
    places: Sequence[str]
    """Directories that the agent may write to, whoever owns them."""
    verifier: int = 0
    """The number of the verifier's user."""


async def scan(
    sandbox: Service,
    *,
    roots: Sequence[str],
    tops: Sequence[str],
    programs: Sequence[str] = (),
    extra: Sequence[str] = (),
    baseline: Baseline | None = None,
    since: str = "",
) -> Scan:
    """Look into `roots` with all below, into `tops` for modules, into `programs` for all files; `extra` are files.

    Of installed packages it tells what was written `since` a moment. With a baseline the command gets the variables of
    the image, which no agent has had a chance to use yet.
    """
    named = " -o ".join(
        [
            *(f"-name {shlex.quote(name)}" for name in NAMES),
            *(f"-path {shlex.quote(path)}" for path in _PATHS),
            "'(' -name __init__.py ! -path '*/site-packages/*' ')'",
            # Names of directories with metadata are compared without regard to case.
            "-ipath '*-info/entry_points.txt'",
        ]
    )
    blocks = MAX_CONTENT_BYTES // 512
    first = more = ""
    odd = _ODD
    if baseline is not None:
        inside = " | ".join(f"{shlex.quote(place)} | {shlex.quote(place)}/*" for place in baseline.places)
        odd = ""
        first = _FROM_ENV.format(inside=inside or "''")
        more = _FACTS.format(users=shlex.join(baseline.users), verifier=baseline.verifier) + _OWNERS.format(
            variables=named_variables()
        )
    elif since:
        odd += _OPTIONS.format(since=since)
    script = _SCRIPT.format(
        roots=shlex.join(outermost(roots)),
        tops=shlex.join(dict.fromkeys(tops)),
        programs=shlex.join(dict.fromkeys(programs)),
        extra=shlex.join(dict.fromkeys(extra)),
        named=named,
        blocks=blocks,
        over=blocks - 1,
        limit=_MAX_ARCHIVE_BYTES,
        first=first,
        odd=odd,
        more=more,
        since=since,
    )
    env = OWN_ENV if baseline is None else None
    try:
        done = await sandbox.exec(script, user=0, cwd="/", env=env, timeout_sec=_TIMEOUT_SEC)
    except TimeoutError:
        raise VerifierError(f"the workspace could not be looked at within {_TIMEOUT_SEC:g} s") from None
    if "#end" not in done.stdout[-10:]:
        reason = one_line(done.stderr, 300) or exit_status(done.return_code)
        raise spoiled_error(f"the workspace cannot be looked at: {reason}")
    return _parsed(done.stdout)


def outermost(paths: Iterable[str]) -> list[str]:
    """Return paths without those that lie below another one."""
    unique = list(dict.fromkeys(path.rstrip("/") or "/" for path in paths))
    return [path for path in unique if not any(path != top and path.startswith(f"{top}/") for top in unique)]


def _parsed(output: str) -> Scan:
    text, _, _ = output.rpartition("#end")
    head, _, archive = base64.b64decode(text).partition(b"\0\0#files\0")
    sections = {name: data for name, _, data in (part.partition(b"\0") for part in head.split(b"\0\0#")[1:])}
    files, links = _unpacked(archive)
    texts = {name.decode(): data.decode("utf-8", "surrogateescape") for name, data in sections.items()}
    facts = [line.partition("|")[::2] for line in _lines(texts, "facts")]
    ids = _lines(texts, "ids")
    owners = (line.partition("|")[::2] for line in _lines(texts, "owners"))
    several = {path: fact[1:] for fact, path in facts if fact.startswith("S")}
    linked = dict.fromkeys(_lines(texts, "linked"), "")
    return Scan(
        files=files,
        links={**linked, **links},
        facts={path: fact[1:] for fact, path in facts if fact.startswith("F")},
        odd=tuple(filter(None, texts.get("odd", "").split("\0"))),
        options=tuple(filter(None, texts.get("options", "").split("\0"))),
        modules=frozenset(_lines(texts, "modules")),
        packages=frozenset(path.rpartition("/")[2] for path in _lines(texts, "packages")),
        env=dict(line.partition("=")[::2] for line in texts.get("env", "").split("\0") if "=" in line),
        programs=dict(line.partition(" ")[::2] for line in _lines(texts, "programs")),
        added=tuple(dict.fromkeys(texts.get("added", "").split())),
        sites=tuple(_lines(texts, "sites")),
        now=now if re.fullmatch(r"\d+\.\d+", now := texts.get("now", "").strip().replace(",", ".")) else "",
        pipes=frozenset(path for path, fact in several.items() if fact.endswith("fifo")),
        shared={path: fact for path, fact in several.items() if not fact.endswith("fifo")},
        limits=texts.get("limits", "").strip(),
        waiting=frozenset(_lines(texts, "waiting")),
        fresh=tuple(filter(None, _lines(texts, "fresh"))),
        hiding=tuple(_lines(texts, "hiding")),
        binaries=frozenset(_lines(texts, "binaries")),
        ids={name: int(uid) for name, _, uid in (line.partition(" ") for line in ids) if uid.isdigit()},
        owners={path: (int(fact.split()[0]), int(fact.split()[1], 8)) for fact, path in owners if path},
    )


def _lines(texts: Mapping[str, str], section: str) -> list[str]:
    """Return the lines of a section; names may have in them what ends lines elsewhere."""
    return [line for line in texts.get(section, "").split("\n") if line]


def _unpacked(data: bytes) -> tuple[dict[str, ScannedFile], dict[str, str]]:
    files: dict[str, ScannedFile] = {}
    links: dict[str, str] = {}
    if not data:
        return files, links
    try:
        plain = zlib.decompressobj(wbits=31).decompress(data, _MAX_UNPACKED_BYTES)
        with tarfile.open(fileobj=io.BytesIO(plain), errors="surrogateescape") as archive:
            seen: dict[str, ScannedFile] = {}
            for member in archive:
                path = "/" + member.name.lstrip("/")
                if member.issym():
                    links[path] = member.linkname
                elif member.islnk():
                    if (same := seen.get("/" + member.linkname.lstrip("/"))) is not None:
                        files[path] = ScannedFile(path, same.content, same.mode, same.uid, same.gid)
                elif member.isreg() and (file := archive.extractfile(member)) is not None:
                    files[path] = ScannedFile(path, file.read(), member.mode, member.uid, member.gid)
                    seen[path] = files[path]
            if archive.offset >= _MAX_UNPACKED_BYTES:
                raise TooManyFiles
    except (tarfile.TarError, EOFError, zlib.error):
        raise TooManyFiles from None
    return files, links
