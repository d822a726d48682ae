"""What stands in the place of something else: modules that Python would import first, programs first on the path."""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_benchflow.verify.known_names import ALWAYS_IMPORTED, PROGRAMS, PYTEST_FAMILY
from pytest_benchflow.verify.links import SYSTEM_TARGETS, resolved
from pytest_benchflow.verify.plan import INCRIMINATING, Context, Plan
from pytest_benchflow.verify.scan import Scan


def decide_modules(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
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


def decide_programs(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
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
        end = resolved(path, after.links)
        return re.fullmatch(r"python[\d.]*", posixpath.basename(end)) is not None and end.startswith(SYSTEM_TARGETS)
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
