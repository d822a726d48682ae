"""What of an agent's changes a verifier must not see: decided from two scans, without touching the sandbox."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from pytest_benchflow.verify.git_config import cleaned_git_config
from pytest_benchflow.verify.integrity import FindingKind
from pytest_benchflow.verify.links import decide_links, parents
from pytest_benchflow.verify.pins import is_loaded
from pytest_benchflow.verify.plan import INCRIMINATING, Context, Plan
from pytest_benchflow.verify.runner_config import (
    adds_only_harmless,
    is_harmless_ini,
    is_harmless_toml,
    with_ini_of,
    with_scripts_of,
    with_toml_of,
)
from pytest_benchflow.verify.scan import Scan, ScannedFile
from pytest_benchflow.verify.shadows import decide_modules, decide_programs

#: Read by test runners for the tests of a project: what an agent adds is taken away, what it changes put back.
_TEST_CONFIG = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", ".coveragerc", ".mocharc*"),
    *("jest.config*", "vitest.config*", "ava.config*", "karma.conf*", ".nycrc*", ".taprc", "noxfile.py", ".npmrc"),
    *("uv.toml", "pip.conf", "pip.ini", ".rspec", "bunfig.toml", ".yarnrc", ".yarnrc.yml", ".pnpmfile.*", ".bazelrc"),
    *("jvm.config", ".proverc", ".Rprofile", ".Renviron", ".octaverc", "playwright.config*", "cypress.config*"),
    *("jasmine.json", ".c8rc*", "behave.ini", ".behaverc", "nose2.cfg", "unittest.cfg", ".noserc", "phpunit.xml*"),
)
#: Read by build tools: what an agent changes is put back, what it adds belongs to its work.
_BUILD_CONFIG = (
    *("babel.config*", ".babelrc*", ".swcrc", "vite.config*", "tsconfig.json", "mypy.ini", ".mypy.ini"),
    *(".pylintrc", "pylintrc", ".flake8", "ruff.toml", ".ruff.toml", "spec_helper.rb", "rails_helper.rb"),
    *("test_helper.rb", "Rakefile", "maven.config", "extensions.xml", "rust-toolchain*", "*.mk"),
    "pyvenv.cfg",
    "setup.py",
    "hatch.toml",
    "flit.ini",
    "MANIFEST.in",
    "Makefile",
    "makefile",
    "GNUmakefile",
)
#: Files that belong to several tools: only what a test runner reads in them is put back.
_SHARED_CONFIG = ("pyproject.toml", "setup.cfg", "tox.ini", "package.json")
_INTERPRETER = re.compile(r"/bin/python[\d.]*$")
_CUSTOMIZE = ("sitecustomize.*", "usercustomize.*")
#: Makefiles in the order in which make takes them.
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_EDITABLE = re.compile(r"import (__editable___\w+_finder); \1\.install\(\)\s*")
#: Lines that installers write into .pth files.
_KNOWN_PTH = re.compile(
    r"import (?:__editable___\w+_finder; __editable___\w+_finder\.install\(\)|_virtualenv|a1_coverage"
    r"|os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os\.environ\.get\(var, '[a-z]+'\) == '[a-z]+'; enabled and "
    r"__import__\('_distutils_hack'\)(?:\.add_shim\(\))?;?)\s*"
)


def decide(before: Scan, after: Scan, context: Context) -> Plan:
    """Return what to do about everything that differs between the two scans."""
    plan, does = Plan(), context.hardening.does
    for path in after.odd:
        plan.drop(path)
    for path in after.options:
        if posixpath.basename(path) not in context.prose and posixpath.basename(path) not in context.solution:
            plan.drop(path)
    if does("remove_links"):
        decide_links(before, after, context, plan)
    _decide_files(before, after, context, plan)
    if does("remove_shadows"):
        decide_modules(before, after, context, plan)
        decide_programs(before, after, context, plan)
        for path in after.hiding:
            plan.drop(path)
            plan.report("shadowing_module", f"{path} stands before the module {path}.py; removed", path)
    if does("clean_caches"):
        for path, facts in after.facts.items():
            if path.endswith(".pyc") and "/__pycache__/" in path and before.facts.get(path) != facts:
                plan.drop(path)
    for path in sorted(after.waiting - before.waiting)[:5]:
        kind: FindingKind = "reward_directory" if path.startswith("/logs/") else "planted_file"
        plan.report(kind, f"{path} was written before the verifier came; removed", path)
    # What is put back must not go through a link that was put above it.
    for path in plan.write:
        for parent in parents(path):
            if parent in after.links and before.links.get(parent) != after.links[parent]:
                plan.drop(parent)
    return plan


def _decide_files(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    for path, file in after.files.items():
        old = before.files.get(path)
        if (old is None or old.content != file.content) and path not in plan.remove:
            _decide_file(path, old, file, context, plan, before, after)
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
    for path, facts in before.facts.items():
        # The interpreter of a virtual environment that is no link; only the image has another one.
        if _INTERPRETER.search(path) and after.facts.get(path) != facts:
            plan.drop(path)
            plan.restore[path] = None
    _decide_config_links(before, after, context, plan)
    if context.hardening.does("clean_git"):
        _decide_repositories(before, after, context, plan)


def _decide_config_links(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    """Treat links with the name of a configuration like new files: what they lead to is read in their place."""
    for path, target in after.links.items():
        if before.links.get(path) == target or path in plan.remove:
            continue
        if _is_git(path) and "/hooks/" in path:
            # A project's own script, mostly; it may stay as any hook.
            _ignore_hooks(context, plan)
            continue
        is_read = _matches(
            path, (*_TEST_CONFIG, *_CUSTOMIZE, *_BUILD_CONFIG, *_SHARED_CONFIG, "entry_points.txt", "*.pth")
        )
        if (is_read or _is_git(path)) and _is_guarded(path, context):
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
    return re.search(r"\.git/(?:config|commondir|hooks/|info/|modules/|worktrees/)", path) is not None


def _decide_file(
    path: str,
    old: ScannedFile | None,
    file: ScannedFile,
    context: Context,
    plan: Plan,
    before: Scan,
    after: Scan,
) -> None:
    if path == "/etc/passwd":
        _decide_users(old, file, context, plan)
        return
    if not _is_guarded(path, context) or _in_packages(path, old):
        return
    name = posixpath.basename(path)
    if name == ".git":
        _decide_git_file(path, file, context, plan, after)
    elif _is_git(path) and name not in ("HEAD", "commondir"):
        _decide_git(path, old, file, context, plan)
    elif path.endswith(".pth"):
        _decide_pth(path, old, file, context, plan, before, after)
    elif name == "entry_points.txt":
        _decide_entry_points(path, old, file, before, context, plan)
    elif _matches(path, _CUSTOMIZE):
        plan.drop(path)
        plan.report("planted_file", f"{path} would run in every Python program; removed", path)
        if old is not None:
            plan.write[path] = old
    elif _INTERPRETER.search(path):
        if old is not None:
            plan.drop(path)
            plan.write[path] = old
            plan.report("changed_config", f"{path}, an interpreter, was replaced; put back", path)
    elif name == "__init__.py":
        _decide_test_package(path, old, file, context, plan)
    elif path.startswith("/etc/profile.d/"):
        _decide_profile(path, file, plan)
    elif path.startswith("/etc/apt/sources.list.d/"):
        if _LOCAL_SOURCE.search(file.text):
            plan.drop(path)
            plan.report("system_file", f"{path} had apt install packages of the agent's; removed", path)
    elif name.lstrip(".") in ("pytest.ini", "pytest.toml"):
        is_harmless = is_harmless_toml if name.endswith(".toml") else is_harmless_ini
        if old is not None or not is_harmless(file.text):
            _put_back(path, old, file, context, plan)
    elif "/.cargo/" in path or _matches(path, _TEST_CONFIG):
        _put_back(path, old, file, context, plan)
    elif _matches(path, _BUILD_CONFIG):
        _decide_build_file(path, old, file, context, plan, after)
    elif _matches(path, _SHARED_CONFIG):
        _decide_shared(path, old, file, context, plan)


def _decide_test_package(path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan) -> None:
    """Take away code that pytest would run as the package of a directory with tests; the directory stays a package."""
    if not context.is_place_of_tests(posixpath.dirname(path)) or not _has_code(file.text):
        return
    if posixpath.dirname(path) == context.workdir and (old is not None or context.names(path)):
        return
    plan.drop(path)
    plan.write[path] = replace(file, content=b"") if old is None else old
    if INCRIMINATING.search(file.text):
        plan.report("planted_file", f"{path} runs with the tests of its directory; emptied", path)


def _has_code(text: str) -> bool:
    """Return whether a module does more than document itself and name constants."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return True
    return not all(_is_constant(node) for node in body)


def _is_constant(node: ast.stmt) -> bool:
    """Return whether a statement is a text, or gives a constant a name that no test runner looks for."""
    if isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if len(names) < len(node.targets) or not all(name.isupper() or name in _METADATA for name in names):
            return False
    return isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Constant)


_METADATA = frozenset({"__version__", "__author__", "__license__", "__doc__"})


_ASSIGNMENT = re.compile(
    r"(?:export\s+)?(?!PATH|LD_|BASH|ENV|IFS|PYTHON|NODE|GIT|PROMPT|SHELL|HOME|USER|LOGNAME|CDPATH|GLOBIGNORE)"
    r"(\w+)=(?:[\w./:@%+,-]*|\"[^\"$`\\]*\"|'[^']*')"
)
_LATER_PATH = re.compile(r"(?:export\s+)?PATH=\"?\$\{?PATH\}?(?::/[\w./-]+)+\"?")


#: Packages that come from the machine itself, or that nobody has signed.
_LOCAL_SOURCE = re.compile(
    r"\b(?:file|copy|cdrom|rred|store):|//(?:localhost|127\.|0\.0\.0\.0|\[::)|=\s*yes\b|:\s*yes\b", re.I
)


def _decide_profile(path: str, file: ScannedFile, plan: Plan) -> None:
    lines = [line.strip() for line in file.text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if not all(_is_plain_assignment(line) or _LATER_PATH.fullmatch(line) for line in lines):
        plan.drop(path)
        plan.report("system_file", f"{path} would run in every login shell; removed", path)


def _is_plain_assignment(line: str) -> bool:
    match = _ASSIGNMENT.fullmatch(line)
    return match is not None and not is_loaded(match[1])


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
    if name.endswith(".mk") and not context.names(path) and _is_included(path, after):
        plan.drop(path)
        plan.report("planted_file", f"{path} is read by a makefile of the task's, and was not there; removed", path)
    # One that make takes before the task's own stands in its place.
    directory = posixpath.dirname(path)
    if name in _MAKEFILES and not context.names(path):
        later = _MAKEFILES[_MAKEFILES.index(name) + 1 :]
        hidden = [f"{directory}/{other}" for other in later if f"{directory}/{other}" in after.files]
        if hidden:
            plan.drop(path)
            plan.report("planted_file", f"make would take {path} instead of {hidden[0]}; removed", path)


def _is_included(path: str, after: Scan) -> bool:
    """Return whether a makefile of the same directory, as it is before anything is put back, reads a file."""
    directory, name = posixpath.split(path)
    lines = [
        line
        for other, file in after.files.items()
        if posixpath.dirname(other) == directory and posixpath.basename(other) in _MAKEFILES
        for line in file.text.splitlines()
    ]
    return any(re.match(rf"[-s]?include\b.*(?:{re.escape(name)}|\*|\$)", line) for line in lines)


def _decide_shared(path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan) -> None:
    name = posixpath.basename(path)
    if name == "package.json":
        text = with_scripts_of(old, file, may_rename=context.names)
    elif name == "pyproject.toml":
        text = with_toml_of(old, file)
    else:
        text = with_ini_of(old, file)
    if text is None or text == file.text or adds_only_harmless(old, file):
        return
    plan.drop(path)
    plan.write[path] = replace(file, content=text.encode("utf-8", "surrogateescape"))
    evidence = INCRIMINATING.search(file.text)
    if evidence and not INCRIMINATING.search(text):
        plan.report("changed_config", f"{path} has {evidence[0]!r} in it; put back", path)
    elif plugin := re.search(r"(?:^|[\s\"'=])-p[\s\"',]*(?!no:)([\w.]+)", _difference(text, file.text)):
        plan.report("changed_config", f"{path} made pytest load {plugin[1]}; put back", path)


def _difference(kept: str, text: str) -> str:
    lines = set(kept.splitlines())
    return "\n".join(line for line in text.splitlines() if line not in lines)


def _ignore_hooks(context: Context, plan: Plan) -> bool:
    """Have git run no hooks, unless the task is about them; return whether it is not."""
    is_work = re.search(r"\bhooks?\b", context.prose, re.IGNORECASE) is not None
    plan.ignores_hooks |= not is_work
    return not is_work


def _decide_repositories(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    """Treat what git takes for a repository like one whose directory is called `.git`."""
    places = {posixpath.dirname(path) for path in (*after.files, *after.links) if posixpath.basename(path) == "HEAD"}
    for path, file in after.files.items():
        place, name = posixpath.split(path)
        old = before.files.get(path)
        if old is not None and old.content == file.content:
            continue
        if name == "commondir" and place in places:
            if re.search(r"\.git/worktrees/[^/]+$", place) is None or file.text.strip() != "../..":
                plan.drop(path)
                plan.report("git", f"{path} had git read its configuration somewhere else; removed", path)
        elif _is_git(path):
            continue
        elif (name == "config" and place in places) or (
            posixpath.basename(place) == "hooks" and posixpath.dirname(place) in places
        ):
            _decide_git(path, old, file, context, plan)


def _decide_git_file(path: str, file: ScannedFile, context: Context, plan: Plan, after: Scan) -> None:
    """Treat the directory that a `.git` file names like one of that name; it has to lie in the workspace."""
    match = re.match(r"gitdir:\s*(.+)", file.text)
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1].strip())) if match else "/"
    if not f"{place}/".startswith(context.workdir.rstrip("/") + "/"):
        plan.drop(path)
        plan.report("git", f"{path} led git to {place}; removed", path)
        return
    if f"{place}/config" not in after.files and not re.search(r"\.git/worktrees/[^/]+$", place):
        plan.drop(path)
        plan.report("git", f"{path} led git to {place}, which is no repository that can be looked at; removed", path)
        return
    _ignore_hooks(context, plan)
    for name in ("config", "config.worktree"):
        if (config := after.files.get(f"{place}/{name}")) is not None and not _is_git(config.path):
            _decide_git(config.path, None, config, context, plan)


def _decide_git(path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan) -> None:
    if "/hooks/" in path:
        is_ignored = not path.endswith(".sample") and _ignore_hooks(context, plan)
        if is_ignored and (evidence := INCRIMINATING.search(file.text)):
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


def _decide_pth(
    path: str, old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan, before: Scan, after: Scan
) -> None:
    """Keep of a .pth file what adds directories of the workspace; code only in an environment of the agent's own."""
    known = set() if old is None else set(old.text.splitlines())
    environment = re.sub(r"/lib(?:64)?/python[\d.]+/(?:site|dist)-packages/[^/]+$", "", path) + "/pyvenv.cfg"
    is_own = environment in after.files and environment not in before.files
    kept: list[str] = []
    is_harmful = False
    for line in file.text.removeprefix("\ufeff").splitlines():
        is_code = line.startswith(("import ", "import\t"))
        if line in known or (is_own and (not is_code or _KNOWN_PTH.fullmatch(line))):
            kept.append(line)
        elif not is_code:
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), line.strip()))
            if f"{place}/".startswith(context.workdir.rstrip("/") + "/") or (len(place) > 1 and place in context.prose):
                kept.append(line)
        elif finder := _EDITABLE.fullmatch(line):
            kept += _mapped(after.files.get(f"{posixpath.dirname(path)}/{finder[1]}.py"), context)
        elif not _KNOWN_PTH.fullmatch(line):
            is_harmful = True
    if kept == file.text.splitlines():
        return
    plan.drop(path)
    if kept:
        plan.write[path] = replace(file, content="\n".join([*kept, ""]).encode("utf-8", "surrogateescape"))
    if is_harmful:
        plan.report("planted_file", f"{path} would run code in every Python program; removed", path)


def _mapped(finder: ScannedFile | None, context: Context) -> list[str]:
    """Return the directories of the workspace in which an editable install finds its packages."""
    match = None if finder is None else re.search(r"^MAPPING[^=\n]*= (\{[^\n]*\})$", finder.text, re.MULTILINE)
    try:
        mapping = ast.literal_eval(match[1]) if match else {}
    except (SyntaxError, ValueError, RecursionError):
        return []
    top = context.workdir.rstrip("/") + "/"
    places = [posixpath.normpath(str(place)) for place in mapping.values()] if isinstance(mapping, dict) else []
    return list(dict.fromkeys(posixpath.dirname(place) for place in places if place.startswith(top)))


def _decide_users(old: ScannedFile | None, file: ScannedFile, context: Context, plan: Plan) -> None:
    """Put back homes and shells of users who were there before; new users may stay, but for a second root."""
    if old is None or not context.hardening.does("restore_system"):
        return
    known = {line.partition(":")[0]: line for line in old.text.splitlines()}
    now = [line for line in file.text.splitlines() if line.partition(":")[0] not in known]
    added = [line for line in now if line.split(":")[2:3] != ["0"]]
    changed = [line for line in known.values() if line not in file.text.splitlines()]
    if changed or added != now:
        text = "\n".join([*known.values(), *added, ""])
        plan.write[file.path] = replace(old, content=text.encode("utf-8", "surrogateescape"))
        names = ", ".join(line.partition(":")[0] for line in changed) or "root"
        plan.report("system_file", f"{file.path} said something else about {names}; put back", file.path)


def _loads_plugins(text: str) -> bool:
    """Return whether metadata names plugins of pytest, read as Python reads it."""
    lines = [line.strip() for line in text.splitlines()]
    return any(line.strip("[]") == "pytest11" for line in lines if line.startswith("[") and line.endswith("]"))


def _decide_entry_points(
    path: str, old: ScannedFile | None, file: ScannedFile, before: Scan, context: Context, plan: Plan
) -> None:
    if not _loads_plugins(file.text) or (old is not None and _loads_plugins(old.text)):
        return
    if re.search(r"pytest11|pytest[ -]plugin", context.prose, re.IGNORECASE):
        return
    plan.drop(path)
    if old is not None:
        plan.write[path] = old
    name = posixpath.basename(posixpath.dirname(path)).partition("-")[0].lower().replace("_", "-")
    if "/site-packages/" in path and _is_known_plugin(name):
        # It comes along with much that agents install; only a project that asks for it needs it.
        asked = [context.prose, context.solution, *(each.text for each in before.files.values())]
        if any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE) for text in asked):
            del plan.remove[path]
            plan.write.pop(path, None)
        return
    plan.report("planted_file", f"{path} makes pytest load a plugin of the agent's; removed", path)


_KNOWN_PLUGINS = frozenset({"anyio", "hypothesis", "typeguard", "syrupy", "faker", "respx", "pytest"})


def _is_known_plugin(name: str) -> bool:
    """Return whether a distribution is one that many install with pip."""
    return name.startswith("pytest-") or name in _KNOWN_PLUGINS
