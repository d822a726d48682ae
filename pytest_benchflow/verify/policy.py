"""What of an agent's changes a verifier must not see: decided from two scans, without touching the sandbox."""

from __future__ import annotations

import ast
import configparser
import json
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.verify.git_config import cleaned_git_config
from pytest_benchflow.verify.integrity import Finding, FindingKind
from pytest_benchflow.verify.known_names import ALWAYS_IMPORTED, PROGRAMS, PYTEST_FAMILY
from pytest_benchflow.verify.scan import Scan, ScannedFile

if TYPE_CHECKING:
    from pytest_benchflow.tasks import Hardening

#: What nobody writes into a test configuration who only wants to test.
INCRIMINATING = re.compile(
    r"/logs/verifier|reward\.(?:txt|json)|ctrf\.json|(?<![\w./-])/(?:tests|verifier|solution|oracle)\b|test_outputs|LD_PRELOAD"
    r"|pytest_(?:runtest_makereport|runtest_logreport|runtest_call|runtest_protocol|pyfunc_call|collection_modifyitems"
    r"|sessionfinish|unconfigure|report_teststatus|cmdline|itemcollected|ignore_collect|terminal_summary)"
    r"|os\._exit|sys\.settrace|sys\.addaudithook|\.outcome\s*=|atexit"
)
#: Read by test runners for the tests of a project: what an agent adds is taken away, what it changes put back.
_TEST_CONFIG = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", ".coveragerc", ".mocharc*"),
    *("jest.config*", "vitest.config*", "ava.config*", "karma.conf*", ".nycrc*", ".taprc", "noxfile.py", ".npmrc"),
    *("uv.toml", "pip.conf", "pip.ini"),
)
#: Read by build tools: what an agent changes is put back, what it adds belongs to its work.
_BUILD_CONFIG = ("setup.py", "hatch.toml", "flit.ini", "MANIFEST.in", "Makefile", "makefile", "GNUmakefile")
#: Files that belong to several tools: only what a test runner reads in them is put back.
_SHARED_CONFIG = ("pyproject.toml", "setup.cfg", "tox.ini", "package.json")
_CUSTOMIZE = ("sitecustomize.*", "usercustomize.*")
_PACKAGE_KEYS = ("jest", "mocha", "ava", "nyc", "c8", "tap", "vitest")
#: Makefiles in the order in which make takes them.
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_SYSTEM_TARGETS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
_HIDDEN = ("/tests", "/verifier", "/solution", "/oracle", "/logs", "/proc", "/root")
_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"})
#: Lines that installers write into .pth files.
_KNOWN_PTH = re.compile(
    r"import (?:__editable___\w+_finder; __editable___\w+_finder\.install\(\)|_virtualenv|a1_coverage"
    r"|os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os\.environ\.get\(var, '[a-z]+'\) == '[a-z]+'; enabled and "
    r"__import__\('_distutils_hack'\)(?:\.add_shim\(\))?;?)\s*"
)


_COMMAND = re.compile(r"[<>|;$={}()\[\]\\\"]|^\s*[#+]|^\s*(?:cp|mv|ln|rm|mkdir|touch|install|chmod|sed|cat|echo)\s")
_PROSE = re.compile(r"\b(?:the|a|an|that|so|your|must|should|please|with|and|is|are|to|in|of|it|you)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Context:
    """What the task says that decides whether a file is an agent's business."""

    workdir: str
    instruction: str
    hardening: Hardening
    solution: str = ""
    """The task's own solution, as far as it is text: what it changes, agents are asked to change."""
    tops: tuple[str, ...] = ()
    """Directories in which Python may look for modules first."""
    imports: frozenset[str] = frozenset()
    """Names of modules that the tests import."""
    own_modules: frozenset[str] = frozenset()
    """Names of modules that the tests bring along."""
    programs: tuple[str, ...] = ()
    """Directories of programs that the agent may write to."""
    known_programs: frozenset[str] = frozenset()
    """Names of programs that are elsewhere on the path."""

    @property
    def prose(self) -> str:
        """The sentences of the instruction: what only looks like a command is not what a task asks for."""
        lines = self.instruction.splitlines()
        return "\n".join(line for line in lines if not _COMMAND.search(line) and len(_PROSE.findall(line)) > 1)

    def names(self, path: str) -> bool:
        """Return whether the instruction or the solution speaks of a file of this name, so that it is asked for."""
        name = re.compile(rf"(?<![\w.-]){re.escape(posixpath.basename(path))}(?![\w-])")
        return name.search(self.prose) is not None or name.search(self.solution) is not None


@dataclass(slots=True)
class Plan:
    """What is to be removed and written before the verifier runs."""

    remove: dict[str, None] = field(default_factory=dict)
    write: dict[str, ScannedFile] = field(default_factory=dict)
    link: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    ignores_hooks: bool = False
    """Whether git must not run hooks: they may stay, for tests may look at them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.remove or self.write or self.link)

    def drop(self, path: str) -> None:
        """Have a path removed."""
        self.remove[path] = None

    def report(self, kind: FindingKind, message: str, *paths: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(kind=kind, message=message, paths=list(paths)))


def decide(before: Scan, after: Scan, context: Context) -> Plan:
    """Return what to do about everything that differs between the two scans."""
    plan, does = Plan(), context.hardening.does
    for path in after.odd:
        plan.drop(path)
    if does("remove_links"):
        _decide_links(before, after, context, plan)
    _decide_files(before, after, context, plan)
    if does("remove_shadows"):
        _decide_modules(before, after, context, plan)
        _decide_programs(before, after, context, plan)
    if does("clean_caches"):
        for path, facts in after.facts.items():
            if path.endswith(".pyc") and "/__pycache__/" in path and before.facts.get(path) != facts:
                plan.drop(path)
    for path in sorted(after.waiting - before.waiting)[:5]:
        kind: FindingKind = "reward_directory" if path.startswith("/logs/") else "planted_file"
        plan.report(kind, f"{path} was written before the verifier came; removed", path)
    # What is put back must not go through a link that was put above it.
    for path in plan.write:
        for parent in _parents(path):
            if parent in after.links and before.links.get(parent) != after.links[parent]:
                plan.drop(parent)
    return plan


def _parents(path: str) -> Iterator[str]:
    while (path := posixpath.dirname(path)) not in ("/", ""):
        yield path


def _decide_links(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    top = context.workdir.rstrip("/") + "/"
    if context.workdir in after.links:
        plan.drop(context.workdir)
        plan.report("escaping_link", f"{context.workdir} itself was made a link; removed", context.workdir)
    for path, target in before.links.items():
        # An interpreter of a virtual environment, for example.
        if after.links.get(path) != target and (path in after.files or path in after.facts or path in after.links):
            end = _resolved(path, after.links)
            if _is_of_system(_resolved(path, before.links)) and not (path in after.links and _is_of_system(end)):
                plan.drop(path)
                plan.link[path] = target
                plan.report("changed_config", f"{path} led to {target}, and does again", path)
    for path, target in after.links.items():
        if posixpath.basename(path) == "__pycache__" and before.links.get(path) != target:
            plan.drop(path)
        if not path.startswith(top) or top == "/" or before.links.get(path) == target:
            continue
        end = _resolved(path, after.links)
        if end == context.workdir or f"{end}/".startswith(top) or end in _HARMLESS_TARGETS:
            continue
        is_hidden = any(f"{end}/".startswith(f"{place}/") for place in _HIDDEN)
        if not is_hidden and _is_of_system(end):
            continue
        if not is_hidden and end in context.prose:
            continue
        plan.drop(path)
        if is_hidden:
            plan.report("escaping_link", f"{path} was a link to {end}, and was removed", path)


def _is_of_system(path: str) -> bool:
    return any(path.startswith(f"{place}/") for place in _SYSTEM_TARGETS)


def _resolved(path: str, links: Mapping[str, str]) -> str:
    """Return where a path leads, by the links that are known."""
    for _ in range(40):
        for step in (*reversed([*_parents(path)]), path):
            if step in links:
                target = posixpath.join(posixpath.dirname(step), links[step])
                path = posixpath.normpath(target + path[len(step) :])
                path = "/" + path.lstrip("/")
                break
        else:
            return path
    return "/proc"  # a ring of links leads nowhere that a verifier should follow


def _decide_files(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    for path, file in after.files.items():
        old = before.files.get(path)
        if (old is None or old.content != file.content) and path not in plan.remove:
            _decide_file(path, old, file, context, plan, after)
    for path in after.facts:
        # Too large to be read, or no file: nothing that a tool should read by itself.
        if not path.endswith(".pyc") and before.facts.get(path) != after.facts[path]:
            old = before.files.get(path)
            if _is_guarded(path, context):
                plan.drop(path)
                if old is not None:
                    plan.write[path] = old
    for path, old in before.files.items():
        gone = path not in after.files and path not in after.facts
        if gone and _is_guarded(path, context) and _matches(path, _TEST_CONFIG):
            plan.write[path] = old
    _decide_config_links(before, after, context, plan)


def _decide_config_links(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    """Treat links with the name of a configuration like new files: what they lead to is read in their place."""
    for path, target in after.links.items():
        if before.links.get(path) == target or path in plan.remove:
            continue
        if _matches(path, (*_TEST_CONFIG, *_CUSTOMIZE, *_BUILD_CONFIG, *_SHARED_CONFIG)) and _is_guarded(path, context):
            plan.drop(path)
            plan.report("planted_file", f"{path} was made a link to {target}, and was removed", path)
            if (old := before.files.get(path)) is not None:
                plan.write[path] = old


def _matches(path: str, patterns: Iterable[str]) -> bool:
    name = posixpath.basename(path)
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_guarded(path: str, context: Context) -> bool:
    """Return whether files of this name are the verifier's business under what the task allows."""
    does = context.hardening.does
    if posixpath.basename(path) == "conftest.py":
        return does("cleanup_conftests")
    if _is_git(path) or posixpath.basename(path) == ".git":
        return does("clean_git")
    if _matches(path, _CUSTOMIZE) or path.endswith((".pth", "/entry_points.txt")):
        return does("remove_shadows")
    return does("restore_config")


def _is_git(path: str) -> bool:
    return re.search(r"\.git/(?:config|hooks/|info/|modules/|worktrees/)", path) is not None


def _decide_file(
    path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan, after: Scan
) -> None:
    if not _is_guarded(path, context) or _in_packages(path, old):
        return
    name = posixpath.basename(path)
    if name == ".git":
        _decide_git_file(path, file, context, plan, after)
    elif _is_git(path):
        _decide_git(path, old, file, context, plan)
    elif path.endswith(".pth"):
        _decide_pth(path, old, file, plan)
    elif name == "entry_points.txt":
        _decide_entry_points(path, old, file, context, plan)
    elif _matches(path, _CUSTOMIZE):
        plan.drop(path)
        plan.report("planted_file", f"{path} would run in every Python program; removed", path)
        if old is not None:
            plan.write[path] = old
    elif name == "__init__.py":
        _decide_test_package(path, old, file, plan)
    elif path.startswith("/etc/profile.d/"):
        _decide_profile(path, file, plan)
    elif name.lstrip(".") in ("pytest.ini", "pytest.toml"):
        if old is not None or not _is_harmless_ini(file.text):
            _put_back(path, old, file, context, plan)
    elif "/.cargo/" in path or _matches(path, _TEST_CONFIG):
        _put_back(path, old, file, context, plan)
    elif _matches(path, _BUILD_CONFIG):
        _decide_build_file(path, old, file, context, plan, after)
    elif _matches(path, _SHARED_CONFIG):
        _decide_shared(path, old, file, context, plan)


#: Settings of pytest that load nothing and leave nothing out.
_HARMLESS_KEYS = frozenset(
    {"testpaths", "minversion", "markers", "asyncio_mode", "asyncio_default_fixture_loop_scope", "xfail_strict"}
    | {"console_output_style", "log_cli", "log_level", "log_cli_level", "timeout", "addopts", "pythonpath"}
)
_HARMLESS_OPTION = re.compile(
    r"-q+|-v+|-r\w*|-l|-s|--tb=\w+|--strict(?:-markers|-config)?|--color=\w+|--durations=\d+|--no-header|-x|--verbose"
    r"|--quiet|--showlocals|-n\s*\w+"
)


def _is_harmless_ini(text: str) -> bool:
    """Return whether a configuration of pytest's own only says how to print and where tests are."""
    try:
        if re.search(r"^\s*\[(?:tool\.)?pytest\]\s*$", text, re.MULTILINE) is None and "[" in text:
            return False
        parser = configparser.RawConfigParser(allow_no_value=True)
        parser.read_string(text)
        settings = {key: value or "" for name in parser.sections() for key, value in parser[name].items()}
    except configparser.Error:
        return False
    return _are_harmless(settings)


def _are_harmless(settings: Mapping[str, object]) -> bool:
    if not {*settings} <= _HARMLESS_KEYS:
        return False
    options = settings.get("addopts", "")
    words = options.split() if isinstance(options, str) else [str(word) for word in _list(options)]
    paths = settings.get("pythonpath", "")
    places = paths.split() if isinstance(paths, str) else [str(place) for place in _list(paths)]
    return all(map(_HARMLESS_OPTION.fullmatch, words)) and {*places} <= {".", "src", "lib"}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _decide_test_package(path: str, old: ScannedFile | None, file: ScannedFile, plan: Plan) -> None:
    """Take away code that pytest would run as the package of a directory with tests."""
    lines = [line.strip() for line in file.text.splitlines()]
    if old is None and any(line and not line.startswith("#") for line in lines) and INCRIMINATING.search(file.text):
        plan.drop(path)
        plan.report("planted_file", f"{path} runs with the tests of its directory; removed", path)


_ASSIGNMENT = re.compile(
    r"(?:export\s+)?(?!PATH|LD_|BASH|ENV|IFS|PYTHON|NODE|GIT|PROMPT|SHELL)\w+=(?:[\w./:@%+,-]*|\"[^\"$`\\]*\"|'[^']*')"
)
_LATER_PATH = re.compile(r"(?:export\s+)?PATH=\"?\$\{?PATH\}?(?::/[\w./-]+)+\"?")


def _decide_profile(path: str, file: ScannedFile, plan: Plan) -> None:
    lines = [line.strip() for line in file.text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if not all(_ASSIGNMENT.fullmatch(line) or _LATER_PATH.fullmatch(line) for line in lines):
        plan.drop(path)
        plan.report("system_file", f"{path} would run in every login shell; removed", path)


def _in_packages(path: str, old: ScannedFile | None) -> bool:
    """Return whether it is part of an installed package, whose tests and builds are nobody's business."""
    installed = "/site-packages/" in path or "/dist-packages/" in path
    hooks_in = path.endswith((".pth", "/entry_points.txt")) or _matches(path, _CUSTOMIZE)
    return installed and not hooks_in and old is None


def _put_back(path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan) -> None:
    plan.drop(path)
    if old is not None:
        plan.write[path] = old
    outside = not path.startswith(context.workdir.rstrip("/") + "/")
    if evidence := INCRIMINATING.search(file.text):
        done = "removed" if old is None else "put back as it was before the agent"
        plan.report("planted_file", f"{path} has {evidence[0]!r} in it; {done}", path)
    elif outside and old is None and posixpath.basename(path) == "conftest.py":
        plan.report("planted_file", f"{path} lies outside the workspace, where only a verifier would read it", path)


def _decide_build_file(
    path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan, after: Scan
) -> None:
    name = posixpath.basename(path)
    if old is not None:
        if not context.names(path):
            plan.drop(path)
            plan.write[path] = old
            if evidence := INCRIMINATING.search(file.text):
                plan.report("changed_config", f"{path} has {evidence[0]!r} in it; put back", path)
        return
    # One that make takes before the task's own stands in its place.
    directory = posixpath.dirname(path)
    if name in _MAKEFILES and not context.names(path):
        later = _MAKEFILES[_MAKEFILES.index(name) + 1 :]
        hidden = [f"{directory}/{other}" for other in later if f"{directory}/{other}" in after.files]
        if hidden:
            plan.drop(path)
            plan.report("planted_file", f"make would take {path} instead of {hidden[0]}; removed", path)


def _decide_shared(path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan) -> None:
    name = posixpath.basename(path)
    if name == "package.json":
        text = _with_scripts_of(old, file)
    elif name == "pyproject.toml":
        text = _with_toml_of(old, file)
    else:
        text = _with_ini_of(old, file)
    if text is None or text == file.text or _adds_only_harmless(old, file):
        return
    plan.drop(path)
    plan.write[path] = replace(file, content=text.encode("utf-8", "surrogateescape"))
    evidence = INCRIMINATING.search(file.text)
    if evidence and not INCRIMINATING.search(text):
        plan.report("changed_config", f"{path} has {evidence[0]!r} in it; put back", path)
    elif plugin := re.search(r"(?:^|[\s\"'=])-p[\s\"',]*(?!no:)([\w.]+)", _difference(text, file.text)):
        plan.report("changed_config", f"{path} made pytest load {plugin[1]}; put back", path)


def _adds_only_harmless(old: ScannedFile | None, file: ScannedFile) -> bool:
    """Return whether a file that is new has only settings of pytest that do no harm."""
    if old is not None:
        return False
    try:
        if posixpath.basename(file.path) == "pyproject.toml":
            tool = _toml_of_tests(file.text)
            pytest = _table(_table(tool).get("pytest"))
            return {*_table(tool)} <= {"pytest"} and _are_harmless(_table(pytest.get("ini_options", pytest)))
        sections = _ini(file.text)
        return all("coverage" not in name and _are_harmless(values) for name, values in sections.items())
    except (ValueError, configparser.Error):
        return False


def _difference(kept: str, text: str) -> str:
    lines = set(kept.splitlines())
    return "\n".join(line for line in text.splitlines() if line not in lines)


def _with_scripts_of(old: ScannedFile | None, file: ScannedFile) -> str | None:
    """Return a package.json whose scripts and runner settings are those from before; None if there is no before."""
    if old is None:
        return None
    try:
        before, now = json.loads(old.text), json.loads(file.text)
    except ValueError:
        return old.text
    if not isinstance(before, dict) or not isinstance(now, dict):
        return old.text
    if all(before.get(key) == now.get(key) for key in ("scripts", *_PACKAGE_KEYS)):
        return file.text
    own = {key: value for key, value in now.items() if key not in ("scripts", *_PACKAGE_KEYS)}
    kept = {key: before[key] for key in ("scripts", *_PACKAGE_KEYS) if key in before}
    # Commands that the agent has added beside those from before are its work, except for those that npm runs by itself.
    added, known = _table(now.get("scripts")), _table(before.get("scripts"))
    hooks = {f"{when}{name}" for name in (*known, "test", "install") for when in ("pre", "post")}
    more = {name: text for name, text in added.items() if name not in known and name not in (*hooks, "prepare")}
    if known or more:
        kept["scripts"] = {**known, **more}
    return json.dumps({**own, **kept}, indent=2, ensure_ascii=False) + "\n"


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


_TOML_HEADER = re.compile(r"^\s*\[{1,2}\s*([^\]]+?)\s*\]{1,2}\s*(?:#.*)?$")


def _toml_of_tests(text: str) -> object:
    data = tomllib.loads(text)
    tool = data.get("tool", {}) if isinstance(data.get("tool", {}), dict) else {}
    return {key: tool[key] for key in ("pytest", "coverage") if key in tool}


def _with_toml_of(old: ScannedFile | None, file: ScannedFile) -> str | None:
    """Return a pyproject.toml whose settings of pytest are those from before."""
    before = "" if old is None else old.text
    try:
        wanted = _toml_of_tests(before)
    except ValueError:
        return before
    try:
        if _toml_of_tests(file.text) == wanted:
            return file.text
        text = _without_sections(file.text, _TOML_HEADER, _is_toml_of_tests) + _only_sections(before)
        if _toml_of_tests(text) == wanted:
            return text
    except ValueError:
        pass
    return before


def _is_toml_of_tests(header: str) -> bool:
    return re.match(r"tool\s*\.\s*[\"']?(?:pytest|coverage)\b", header) is not None


def _only_sections(text: str) -> str:
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if match := _TOML_HEADER.match(line):
            inside = _is_toml_of_tests(match[1])
        if inside:
            kept.append(line)
    return "".join(kept)


def _without_sections(text: str, header: re.Pattern[str], is_dropped: object) -> str:
    assert callable(is_dropped)
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if match := header.match(line):
            inside = is_dropped(match[1])
        if not inside:
            kept.append(line)
    joined = "".join(kept)
    return joined if not joined or joined.endswith("\n") else joined + "\n"


_INI_OF_TESTS = frozenset({"pytest", "tool:pytest", "coverage:run", "tool:coverage"})


def _with_ini_of(old: ScannedFile | None, file: ScannedFile) -> str | None:
    """Return a setup.cfg or tox.ini whose settings of pytest are those from before."""
    before = "" if old is None else old.text
    try:
        was, now = _ini(before), _ini(file.text)
    except configparser.Error:
        return before
    if was == now:
        return file.text
    header = re.compile(r"^\[([^\]]+)\]")
    own = _without_sections(file.text, header, lambda name: name.strip() in _INI_OF_TESTS)
    kept = _without_sections(before, header, lambda name: name.strip() not in _INI_OF_TESTS)
    text = own + (kept[kept.index("[") :] if "[" in kept else "")
    try:
        return text if _ini(text) == was else before
    except configparser.Error:
        return before


def _ini(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections() if name.strip() in _INI_OF_TESTS}


def _decide_git_file(path: str, file: ScannedFile, context: Context, plan: Plan, after: Scan) -> None:
    """Treat the directory that a `.git` file names like one of that name; it has to lie in the workspace."""
    match = re.match(r"gitdir:\s*(.+)", file.text)
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1].strip())) if match else "/"
    if not f"{place}/".startswith(context.workdir.rstrip("/") + "/"):
        plan.drop(path)
        plan.report("git", f"{path} led git to {place}; removed", path)
        return
    plan.ignores_hooks = True
    for name in ("config", "config.worktree"):
        if (config := after.files.get(f"{place}/{name}")) is not None and not _is_git(config.path):
            _decide_git(config.path, None, config, context, plan)


def _decide_git(path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan) -> None:
    if "/hooks/" in path:
        if not path.endswith(".sample"):
            plan.ignores_hooks = True
            if evidence := INCRIMINATING.search(file.text):
                plan.report("git", f"the hook {path} has {evidence[0]!r} in it; it is not run", path)
        return
    if path.endswith("/info/attributes"):
        plan.drop(path)
        if old is not None:
            plan.write[path] = old
        return
    text, dropped = cleaned_git_config(file.text, "" if old is None else old.text)
    if dropped:
        plan.drop(path)
        plan.write[path] = replace(file, content=text.encode("utf-8", "surrogateescape"))
        if risky := [key for key in dropped if key.is_program]:
            names = ", ".join(key.name for key in risky)
            plan.report("git", f"{path} makes git run programs ({names}); the keys were removed", path)


def _decide_pth(path: str, old: ScannedFile | None, file: ScannedFile, plan: Plan) -> None:
    known = set() if old is None else set(old.text.splitlines())
    lines = [line for line in file.text.splitlines() if line not in known and line.startswith(("import ", "import\t"))]
    if any(not _KNOWN_PTH.fullmatch(line) for line in lines):
        plan.drop(path)
        plan.report("planted_file", f"{path} would run code in every Python program; removed", path)
        if old is not None:
            plan.write[path] = old


def _decide_entry_points(path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan) -> None:
    group = re.compile(r"^\s*\[\s*pytest11\s*\]", re.MULTILINE)
    if not group.search(file.text) or (old is not None and group.search(old.text)):
        return
    if re.search(r"pytest11|pytest[ -]plugin", context.prose, re.IGNORECASE):
        return
    if "/site-packages/" in path and _is_known_plugin(path):
        return
    plan.drop(path)
    plan.report("planted_file", f"{path} makes pytest load a plugin of the agent's; removed", path)
    if old is not None:
        plan.write[path] = old


def _is_known_plugin(path: str) -> bool:
    """Return whether a plugin that the agent installed is one that many install with pip."""
    name = posixpath.basename(posixpath.dirname(path)).partition("-")[0].lower().replace("_", "-")
    return name.startswith("pytest-") or name in (
        "anyio",
        "hypothesis",
        "typeguard",
        "syrupy",
        "faker",
        "respx",
        "pytest",
    )


def _decide_modules(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    """Take away what Python would import from the workspace in place of a module of the verifier's."""
    tests = context.imports | PYTEST_FAMILY
    new_links = {path for path in after.links if path not in before.links}
    for path in sorted((after.modules - before.modules) | new_links):
        top = next((top for top in context.tops if path.startswith(top.rstrip("/") + "/")), None)
        if top is None:
            continue
        first, _, rest = path[len(top.rstrip("/")) + 1 :].partition("/")
        if rest and not rest.startswith("__init__."):
            continue
        name = first.partition(".")[0]
        if first == name and not rest and path not in new_links:
            continue
        is_stdlib = name in sys.stdlib_module_names
        is_package = name in after.packages or name in before.packages
        if not (is_stdlib or name in PYTEST_FAMILY or (is_package and name in context.imports)):
            continue
        root = f"{top.rstrip('/')}/{first}"
        plan.drop(root)
        if name in tests or name in ALWAYS_IMPORTED:
            plan.report("shadowing_module", f"{root} stands in the place of the module {name!r}; removed", root)


def _decide_programs(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    """Put back programs in directories that the image's PATH names and the agent can write to."""
    for directory in context.programs:
        prefix = directory.rstrip("/") + "/"
        for path in {*after.files, *after.links}:
            if not path.startswith(prefix) or "/" in path[len(prefix) :] or path in plan.remove:
                continue
            old_file, old_link = before.files.get(path), before.links.get(path)
            same = (old_link is not None and after.links.get(path) == old_link) or (
                old_file is not None and path in after.files and old_file.content == after.files[path].content
            )
            if same:
                continue
            name = path[len(prefix) :]
            if old_file is None and old_link is None:
                if _is_of_venv(path, after):
                    continue
                if name in context.known_programs or name in PROGRAMS:
                    plan.drop(path)
                    plan.report("environment", f"{path} stands before the system's own {name}; removed", path)
                continue
            plan.drop(path)
            if old_file is not None:
                plan.write[path] = old_file
            elif old_link is not None:
                plan.link[path] = old_link
            plan.report("environment", f"{path}, on the image's PATH, was replaced; put back", path)


def _is_of_venv(path: str, after: Scan) -> bool:
    """Return whether a program is what `python -m venv` or pip write into an environment of the agent's."""
    if path in after.links:
        end = _resolved(path, after.links)
        return re.fullmatch(r"python[\d.]*", posixpath.basename(end)) is not None and end.startswith(_SYSTEM_TARGETS)
    text = after.files[path].text
    directory = re.escape(posixpath.dirname(path))
    script = rf"#!{directory}/python[\d.]*\n(?:#.*\n)*(?:import (?:re|sys)\n)+from [\w.]+ import \w+\n"
    return re.match(script, text) is not None and INCRIMINATING.search(text) is None


def imported_names(directories: Iterable[Path]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of modules that Python files of the tests import, and of those that they bring along."""
    imports: set[str] = set()
    own: set[str] = set()
    for directory in directories:
        for path in sorted(directory.rglob("*.py"))[:200]:
            own.add(path.stem)
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError, OSError, RecursionError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    imports |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    imports.add(node.module.partition(".")[0])
    return frozenset(imports), frozenset(own)
