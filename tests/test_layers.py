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

#: Left to right: a folder imports only from folders to its left, and from itself; those in one place know nothing of
#: each other.
ORDER = (
    {"core"},
    {"configfile"},
    {"tasks", "sandboxes", "providers"},
    {"verify", "services", "skills"},
    {"agents"},
    {"rollout"},
    {"jobs"},
    {"reporting"},
    {"api"},
    {"plugin", "cli", "testing"},
)
#: Folders whose modules are imported by name; all others are used through the names their `__init__` exports.
#: Loaded at every start of pytest for its options: going through the face of its folder would cost more than it does.
SETTINGS = f"{NAME}.rollout.settings"
WITHOUT_FACE = {"core", "api", "plugin", "cli", "testing"}
#: Who alone may import a library.
OWNERS = {
    "pytest": {"plugin", "testing"},
    "_pytest": {"plugin", "testing"},
    "pluggy": {"plugin"},
    "xdist": {"plugin"},
    "pytest_asyncio": {"plugin", "testing"},
    "docker": {"sandboxes.docker"},
    "acp": {"agents.acp"},
    "rich": {"reporting", "plugin"},
    "anthropic": {"providers"},
    "openai": {"providers"},
    "google": {"providers"},
    "genai_prices": {"providers"},
}
HEAVY = (
    "pydantic",
    "docker",
    "yaml",
    "rich",
    "acp",
    "daytona_sdk",
    "modal",
    "litellm",
    "junit_xml",
    "anthropic",
    "openai",
    "google",
)


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join((NAME, *(parts[:-1] if parts[-1] == "__init__" else parts))), path


MODULES = dict(modules())


def folder_of(module: str) -> str:
    """Return the folder a module belongs to, "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def place(module: str) -> int:
    """Return where in the order a module stands; the package itself exports from everywhere."""
    folder = folder_of(module)
    return next((number for number, folders in enumerate(ORDER) if folder in folders), len(ORDER))


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
    """Return the names that the stub of a package exports."""
    stub = MODULES[package].with_suffix(".pyi")
    tree = ast.parse(stub.read_text("utf-8") if stub.exists() else "")
    return frozenset(alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names)


def test_the_package_is_folders_and_nothing_else() -> None:
    loose = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert loose == {"__init__.py", "py.typed"}
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == set().union(*ORDER)


def every_import() -> Iterator[tuple[str, int, str]]:
    """Yield module, line and target of every import in the package."""
    for module in MODULES:
        yield from ((module, line, target) for line, target in imports(module))


def is_ours(target: str) -> bool:
    return target.split(".")[0] == NAME


def test_a_folder_imports_only_from_folders_to_its_left() -> None:
    assert not [
        f"{module}:{line}: {target}"
        for module, line, target in every_import()
        if is_ours(target)
        and module != NAME
        and folder_of(target) != folder_of(module)
        and place(target) >= place(module)
    ]


def test_other_folders_are_imported_through_their_public_face() -> None:
    assert not [
        f"{module}:{line}: {target}"
        for module, line, target in every_import()
        if is_ours(target) and target.count(".") >= 2 and folder_of(target) not in WITHOUT_FACE | {folder_of(module)}
        if target != SETTINGS and module != NAME  # which names the homes of what it exports
    ]


def test_libraries_are_imported_where_they_belong() -> None:
    def belongs(module: str, library: str) -> bool:
        inside = module.removeprefix(f"{NAME}.")
        return any(inside == owner or inside.startswith(f"{owner}.") for owner in OWNERS[library])

    assert not [
        f"{module}:{line}: {target}"
        for module, line, target in every_import()
        if (library := target.split(".")[0]) in OWNERS and not belongs(module, library)
    ]


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
    names -= {f"{NAME}.rollout", SETTINGS}
    assert {folder_of(name) for name in names if name.startswith(NAME)} <= {"", "plugin", "core"}


def test_the_library_imports_nothing_until_it_is_used() -> None:
    assert loaded(NAME) == {NAME, f"{NAME}.core", f"{NAME}.core.lazy"}


def test_pytest_uses_the_bytecode_that_was_installed(tmp_path: Path) -> None:
    (tmp_path / "test_where.py").write_text(
        "from pytest_benchflow import testing\nfrom pytest_benchflow.plugin import controller\n"
        "def test_loaders():\n"
        "    loaders = [type(module.__loader__).__name__ for module in (controller, testing)]\n"
        "    assert loaders == ['SourceFileLoader', 'AssertionRewritingHook']\n"
    )
    subprocess.run([sys.executable, "-m", "pytest", "-q", tmp_path], check=True, cwd=tmp_path)


@pytest.mark.parametrize("part", ["tasks", "agents", "sandboxes"])
def test_what_collection_uses_imports_nothing_heavy(part: str) -> None:
    assert not heavy(loaded(f"{NAME}.{part}"))
