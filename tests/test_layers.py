"""Imports point downwards only, and an ordinary pytest run pays next to nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_benchflow

PACKAGE = Path(pytest_benchflow.__file__).parent
NAME = "pytest_benchflow"

#: From the top down; a layer may import from those below it, and from its own.
LAYERS = (
    frozenset({"pytest"}),
    frozenset({"reporting"}),
    frozenset({"jobs"}),
    frozenset({"rollout"}),
    frozenset({"tasks", "agents", "acp", "sandboxes", "verify", "skills", "services"}),
    frozenset({"base"}),
)
#: Modules at the top of the package that every layer may use, because they use nothing.
BASE = frozenset({"errors", "hints", "text", "cache"})
#: Parts that work on top of pytest but are folders of their own.
TOP_FOLDERS = frozenset({"cli"})
HEAVY = ("pydantic", "docker", "yaml", "rich", "acp", "daytona_sdk", "modal", "litellm", "junit_xml")


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join((NAME, *(parts[:-1] if parts[-1] == "__init__" else parts))), path


MODULES = dict(modules())


def part_of(module: str) -> str:
    """Return the folder, or the kind of top-level module, that a module belongs to."""
    parts = module.split(".")
    if len(parts) == 1:
        return "base"
    if parts[1] in BASE:
        return "base"
    return parts[1] if (PACKAGE / parts[1]).is_dir() and parts[1] not in TOP_FOLDERS else "pytest"


def level(module: str) -> int:
    part = part_of(module)
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def imports(module: str, *, for_types: bool = True) -> Iterator[tuple[int, str]]:
    """Yield line and full name of every import of a module, those inside functions included."""
    path = MODULES[module]
    is_package = path.name == "__init__.py"
    tree = ast.parse(path.read_text("utf-8"))
    skipped = set() if for_types else {id(inner) for inner in _only_for_types(tree)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{target}.{alias.name}"
                yield node.lineno, full if full in MODULES else target


def _only_for_types(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.body:
                yield from ast.walk(child)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module: str) -> None:
    upwards = [
        f"line {line}: {target}"
        for line, target in imports(module)
        if target.split(".")[0] == NAME and level(target) < level(module)
    ]
    assert not upwards


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name) != "pytest"])
def test_nothing_below_the_first_layer_imports_pytest(module: str) -> None:
    of_pytest = {"pytest", "_pytest", "xdist", "pluggy", "pytest_asyncio"}
    assert not [target for _, target in imports(module) if target.split(".")[0] in of_pytest]


@pytest.mark.parametrize("module", MODULES)
def test_other_folders_are_imported_through_their_public_face(module: str) -> None:
    private = [
        f"line {line}: {target}"
        for line, target in imports(module)
        if target.count(".") >= 2 and part_of(target) not in ("base", "pytest", part_of(module))
    ]
    assert not private


def test_every_folder_belongs_to_a_layer() -> None:
    known = frozenset().union(*LAYERS)
    assert not {part_of(module) for module in MODULES} - known


def test_no_module_reads_like_a_book() -> None:
    assert not [name for name, path in MODULES.items() if len(path.read_text("utf-8").splitlines()) > 400]


def _loaded(code: str) -> set[str]:
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_the_plugin_imports_nothing_heavy() -> None:
    assert not _loaded("import pytest\nbefore = set(sys.modules)\nimport pytest_benchflow.plugin") & {*HEAVY}


def test_the_plugin_itself_is_light_too() -> None:
    """Every module of ours that an ordinary run imports is paid by everyone."""
    code = "import pytest\nbefore = set(sys.modules)\nimport pytest_benchflow.plugin"
    script = f"import sys\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours = {part_of(name) for name in done.stdout.split() if name.startswith(NAME)}
    assert ours == {"pytest", "base"}


@pytest.mark.parametrize("part", ["tasks", "agents", "sandboxes"])
def test_what_collection_uses_imports_nothing_heavy(part: str) -> None:
    assert not _loaded(f"import {NAME}.{part}") & {*HEAVY}
