"""Modules that a task's own test configuration loads: they are a part of it, wherever they lie in the workspace."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from pytest_benchflow.verify.plan import INCRIMINATING, Context, Plan
from pytest_benchflow.verify.scan import Scan, ScannedFile

_CONFIG = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml")
#: A plugin that options of pytest name; one that is switched off begins with "no:".
_PLUGIN = re.compile(r"(?:^|[\s\"'=\[,])-p[\s\"',=]*(?!no:)([A-Za-z_][\w.]*)", re.MULTILINE)
_ADDOPTS = re.compile(
    r"\baddopts[\"']?\s*=\s*(\[[^\]]*\]|\"{3}.*?\"{3}|'{3}.*?'{3}|[^\n]*(?:\n[ \t]+[^\n]+)*)", re.DOTALL
)
_MOST = 200


def support_modules(files: Mapping[str, ScannedFile], workdir: str, tops: Collection[str]) -> tuple[str, ...]:
    """Return where modules may lie that conftest files and settings of pytest load.

    Plugins may lie anywhere; what a conftest only imports counts if it lies with tests, for it imports the product too.
    """
    top = workdir.rstrip("/") + "/"
    paths: dict[str, None] = {}
    for path, file in files.items():
        if not path.startswith(top) or "-packages/" in path:
            continue
        directory, name = posixpath.split(path)
        bases = dict.fromkeys(
            [directory, workdir.rstrip("/"), f"{top}src", f"{top}lib", f"{top}tests", f"{top}test", *tops]
        )
        if name in _CONFIG:
            paths |= dict.fromkeys(_places(_plugins(file.text), bases))
        elif name == "conftest.py":
            plugins, imports = _loaded(file.text, directory)
            paths |= dict.fromkeys(_places(plugins, bases))
            helpers = [place for place in (*_places(imports[0], bases), *imports[1]) if _is_with_tests(place, top)]
            paths |= dict.fromkeys(helpers)
    return tuple(path for path in paths if path.startswith(top) and "\n" not in path)[:_MOST]


def decide_support(paths: Iterable[str], before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    """Put back modules that test configuration loads, unless the task is about them."""
    for path in paths:
        old, now = before.files.get(path), after.files.get(path)
        if context.names(path):
            continue
        if now is None and path not in after.links:
            if old is not None:
                plan.write[path] = old
            continue
        if now is not None and old is not None and now.content == old.content:
            continue
        if path in after.links and after.links[path] == before.links.get(path):
            continue
        plan.drop(path)
        if old is not None:
            plan.write[path] = old
        if now is None or INCRIMINATING.search(now.text):
            done = "removed" if old is None else "put back"
            plan.report(
                "changed_config", f"{path}, which the configuration of the tests loads, was changed; {done}", path
            )


def _plugins(settings: str) -> list[str]:
    """Return the plugins that the options in settings of pytest name."""
    return [name for options in _ADDOPTS.findall(settings) for name in _PLUGIN.findall(options)]


def _is_with_tests(path: str, top: str) -> bool:
    parts = path.removeprefix(top).split("/")[:-1]
    return any(re.fullmatch(r"tests?|testing|test_\w+|\w+_tests?", part) for part in parts)


def _places(names: Iterable[str], bases: Iterable[str]) -> Iterator[str]:
    """Yield the files that modules of these names may be, in each directory."""
    for name in dict.fromkeys(names):
        parts = name.strip(".").split(".")
        for base in bases:
            place = posixpath.join(base, *parts)
            yield from (f"{place}.py", f"{place}/__init__.py")


def _loaded(text: str, directory: str) -> tuple[list[str], tuple[list[str], list[str]]]:
    """Return the plugins that a conftest names, and what it imports: modules by name, and files by relative imports."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return [], ([], [])
    plugins: list[str] = []
    names: list[str] = []
    files: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "pytest_plugins" for target in targets):
                texts = (each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant))
                plugins += [text for text in texts if isinstance(text, str) and re.fullmatch(r"[\w.]+", text)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*")]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = directory
            for _ in range(node.level - 1):
                base = posixpath.dirname(base)
            relative = [node.module] if node.module else [alias.name for alias in node.names if alias.name != "*"]
            files += _places(relative, [base])
    return plugins, (names, files)
