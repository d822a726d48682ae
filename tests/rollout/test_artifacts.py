"""Files that are kept from a sandbox, and the manifest that says what became of each."""

from __future__ import annotations

import json
from pathlib import Path

from fake_sandbox import Answer, FakeSandbox, ok

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.rollout.artifacts import keep_artifacts, place_artifacts
from pytest_benchflow.tasks import Artifact


def sandbox_with(files: dict[str, bytes | dict[str, bytes]]) -> FakeSandbox:
    """Return a sandbox that tells files from directories as its shell would."""

    def answer(cmd: str) -> Answer:
        asked = cmd.partition(";")[0].removeprefix("set -- ").split()
        kinds = {bytes: "f", dict: "d", type(None): "-"}
        return ok("\n".join(kinds[type(files.get(path))] for path in asked))

    return FakeSandbox(answer, dict(files))


def artifact(source: str, **more: object) -> Artifact:
    return Artifact.model_validate({"source": source, **more})


async def kept(files: dict[str, bytes | dict[str, bytes]], into: Path, *declared: Artifact) -> dict[str, str]:
    return {entry.source: entry.status for entry in await keep_artifacts(sandbox_with(files), declared, into)}


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
    files: dict[str, bytes | dict[str, bytes]] = {"/app/out": {"x": b"1"}, "/app/out/x": b"1"}
    found = await kept(files, tmp_path, artifact("/app/out"), artifact("/app/out/x"))
    assert found == {"/app/out": "ok", "/app/out/x": "skipped"}


async def test_names_that_only_begin_alike_do_not_overlap(tmp_path: Path) -> None:
    files: dict[str, bytes | dict[str, bytes]] = {"/app/out": b"1", "/app/output": b"2"}
    assert set((await kept(files, tmp_path, artifact("/app/out"), artifact("/app/output"))).values()) == {"ok"}


async def test_a_download_that_fails_is_recorded_and_not_fatal(tmp_path: Path) -> None:
    sandbox = sandbox_with({"/app/a": b"a", "/app/b": b"b"})
    whole = sandbox.download_file

    async def broken(source: str, target: Path) -> None:
        if source == "/app/a":
            raise SandboxError("gone")
        await whole(source, target)

    sandbox.download_file = broken  # type: ignore[method-assign]
    found = await keep_artifacts(sandbox, [artifact("/app/a"), artifact("/app/b")], tmp_path)
    assert [entry.status for entry in found] == ["failed", "ok"]


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
    files: dict[str, bytes | dict[str, bytes]] = {"/app/out.txt": b"data", "/app/dir": {"x": b"x"}}
    declared = [artifact("/app/out.txt", destination="elsewhere"), artifact("/app/dir"), artifact("/app/none")]
    entries = await keep_artifacts(sandbox_with(files), declared, tmp_path)
    other = FakeSandbox()
    await place_artifacts(other, entries, tmp_path)
    assert other.uploads == [("file", "/app/out.txt"), ("dir", "/app/dir")]
    assert other.files["/app/out.txt"] == b"data"
