"""Imports point downwards only, and an ordinary pytest run pays next to nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import pytest_benchflow

PACKAGE = Path(pytest_benchflow.__file__).parent
NAME = "pytest_benchflow"

#: From the top down; a layer may import from those below it, and from its own.
LAYERS = (
    frozenset({"pytest"}),
    frozenset({"library"}),
    frozenset({"reporting"}),
    frozenset({"jobs"}),
    frozenset({"rollout"}),
    frozenset({"tasks", "agents", "acp", "sandboxes", "verify", "skills", "services"}),
    frozenset({"base"}),
)
#: Modules at the top of the package that every layer may use, because they use nothing.
BASE = frozenset({"compose_file", "errors", "events", "hints", "late", "text", "cache", "removal", "secret_names"})
#: Modules at the top of the package that are its face for plain Python, with no pytest in them.
LIBRARY = frozenset({"environment", "runtime", "sdk"})
#: Parts that work on top of pytest but are folders of their own.
TOP_FOLDERS = frozenset({"cli", "testing"})
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
        return "library"
    if parts[1] in BASE:
        return "base"
    if parts[1] in LIBRARY:
        return "library"
    return parts[1] if (PACKAGE / parts[1]).is_dir() and parts[1] not in TOP_FOLDERS else "pytest"


def level(module: str) -> int:
    part = part_of(module)
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


@cache
def imports(module: str) -> tuple[tuple[int, str], ...]:
    """Return line and full name of every import of a module, those inside functions included."""
    return tuple(find_imports(module))


def find_imports(module: str) -> Iterator[tuple[int, str]]:
    path = MODULES[module]
    is_package = path.name == "__init__.py"
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{target}.{alias.name}"
                is_module = full in MODULES and alias.name not in exported(target)
                yield node.lineno, full if is_module else target


@cache
def exported(package: str) -> frozenset[str]:
    """Return the names in the `__all__` of a package."""
    for node in ast.parse(MODULES[package].read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


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
        if target.startswith(NAME) and target.count(".") >= 2 and part_of(target) not in ("pytest", part_of(module))
    ]
    assert not private


def test_every_folder_belongs_to_a_layer() -> None:
    known = frozenset().union(*LAYERS)
    assert not {part_of(module) for module in MODULES} - known


def test_no_module_reads_like_a_book() -> None:
    assert not [name for name, path in MODULES.items() if len(path.read_text("utf-8").splitlines()) > 400]


def loaded(module: str) -> set[str]:
    """Return what importing a module loads that pytest alone does not."""
    script = f"import pytest, sys\nbefore = set(sys.modules)\nimport {module}\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def heavy(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names} & {*HEAVY}


def test_the_plugin_imports_nothing_heavy() -> None:
    names = loaded(f"{NAME}.plugin")
    assert not heavy(names)
    assert {part_of(name) for name in names if name.startswith(NAME)} <= {"pytest", "library", "base"}


def test_the_library_imports_nothing_until_it_is_used() -> None:
    assert loaded(NAME) == {NAME, f"{NAME}.late"}


def test_pytest_uses_the_bytecode_that_was_installed(tmp_path: Path) -> None:
    (tmp_path / "test_where.py").write_text(
        "from pytest_benchflow import controller, testing\n"
        "def test_loaders():\n"
        "    loaders = [type(module.__loader__).__name__ for module in (controller, testing)]\n"
        "    assert loaders == ['SourceFileLoader', 'AssertionRewritingHook']\n"
    )
    subprocess.run([sys.executable, "-m", "pytest", "-q", tmp_path], check=True, cwd=tmp_path)


@pytest.mark.parametrize("part", ["tasks", "agents", "sandboxes"])
def test_what_collection_uses_imports_nothing_heavy(part: str) -> None:
    assert not heavy(loaded(f"{NAME}.{part}"))
