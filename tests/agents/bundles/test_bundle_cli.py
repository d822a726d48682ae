"""`bf agents install` and `bf agents prune`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from bundle_helpers import FakeNpm

from pytest_benchflow.cli.main import main

MANIFEST = """
name = "{name}"
version = "{version}"
launch = ["tool", "acp"]
[install]
node = "1"
npm = ["tool@{version}"]
"""


@pytest.fixture(autouse=True)
def _agents(tmp_path: Path, npm: FakeNpm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("BF_AGENTS_DIR", str(tmp_path / "manifests"))
    (tmp_path / "manifests").mkdir()
    write(tmp_path, "mine", "1.0")
    node = tmp_path / "cache" / "agents" / "runtimes" / f"node-1-{os.uname().machine}" / "bin" / "node"
    node.parent.mkdir(parents=True)
    node.write_text("#!/bin/sh\necho v1\n")
    node.chmod(0o755)


def write(tmp_path: Path, name: str, version: str) -> None:
    (tmp_path / "manifests" / f"{name}.toml").write_text(MANIFEST.format(name=name, version=version))


def test_installing_tells_what_was_installed_and_what_was_there(
    npm: FakeNpm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agents", "install", "mine", "oracle"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("mine 1.0, node 1, 0 MB, installed in ")
    assert second == "oracle: nothing to install"
    assert main(["agents", "install", "mine"]) == 0
    assert "mine 1.0, node 1, 0 MB, already installed: " in capsys.readouterr().out
    assert len(npm.calls) == 1


def test_what_cannot_be_installed_does_not_stop_the_others(
    tmp_path: Path, npm: FakeNpm, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "other", "2.0")
    assert main(["agents", "install", "other"]) == 0
    npm.set("fail")
    assert main(["agents", "install", "mine", "other"]) == 1
    shown = capsys.readouterr()
    assert "mine: Agent mine install failed (rc=1): E404: 404 Not Found" in shown.err
    assert "other 2.0, node 1, 0 MB, already installed" in shown.out


@pytest.mark.parametrize(
    ("words", "message"), [(["mime"], "Did you mean: 'mine'"), ([], "no agent is named; give names, or --all")]
)
def test_a_wrong_name_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agents", "install", *words]) == 2
    assert message in capsys.readouterr().err


def test_pruning_lists_and_removes_only_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["agents", "install", "mine"])
    (old,) = (tmp_path / "cache" / "agents").glob("mine-1.0-????????")
    month = time.time() - 40 * 86400
    os.utime(old, (month, month))
    write(tmp_path, "mine", "2.0")
    main(["agents", "install", "mine"])
    capsys.readouterr()
    assert main(["agents", "prune"]) == 0
    listed = capsys.readouterr().out
    assert "  mine 1.0, node 1, 0 MB, unused for 40 days\n" in listed
    assert listed.endswith("nothing was removed; --yes removes what is listed\n")
    assert old.exists()
    assert main(["agents", "prune", "--max-age", "50", "--yes"]) == 0
    assert capsys.readouterr().out == "agents: nothing\n"
    assert main(["agents", "prune", "--yes"]) == 0
    assert "unused for 40 days  removed" in capsys.readouterr().out
    assert sorted(path.name[:8] for path in old.parent.glob("mine-*-????????")) == ["mine-2.0"]
