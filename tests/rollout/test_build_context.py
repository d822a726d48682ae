"""The build context a run makes of a task's: files from the context root, and nothing from beyond it."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import write_files

from pytest_benchflow.core.errors import BuildError
from pytest_benchflow.rollout.setup import make_context


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    return write_files(tmp_path / "root/tasks/t/environment", {"Dockerfile": "FROM a\n", "own.txt": "own"})


def made(environment: Path, dockerfile: str, **more: str) -> Path:
    """Make the context for a Dockerfile and return it."""
    (environment / "Dockerfile").write_text(dockerfile)
    root = environment.parents[2]
    target = root.parent / "made" / "environment"
    make_context(environment, target, base_image=more.get("base"), root=root)
    assert (environment / "Dockerfile").read_text() == dockerfile
    return target


def test_a_source_of_its_own_stays(environment: Path) -> None:
    write_files(environment.parents[2], {"own.txt": "other"})
    target = made(environment, "FROM a\nCOPY own.txt *.txt . /x\n")
    assert (target / "Dockerfile").read_text() == "FROM a\nCOPY own.txt *.txt . /x\n"
    assert sorted(path.name for path in target.iterdir()) == ["Dockerfile", "own.txt"]


def test_files_directories_and_patterns_come_from_the_root(environment: Path) -> None:
    write_files(environment.parents[2], {"lib/a.py": "a", "lib/deep/b.py": "b", "one.cfg": "1", "two.cfg": "2"})
    target = made(environment, "FROM a\nCOPY lib ./one.cfg /x/\nCOPY *.cfg /y/\nCOPY missing /z\n", base="b")
    text = (target / "Dockerfile").read_text()
    assert text == "FROM b\nCOPY _deps/lib _deps/one.cfg /x/\nCOPY _deps/*.cfg /y/\nCOPY missing /z\n"
    assert (target / "_deps/lib/deep/b.py").read_text() == "b"
    assert (target / "_deps/two.cfg").read_text() == "2"


def test_the_tasks_own_deps_are_not_mixed_up(environment: Path) -> None:
    write_files(environment, {"_deps/mine": "mine"})
    write_files(environment.parents[2], {"lib/a.py": "a"})
    target = made(environment, "FROM a\nCOPY lib /x\n")
    assert (target / "Dockerfile").read_text() == "FROM a\nCOPY _deps_/lib /x\n"
    assert [path.name for path in (target / "_deps").iterdir()] == ["mine"]


def test_what_the_task_ignores_does_not_hide_them(environment: Path) -> None:
    write_files(environment, {".dockerignore": "*\n!own.txt"})
    write_files(environment.parents[2], {"lib/a.py": "a"})
    assert (made(environment, "FROM a\nCOPY lib /x\n") / ".dockerignore").read_text() == "*\n!own.txt\n!_deps\n"


@pytest.mark.parametrize("link", ["lib", "lib/inner", "lib/deep/inner", "through"])
def test_a_link_that_leaves_the_root_is_refused(link: str, environment: Path, tmp_path: Path) -> None:
    write_files(tmp_path, {"secret/key": "s3cret"})
    root = environment.parents[2]
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(tmp_path / "secret")
    source = "through/key" if link == "through" else "lib"
    with pytest.raises(BuildError, match=r"^environment/Dockerfile:3: .* is a link that leaves the context root"):
        made(environment, f"FROM a\nRUN x\nCOPY {source} /x\n")


def test_a_link_that_stays_in_the_root_is_followed_at_the_top(environment: Path) -> None:
    root = write_files(environment.parents[2], {"real/a.py": "a"})
    (root / "lib").symlink_to("real")
    assert (made(environment, "FROM a\nCOPY lib /x\n") / "_deps/lib/a.py").read_text() == "a"


def test_a_path_that_leaves_the_root_is_refused(environment: Path) -> None:
    with pytest.raises(BuildError, match=r"^environment/Dockerfile:2: \.\./x: leaves the context root"):
        made(environment, "FROM a\nCOPY ../x /x\n")
