"""What the install scripts of packages write to their home does not stay on this machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_benchflow.agents.bundles.bundle import BundleSpec
from pytest_benchflow.agents.bundles.store import BundleStore

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm")


async def test_install_scripts_get_a_home_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    facts = {"name": "litter", "version": "1.0.0", "bin": {"litter": "run.sh"}}
    script = {"scripts": {"postinstall": "touch $HOME/.litter && touch done"}}
    (package / "package.json").write_text(json.dumps({**facts, **script}))
    (package / "run.sh").write_text("#!/bin/sh\necho 1\n")
    (package / "run.sh").chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    spec = BundleSpec("litter", "1.0.0", npm=(f"file:{package}",), programs=("litter",))
    bundle = await BundleStore(tmp_path / "store").provide(spec)
    assert list(bundle.path.rglob("done"))
    assert not list(home.rglob(".litter"))
