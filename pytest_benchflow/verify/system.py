"""What an agent that was root changed in the system: decided from the list of what differs from the image."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pytest_benchflow.sandboxes import FileChange
from pytest_benchflow.verify.integrity import Finding
from pytest_benchflow.verify.known_names import PROGRAMS
from pytest_benchflow.verify.plan import Context

_PROGRAM_DIRS = tuple(
    f"{top}/{name}" for top in ("/usr/local", "/usr", "") for name in ("bin", "sbin")
)  # fmt: skip
_SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32"),
    *("/usr/lib64", "/usr/libexec", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/share/perl"),
)
_TOPS = ("/usr/local",)
#: Settings that a loader, a shell or an interpreter reads by itself, whoever runs it.
_LOADED = (
    *("/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d/*", "/etc/ld.so.cache", "/etc/profile"),
    *("/etc/profile.d/*", "/etc/bash.bashrc", "/etc/bashrc", "/etc/environment", "/etc/zsh*", "/etc/inputrc"),
    *("/etc/gitconfig", "/etc/pip.conf", "/etc/npmrc", "/etc/nsswitch.conf", "/etc/python3*/sitecustomize.py"),
    *("/etc/alternatives/*", "/etc/shells", "/etc/security/pam_env.conf", "/etc/wgetrc", "/etc/curlrc"),
    *("/usr/lib/*/gconv/*", "/usr/local/etc/gitconfig", "/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/xdg/pip/*"),
    *("/etc/ssl/openssl.cnf", "/usr/lib/ssl/openssl.cnf", "/usr/local/ssl/openssl.cnf", "/etc/apt/apt.conf"),
    *("/etc/apt/apt.conf.d/*", "/etc/dpkg/dpkg.cfg", "/etc/dpkg/dpkg.cfg.d/*", "/etc/perl/*", "/etc/login.defs"),
    *("/etc/pam.d/*", "/etc/pam.conf", "/etc/security/*", "/etc/su-exec*", "/etc/default/*", "/etc/node_modules/*"),
    *("/usr/share/git-core/templates/*", "/usr/local/share/git-core/templates/*", "/usr/local/etc/wgetrc"),
    *("/etc/apt/sources.list*", "/etc/apt/preferences*", "/usr/pip.conf", "/usr/local/pip.conf", "/etc/ld-musl-*.path"),
    # The directories themselves, where a link to another one stands in their place.
    *("/etc/ld.so.conf.d", "/etc/alternatives", "/etc/pam.d", "/etc/security", "/etc/perl", "/etc/default"),
    *("/etc/profile.d", "/etc/apt", "/etc/apt/apt.conf.d", "/etc/dpkg", "/etc/dpkg/dpkg.cfg.d"),
    *("/etc/xdg/git/*", "/etc/uv/*", "/etc/perl/sitecustomize.pl", "/etc/sqliterc", "/etc/crontab", "/etc/cron*/*"),
)
#: The same in a home.
_HOME = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshenv", ".zshrc", ".zprofile"),
    *(".pam_environment", ".gitconfig", ".config/git/*", ".config/pip/*", ".pip/*", ".pydistutils.cfg"),
    *(".npmrc", ".yarnrc", ".curlrc", ".wgetrc", ".inputrc", ".local/lib/python*", ".config/uv/*", ".netrc"),
    *(".pythonrc*", ".pythonstartup*", ".sqliterc", ".psqlrc", ".condarc", ".cargo/config*", ".gdbinit", ".Rprofile"),
    *(".config/pytest*", ".coveragerc", ".mocharc*", ".tmux.conf", ".ssh/rc", ".bash_aliases", ".perltidyrc"),
    *(".config/curlrc", ".node_modules/*", ".node_libraries/*", ".cache/uv/*", ".cache/pip/*", ".perldb"),
    *(".local/bin/*", "bin/*", "conftest.py", "pytest.ini", "sitecustomize.py", "usercustomize.py"),
)
#: Where an interpreter is, or above it, these say where its library is.
_BESIDE_INTERPRETERS = re.compile(r"pyvenv\.cfg|pybuilddir\.txt|python[\w.]*\._pth|Modules")
#: Modules by which the C library looks up users and hosts: it tries all that its configuration names.
_NAME_SERVICE = re.compile(r"/libnss_\w+(?:-[\d.]+)?\.so[\d.]*$")
#: What dpkg runs for a package whenever something is installed, and which of them.
_MAINTAINER = re.compile(r"/var/lib/dpkg/(?:info/.+\.(?:preinst|postinst|prerm|postrm|config|triggers)|triggers/.+)")
_EVERYWHERE = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("sitecustomize.py", "usercustomize.py"),
)
#: The same in directories above the tests and the workspace, where tools look for the root of a project.
_ABOVE = ("tox.ini", "setup.cfg", "pyproject.toml", "package.json", ".npmrc", "config.toml", ".git", "jest.config.*")
_FAMILY = ("pytest", "_pytest", "pluggy", "iniconfig", "py.py")
_STDLIB = re.compile(r"(/usr(?:/local)?/lib/python3(?:\.\d+)?)/(?!(?:site|dist)-packages/)(.+)")
_PACKAGES = re.compile(r"(/usr(?:/local)?/lib/python3(?:\.\d+)?/(?:site|dist)-packages)/([^/]+)(?:/(.*))?")
#: Modules of Perl's own in directories where it looks before those that it came with.
_PERL = re.compile(
    r"^/usr/local/(?:share|lib/[^/]+|lib)/(?:perl|site_perl)[^/]*/(?:[\d.]+/)?(?:strict|warnings|utf8|lib|vars|constant|parent|base"
    r"|feature|overload|integer|bytes|Carp|Exporter|Config|POSIX|Cwd|Encode|Storable|Socket|Symbol|Errno|Fcntl|XSLoader"
    r"|File/(?:Spec|Basename|Temp|Path|Copy|Find)|IO/(?:File|Handle|Select|Socket)|List/Util|Scalar/Util|Data/Dumper"
    r"|JSON/PP|Getopt/(?:Long|Std)|Test/(?:More|Builder|Simple|Harness)|Time/(?:HiRes|Local)|Digest/(?:MD5|SHA)"
    r"|MIME/Base64|Text/\w+|Term/\w+|Tie/\w+)(?:\.pmc?|/)"
)
#: Directories in which Perl looks first, and those that it came with, as patterns.
_PERL_PLACE = re.compile(
    r"/etc/perl/|/usr/local/(?:share|lib(?:/[^/]+)?)/(?:perl|site_perl)5?/(?:[\d.]+/)?(?:[\w-]+-linux[\w-]*/)?"
)
_PERL_LIBRARIES = (
    *("/usr/share/perl/*", "/usr/share/perl5", "/usr/lib/*/perl/*", "/usr/lib/*/perl-base", "/usr/lib/*/perl5/*"),
    *(
        "/usr/lib/perl5/*",
        "/usr/local/lib/perl5/[0-9]*",
        "/usr/local/lib/perl5/[0-9]*/*-linux*",
        "/usr/lib/perl5/core_perl",
    ),
)
_MANAGED = ("/var/lib/dpkg/status", "/lib/apk/db/installed", "/var/lib/rpm")


@dataclass(slots=True)
class SystemPlan:
    """What to put back from the image, and what to remove."""

    restore: dict[str, None] = field(default_factory=dict)
    remove: dict[str, None] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    hiding: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What is to be removed if there is a file that one of its patterns matches: what it stands before."""
    links: dict[str, None] = field(default_factory=dict)
    """What is to be removed if it is a link."""
    read: dict[str, None] = field(default_factory=dict)
    """Directories whose files are to be looked at, since only their content tells."""
    relinks: bool = False
    """Whether the loader's cache has to be made anew."""


def decide_system(
    before: Collection[str], changes: Iterable[FileChange], context: Context, homes: Collection[str]
) -> SystemPlan:
    """Return what to do about what differs from the image now and did not differ `before` the agent."""
    plan = SystemPlan()
    changes = [change for change in changes if change.path not in before]
    if context.workdir != "/":
        changes = [change for change in changes if not _is_below(change.path, context.workdir)]
    added_dirs = _added_parents(changes)
    is_managed = any(change.path in _MANAGED for change in changes)
    upgraded = _upgraded(changes)
    for change in changes:
        if any(change.path.startswith(f"{top}/") for top in added_dirs):
            continue
        _decide(change, context, homes, upgraded, plan, is_managed=is_managed)
    return plan


def _added_parents(changes: Iterable[FileChange]) -> set[str]:
    """Return directories that are new as a whole in a place for modules, such as another interpreter's library."""
    new = {change.path for change in changes if change.kind == "added"}
    return {path for path in new if re.fullmatch(r"/usr(?:/local)?/lib/(?:python3\.\d+|node_modules|ruby|perl)", path)}


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def _upgraded(changes: Iterable[FileChange]) -> set[str]:
    """Return names of packages, in lower case, whose metadata is new: somebody has installed another version."""
    names = set()
    for change in changes:
        match = _PACKAGES.fullmatch(change.path)
        if match and change.kind == "added" and re.search(r"\.(?:dist|egg)-info$", match[2]):
            names.add(re.split(r"-\d", match[2], maxsplit=1)[0].lower().replace("-", "_"))
    return names


def _decide(
    change: FileChange,
    context: Context,
    homes: Collection[str],
    upgraded: set[str],
    plan: SystemPlan,
    *,
    is_managed: bool,
) -> None:
    path, name = change.path, posixpath.basename(change.path)
    if any(fnmatchcase(path, pattern) for pattern in _LOADED):
        _decide_loaded(change, context, plan, is_managed=is_managed)
    elif _BESIDE_INTERPRETERS.fullmatch(name) and _is_beside_programs(path, context):
        plan.remove[path] = None
        _report(plan, f"{path} tells Python to look for its library somewhere else; removed", path)
    elif _MAINTAINER.fullmatch(path):
        if change.kind == "added":
            plan.remove[path] = None
        else:
            plan.restore[path] = None
    elif _NAME_SERVICE.search(path) and change.kind == "added":
        plan.remove[path] = None
        _report(plan, f"{path} would be loaded by every program that looks up a user or a host; removed", path)
    elif home := next((home for home in homes if _is_below(path, home) and path != home), None):
        if any(fnmatchcase(path[len(home) + 1 :], pattern) for pattern in _HOME):
            plan.remove[path] = None
            if change.kind == "changed":
                plan.restore[path] = None
    elif match := _PACKAGES.fullmatch(path):
        _decide_package(change, match, upgraded, context, plan)
    elif re.fullmatch(r"/usr(?:/local)?/lib/python3\d+\.zip", path):
        plan.remove[path] = None
        _report(plan, f"{path} stands before Python's own library; removed", path)
    elif match := _STDLIB.fullmatch(path):
        _decide_stdlib(change, match, plan, is_managed=is_managed)
    elif (path in _TOPS and change.kind == "changed") or (path in _SYSTEM and change.kind == "deleted"):
        plan.restore[path] = None
    elif path.startswith("/usr/lib/gcc/") and change.kind == "added" and not is_managed:
        plan.remove[path] = None
    elif posixpath.dirname(path) in (*_PROGRAM_DIRS, *context.path):
        _decide_program(change, name, context, plan, is_managed=is_managed)
    elif _PERL.search(path) and change.kind == "added":
        plan.remove[path] = None
        _report(plan, f"{path} stands before a module that comes with Perl; removed", path)
    elif (place := _PERL_PLACE.match(path)) and change.kind == "added":
        plan.hiding[path] = tuple(f"{top}/{_quoted(path[place.end() :])}" for top in _PERL_LIBRARIES)
    elif re.fullmatch(r"/node_modules(/[^/]+)?", path) and change.kind == "added" and path not in context.prose:
        plan.remove[path] = None
    elif any(_is_below(path, top) for top in _SYSTEM):
        if change.kind == "changed":
            plan.restore[path] = None
            if not is_managed and not name.endswith((".pyc", ".cache")) and ".so" in name:
                _report(plan, f"{path}, a file of the image's, was replaced; put back", path)
    elif change.kind != "deleted" and (name in _EVERYWHERE or _is_above(path, context)):
        plan.remove[path] = None
        _report(plan, f"{path} lies outside the workspace, where only a verifier would read it; removed", path)


def _report(plan: SystemPlan, message: str, path: str) -> None:
    plan.findings.append(Finding(kind="system_file", message=message, paths=[path]))


def _decide_loaded(change: FileChange, context: Context, plan: SystemPlan, *, is_managed: bool) -> None:
    path = change.path
    if path in context.prose or (change.kind == "deleted" and not path.startswith("/etc/ld.so")):
        return
    if path.startswith("/etc/alternatives/") and change.kind == "added":
        return
    is_source = path.startswith(("/etc/apt/sources.list", "/etc/apt/preferences"))
    if is_source and change.kind == "added":
        plan.read[posixpath.dirname(path)] = None
        return
    if path.startswith(("/etc/cron", "/etc/crontab")):
        return
    if path.startswith("/etc/profile.d/") and change.kind == "added":
        plan.read["/etc/profile.d"] = None
        return
    if change.kind == "added":
        plan.remove[path] = None
    if change.kind != "added" or path.startswith("/etc/ld.so"):
        # What the loader reads is emptied before any program removes it.
        plan.restore[path] = None
    plan.relinks |= path.startswith("/etc/ld.so")
    if path == "/etc/ld.so.preload":
        _report(plan, f"{path} makes every program load a library of the agent's; removed", path)
    elif not is_managed and not is_source and path != "/etc/ld.so.cache":
        _report(plan, f"{path} is read by every shell or program and was {change.kind}; put back", path)


def _decide_package(
    change: FileChange, match: re.Match[str], upgraded: set[str], context: Context, plan: SystemPlan
) -> None:
    path, top, rest = change.path, match[2], match[3]
    if (top.startswith(_FAMILY) and not top.startswith(("pytest_", "pytest-"))) or re.match(r"pytest-\d", top):
        if change.kind == "added":
            plan.remove[path] = None
        else:
            plan.restore[path] = None
            if change.kind == "changed" and path.endswith(".py") and "pytest" not in upgraded:
                _report(plan, f"{path}, a part of pytest, was changed; put back", path)
        return
    if change.kind == "deleted":
        return
    if change.kind == "added":
        if path.endswith(".pyc") and "/__pycache__/" in path:
            plan.remove[path] = None
        elif rest is None and top.endswith(".pth"):
            plan.read[match[1]] = None
        elif rest is None and re.search(r"\.(?:dist|egg)-info$", top, re.IGNORECASE):
            plan.links[path] = None
        elif rest == "entry_points.txt":
            plan.read[posixpath.dirname(path)] = None
        elif posixpath.basename(path) in ("sitecustomize.py", "usercustomize.py"):
            plan.remove[path] = None
            _report(plan, f"{path} would run in every Python program; removed", path)
        elif rest in (None, "__init__.py") and (top.partition(".")[0] in sys.stdlib_module_names):
            plan.remove[path] = None
        elif (rest == "__init__.py" or top.endswith(".so")) and f"{top.partition('.')[0]}.py" in context.installed:
            plan.remove[f"{match[1]}/{top}"] = None
            _report(plan, f"{match[1]}/{top} stands before the image's own module; removed", path)
        return
    package = top.partition("-")[0].partition(".")[0].lower()
    if package not in upgraded:
        plan.restore[path] = None
        if path.endswith((".py", ".pth", ".so", "entry_points.txt")):
            _report(plan, f"{path}, a file of the image's, was changed; put back", path)


def _decide_stdlib(change: FileChange, match: re.Match[str], plan: SystemPlan, *, is_managed: bool) -> None:
    path, rest = change.path, match[2]
    if change.kind == "deleted":
        return
    if change.kind == "changed":
        plan.restore[path] = None
        if not is_managed and not path.endswith(".pyc"):
            _report(plan, f"{path}, a file of the image's Python, was changed; put back", path)
    elif path.endswith(".pyc") and "/__pycache__/" in path:
        plan.remove[path] = None
    elif ("/" not in rest and rest.endswith((".py", ".pyc", ".so"))) or rest.endswith("/__init__.py"):
        if is_managed:
            # A package of the system's adds to the library what is not there yet.
            package = re.sub(r"/__init__\.\w+$", "", path)
            module = _quoted(package if package != path else re.sub(r"\.[^/]*$", "", path))
            patterns = (f"{module}.py", f"{module}/__init__.py") if package == path else (f"{module}.py",)
            plan.hiding[package] = tuple(pattern for pattern in patterns if pattern != _quoted(path))
            return
        plan.remove[path] = None
        _report(plan, f"{path} stands before what is installed for Python; removed", path)


def _decide_program(change: FileChange, name: str, context: Context, plan: SystemPlan, *, is_managed: bool) -> None:
    path = change.path
    if change.kind == "deleted":
        # Without them nothing can be verified, nor cleaned up.
        if name in PROGRAMS and name not in context.prose:
            plan.restore[path] = None
        return
    if change.kind == "changed":
        if name in context.known_programs or not _is_wanted(name, context):
            plan.restore[path] = None
            if not is_managed:
                _report(plan, f"{path}, a program of the image's, was replaced; put back", path)
    elif change.kind == "added" and _stands_before(name, context):
        if is_managed and path.startswith(("/usr/bin", "/usr/sbin")):
            later = (
                context.path[context.path.index(here) + 1 :]
                if (here := posixpath.dirname(path)) in context.path
                else ()
            )
            same = {here, here.removeprefix("/usr"), f"/usr{here}"}
            plan.hiding[path] = tuple(f"{_quoted(place)}/{_quoted(name)}" for place in later if place not in same)
            return
        if not _is_wanted(name, context):
            plan.remove[path] = None
            _report(plan, f"{path} stands before the image's own {name}; removed", path)


def _stands_before(name: str, context: Context) -> bool:
    """Return whether a program is one that verifiers know, or another release of their interpreter, and a new one."""
    if re.fullmatch(r"python3?\.\d+", name) and name not in context.known_programs:
        return "python3" in context.known_programs
    return name in PROGRAMS and name in context.known_programs


def shadowing_libraries(own: str, now: str, context: Context) -> list[str]:
    """Return libraries that the loader takes in place of the image's, from what `ldconfig -p` says of both caches."""
    known, libraries = _cached(own), _cached(now)
    places = {place for entries in known.values() for place in entries}
    return [
        place
        for (name, kind), entries in libraries.items()
        if (name, kind) in known or name.startswith("libnss_")
        for place in entries
        if place not in places and re.sub(r"^lib|[-\d.]*\.so.*$", "", name) not in context.prose
    ]


def _cached(listing: str) -> dict[tuple[str, str], list[str]]:
    libraries: dict[tuple[str, str], list[str]] = {}
    for match in re.finditer(r"^\s+(\S+) \(([^),]*(?:,[^),: ]+)?)[^)]*\) => (\S.*)$", listing, re.MULTILINE):
        libraries.setdefault((match[1], match[2]), []).append(match[3])
    return libraries


def _quoted(path: str) -> str:
    """Return a pattern of the shell's that only the path itself matches."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", path)


def _is_beside_programs(path: str, context: Context) -> bool:
    directory = posixpath.dirname(path)
    return any(directory in (place, posixpath.dirname(place)) for place in (*_PROGRAM_DIRS, *context.path) if place)


def _is_above(path: str, context: Context) -> bool:
    """Return whether tools that look for the root of a project find a file above the tests or the workspace."""
    directory, name = posixpath.split(path)
    directory = directory.removesuffix("/.cargo")
    is_around = any(_is_below(place, directory) for place in (context.workdir, "/tests", "/verifier"))
    return is_around and any(fnmatchcase(name, pattern) for pattern in _ABOVE) and path not in context.prose


def _is_wanted(name: str, context: Context) -> bool:
    """Return whether the task asks for another version of a program."""
    plain = re.escape(re.sub(r"[\d.]+$", "", name) or name)
    asked = rf"(?:install|build|compil|upgrad|updat|replac|patch|fix)\w*\b[^.\n]{{0,120}}\b{plain}"
    return re.search(asked, context.prose, re.IGNORECASE) is not None
