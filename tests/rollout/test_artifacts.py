"""Files that are kept from a sandbox, and the manifest that says what became of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_sandbox import FakeComposed, FakeSandbox, failed

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.rollout.artifacts import LogLimits, copy_artifacts_in, copy_artifacts_out, copy_logs_out
from pytest_benchflow.sandboxes import empty_dirs_script
from pytest_benchflow.tasks import Artifact

Files = dict[str, bytes | dict[str, bytes]]


def artifact(source: str, **more: object) -> Artifact:
    return Artifact.model_validate({"source": source, **more})


async def kept(files: Files, into: Path, *declared: Artifact) -> dict[str, str]:
    return {entry.source: entry.status for entry in await copy_artifacts_out(FakeSandbox(files=files), declared, into)}


async def test_a_file_keeps_its_path_below_the_artifacts(tmp_path: Path) -> None:
    assert await kept({"/app/out.txt": b"data"}, tmp_path, artifact("/app/out.txt")) == {"/app/out.txt": "ok"}
    assert (tmp_path / "app/out.txt").read_bytes() == b"data"


async def test_a_relative_path_is_below_the_working_directory(tmp_path: Path) -> None:
    assert await kept({"/app/out.txt": b"data"}, tmp_path, artifact("out.txt")) == {"/app/out.txt": "ok"}


async def test_a_destination_renames(tmp_path: Path) -> None:
    await kept({"/app/out.txt": b"data"}, tmp_path, artifact("/app/out.txt", destination="mine/x.txt"))
    assert (tmp_path / "mine/x.txt").read_bytes() == b"data"


async def test_a_directory_is_kept_without_what_is_excluded(tmp_path: Path) -> None:
    tree = {"a.txt": b"a", "b.log": b"b", "deep/c.log": b"c", "deep/d.txt": b"d", "node_modules/x.js": b"x"}
    await kept({"/app/out": tree}, tmp_path, artifact("/app/out", exclude=["*.log", "node_modules"]))
    out = tmp_path / "app/out"
    assert {path.relative_to(out).as_posix() for path in out.rglob("*")} == {"a.txt", "deep", "deep/d.txt"}


async def test_what_is_missing_is_recorded_and_not_fatal(tmp_path: Path) -> None:
    both = [artifact("/app/none"), artifact("/app/out.txt")]
    found = await kept({"/app/out.txt": b"data"}, tmp_path, *both)
    assert found == {"/app/none": "empty", "/app/out.txt": "ok"}


async def test_an_empty_directory_is_recorded_as_empty_and_leaves_nothing(tmp_path: Path) -> None:
    assert await kept({"/app/out": {}}, tmp_path, artifact("/app/out")) == {"/app/out": "empty"}
    assert not (tmp_path / "app/out").exists()


async def test_the_first_of_two_overlapping_targets_wins(tmp_path: Path) -> None:
    files: Files = {"/app/out": {"x": b"1"}, "/app/out/x": b"1"}
    found = await kept(files, tmp_path, artifact("/app/out"), artifact("/app/out/x"))
    assert found == {"/app/out": "ok", "/app/out/x": "skipped"}


async def test_names_that_only_begin_alike_do_not_overlap(tmp_path: Path) -> None:
    files: Files = {"/app/out": b"1", "/app/output": b"2"}
    assert set((await kept(files, tmp_path, artifact("/app/out"), artifact("/app/output"))).values()) == {"ok"}


async def test_a_download_that_fails_is_recorded_and_not_fatal(tmp_path: Path) -> None:
    sandbox = FakeSandbox(files={"/app/a": b"a", "/app/b": b"b"})
    whole = sandbox.download_file

    async def broken(source: str, target: Path) -> None:
        if source == "/app/a":
            raise SandboxError("gone")
        await whole(source, target)

    sandbox.download_file = broken  # type: ignore[method-assign]
    found = await copy_artifacts_out(sandbox, [artifact("/app/a"), artifact("/app/b")], tmp_path)
    assert [(entry.status, entry.reason) for entry in found] == [("failed", "gone"), ("ok", None)]


async def test_a_directory_that_is_too_much_leaves_no_part_of_itself(tmp_path: Path) -> None:
    sandbox = FakeSandbox()

    async def too_much(source: str, target: Path) -> None:
        target.mkdir(parents=True)
        (target / "part").touch()
        raise SandboxError("the sandbox sent more than 50000 files")

    sandbox.download_dir = too_much  # type: ignore[method-assign]
    (entry,) = await copy_artifacts_out(sandbox, [artifact("/app/out")], tmp_path)
    assert (entry.status, entry.reason) == ("failed", "the sandbox sent more than 50000 files")
    assert not list(tmp_path.rglob("part"))


async def test_the_manifest_lists_every_artifact(tmp_path: Path) -> None:
    declared = [artifact("/app/out.txt"), artifact("/app/none", destination="none")]
    await kept({"/app/out.txt": b"data"}, tmp_path, *declared)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [(entry["source"], entry["destination"], entry["type"], entry["status"]) for entry in manifest] == [
        ("/app/out.txt", "app/out.txt", "file", "ok"),
        ("/app/none", "none", None, "empty"),
    ]
    assert {entry["service"] for entry in manifest} == {"main"}


async def test_nothing_kept_of_the_standard_place_leaves_nothing(tmp_path: Path) -> None:
    await kept({"/logs/artifacts": {}}, tmp_path / "artifacts", artifact("/logs/artifacts"))
    assert not list(tmp_path.rglob("*"))


async def test_kept_artifacts_go_back_to_where_they_came_from(tmp_path: Path) -> None:
    files: Files = {"/app/out.txt": b"data", "/app/dir": {"x": b"x"}, "/app/none": {}}
    declared = [artifact("/app/out.txt", destination="elsewhere"), artifact("/app/dir"), artifact("/app/none")]
    entries = await copy_artifacts_out(FakeSandbox(files=files), [*declared, artifact("/app/missing")], tmp_path)
    other = FakeSandbox()
    await copy_artifacts_in(other, entries, tmp_path)
    assert other.uploads == [("file", "/app/out.txt"), ("dir", "/app/dir")]
    assert other.files["/app/out.txt"] == b"data"
    # A directory holds what the agent left and nothing that the verifier's image has there.
    assert other.commands == [empty_dirs_script("/app/dir"), empty_dirs_script("/app/none")]


async def test_a_directory_that_cannot_be_emptied_is_an_error(tmp_path: Path) -> None:
    entries = await copy_artifacts_out(FakeSandbox(files={"/app": {"x": b"x"}}), [artifact("/app")], tmp_path)
    with pytest.raises(SandboxError, match=r"could not empty /app for its artifacts: Read-only file system"):
        await copy_artifacts_in(FakeSandbox(lambda cmd: failed(1, "Read-only file system\n")), entries, tmp_path)


async def test_services_come_after_main_whatever_the_order(tmp_path: Path) -> None:
    sandbox = FakeComposed(files={"/app/out": b"main"})
    sandbox.services = {
        "db": FakeSandbox(files={"/dump": {"a.sql": b"a", "a.tmp": b"t"}}),
        "web": FakeSandbox(files={"/var/log/x": b"web", "/app/out": b"web"}),
    }
    declared = [
        artifact("/dump", service="db", exclude=["*.tmp"]),
        artifact("/app/out", service="web"),
        artifact("/app/out"),
        artifact("/var/log/x", service="web", destination="logs/web"),
        artifact("/none", service="db"),
        artifact("/x", service="gone"),
    ]
    seen: list[list[str]] = []

    async def before_services() -> None:
        seen.append([path.name for path in tmp_path.rglob("*") if path.is_file()])

    entries = await copy_artifacts_out(sandbox, declared, tmp_path, before_services=before_services)
    assert seen == [["out"]]
    assert (tmp_path / "app/out").read_bytes() == b"main"
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    columns = ("service", "source", "destination", "type", "status", "exclude")
    assert [tuple(entry[column] for column in columns) for entry in manifest] == [
        ("main", "/app/out", "app/out", "file", "ok", []),
        ("db", "/dump", "dump", "directory", "ok", ["*.tmp"]),
        ("web", "/app/out", "app/out", None, "skipped", []),
        ("web", "/var/log/x", "logs/web", "file", "ok", []),
        ("db", "/none", "none", None, "empty", []),
        ("gone", "/x", "x", None, "failed", []),
    ]
    assert sorted(path.name for path in (tmp_path / "dump").iterdir()) == ["a.sql"]
    other = FakeSandbox()
    await copy_artifacts_in(other, entries, tmp_path)
    assert other.uploads == [("file", "/app/out"), ("dir", "/dump"), ("file", "/var/log/x")]


LOGS: Files = {"/logs/agent": {"own.log": b"own", "mine.txt": b"forged", "exit-code.txt": b"0", "deep/x": b"x"}}


async def test_logs_of_the_agent_replace_none_of_the_harness(tmp_path: Path) -> None:
    into = tmp_path / "agent"
    into.mkdir()
    (into / "mine.txt").write_text("true")
    copied = await copy_logs_out(FakeSandbox(files=LOGS), into)
    assert copied.refused == ("exit-code.txt", "mine.txt")
    assert {path.relative_to(into).as_posix(): path.read_text() for path in into.rglob("*") if path.is_file()} == {
        "mine.txt": "true",
        "sandbox-mine.txt": "forged",
        "sandbox-exit-code.txt": "0",
        "own.log": "own",
        "deep/x": "x",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


async def test_a_directory_does_not_replace_a_log_either(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "mine.txt").write_text("true")
    logs: Files = {"/logs/agent": {"mine.txt/x": b"forged", "exit-code.txt/x": b"forged"}}
    copied = await copy_logs_out(FakeSandbox(files=logs), tmp_path / "agent")
    assert copied.refused == ("exit-code.txt", "mine.txt")
    assert (tmp_path / "agent" / "mine.txt").read_text() == "true"
    assert not (tmp_path / "agent" / "exit-code.txt").exists()


async def test_of_too_many_logs_some_are_kept(tmp_path: Path) -> None:
    logs: Files = {"/logs/agent": {f"{n:02}.log": b"x" * 100 for n in range(20)} | {"deep/x": b"x", "deep/y": b"x"}}
    copied = await copy_logs_out(FakeSandbox(files=logs), tmp_path / "few", LogLimits(files=9))
    assert len([*(tmp_path / "few").rglob("*.log")]) + copied.n_dropped >= 20
    assert len([*(tmp_path / "few").rglob("*")]) <= 10
    copied = await copy_logs_out(FakeSandbox(files=logs), tmp_path / "small", LogLimits(total_bytes=550))
    assert len([*(tmp_path / "small").rglob("*.log")]) == 5
    assert copied.n_dropped == 17
    copied = await copy_logs_out(FakeSandbox(files=logs), tmp_path / "cut", LogLimits(file_bytes=10))
    assert (tmp_path / "cut" / "00.log").read_text().startswith("xxxxxxxxxx\n[... 90 bytes left out")


async def test_logs_that_cannot_all_be_copied_are_kept_in_part(tmp_path: Path) -> None:
    sandbox = FakeSandbox()

    async def broken(source: str, target: Path) -> None:
        target.mkdir(parents=True)
        (target / "part").touch()
        raise SandboxError("gone")

    sandbox.download_dir = broken  # type: ignore[method-assign]
    with pytest.raises(SandboxError, match="gone"):
        await copy_logs_out(sandbox, tmp_path / "agent")
    assert [path.name for path in tmp_path.rglob("*")] == ["agent", "part"]
