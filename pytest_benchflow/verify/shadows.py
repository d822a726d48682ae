"""What stands in the place of something else: modules that Python would import first, programs first on the path."""

from __future__ import annotations

import posixpath
import re
import sys

from pytest_benchflow.verify.known_names import ALWAYS_IMPORTED, CUSTOMIZE, PROGRAMS, PYTEST_FAMILY
from pytest_benchflow.verify.links import SYSTEM_TARGETS, resolved
from pytest_benchflow.verify.plan import INCRIMINATING, Context, Plan
from pytest_benchflow.verify.scan import Scan

#: Names that badly made packages install and that every project has.
_ANYBODYS = frozenset(
    {"test", "tests", "doc", "docs", "example", "examples", "script", "scripts", "src", "lib", "bin", "build", "app"}
    | {"util", "utils", "tool", "tools", "config", "data", "benchmark", "benchmarks", "common", "core", "main"}
)


def decide_modules(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    """Take away what Python would import from the workspace in place of a module of the verifier's."""
    tests = context.imports | PYTEST_FAMILY | CUSTOMIZE
    installed = before.packages - _ANYBODYS
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
        root = f"{top.rstrip('/')}/{first}"
        if not _hides(name, root, path, installed, before, after, context):
            continue
        plan.drop(root)
        if name in tests or name in ALWAYS_IMPORTED:
            plan.report("shadowing_module", f"{root} stands in the place of the module {name!r}; removed", root)


def _hides(
    name: str, root: str, path: str, installed: frozenset[str], before: Scan, after: Scan, context: Context
) -> bool:
    """Return whether a module is in the place of one that a verifier, or what it imports, means by that name."""
    if name in PYTEST_FAMILY or name in CUSTOMIZE:
        return True
    if context.asks_for(f"{name}/" if posixpath.basename(root) == name else posixpath.basename(root)):
        return False
    if name in sys.stdlib_module_names or name in installed:
        return True
    module = f"{posixpath.dirname(root)}/{name}.py"
    if path != module and module in before.modules and module in after.modules:
        return True
    # What tests bring along may have the name of something in the workspace that they never mean.
    return name in context.own_modules and (name in context.imports or name.startswith("test"))


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
                    plan.restore[path] = None  # it may have been too large to be read before
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
