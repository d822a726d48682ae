"""What an agent wrote into packages that the image had installed in the workspace: their own files come back."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from pytest_benchflow.sandboxes import FileChange
from pytest_benchflow.verify.known_names import CUSTOMIZE, PROGRAMS
from pytest_benchflow.verify.plan import Context, Plan

_NODE = re.compile(r"(.*/node_modules/(?:@[^/]+/)?[^/.@][^/]*)(/.+)?")
_NODE_PROGRAM = re.compile(r".*/node_modules/\.bin/([^/]+)")
_PYTHON = re.compile(r"(.*/site-packages)/([^/]+)(?:/.*)?")
_PYTEST = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "py"})
_MOST_PACKAGES = 40


def decide_packages(fresh: Iterable[str], changes: Iterable[FileChange], context: Context, plan: Plan) -> list[str]:
    """Have what was added to packages of the image removed, and return what the image has to give back.

    A package of Node comes back as a whole; of Python, where several share a directory, changed files do, unless
    another version was installed. Packages that are new are the agent's work, but for pytest's own.
    In a copy every file looks changed, so that nothing can be said about it.
    """
    kinds = {change.path: change.kind for change in changes}
    restored: dict[str, None] = {}
    upgraded = {_distribution(path) for path in fresh if ".dist-info/" in path and kinds.get(path) == "added"}
    for path in fresh:
        if match := _NODE_PROGRAM.fullmatch(path):
            # The first on the path of every script of a project.
            if kinds.get(path) == "changed":
                plan.drop(path)
                restored[path] = None
            elif kinds.get(path) == "added" and (match[1] in PROGRAMS or match[1] in context.known_programs):
                plan.drop(path)
        elif match := _NODE.fullmatch(path):
            package = _outermost(match[1])
            if match[2] is None and kinds.get(path) == "added":
                # A file comes before a directory, and links of the agent's are its packages.
                if kinds.get(posixpath.dirname(package)) != "added" and re.search(r"\.[cm]?js$|\.json$|\.node$", path):
                    plan.drop(path)
                continue
            if kinds.get(package) == "added":
                continue
            if match[2] is None or kinds.get(path) == "added":
                plan.drop(path)
            restored[package] = None
        elif match := _PYTHON.fullmatch(path):
            if path.endswith(".pyc"):
                plan.drop(path)
            elif kinds.get(path) == "changed" and match[2].partition("-")[0].lower() not in upgraded:
                restored[path] = None
            elif kinds.get(path) == "added" and kinds.get(match[1]) != "added":
                _decide_added(f"{match[1]}/{match[2]}", context, plan)
    for package in restored if not context.is_copy else ():
        plan.report("changed_config", f"{package}, which the image has installed, was changed; put back", package)
    if len(restored) > _MOST_PACKAGES:
        plan.findings = [finding for finding in plan.findings if finding.paths[0] not in restored]
        return list(dict.fromkeys(_directory(path) for path in restored))
    return list(restored)


def _decide_added(root: str, context: Context, plan: Plan) -> None:
    """Take away another pytest that was added to an environment of the image."""
    name = posixpath.basename(root).partition(".")[0]
    is_for_tests = "pytest" in context.solution or re.search(r"\bpytest\b", context.prose) is not None
    if name in CUSTOMIZE or (name in _PYTEST and not is_for_tests):
        plan.drop(root)
        plan.report("shadowing_module", f"{root} stands in the place of the module {name!r}; removed", root)


def _outermost(package: str) -> str:
    """Return the package that brings another one along."""
    return re.sub(r"(/node_modules/(?:@[^/]+/)?[^/]+)/node_modules/.*", r"\1", package)


def _distribution(path: str) -> str:
    name = posixpath.basename(posixpath.dirname(path))
    return re.split(r"-\d", name, maxsplit=1)[0].lower()


def _directory(path: str) -> str:
    return re.sub(r"/(node_modules|site-packages)/.*", r"/\1", path)
