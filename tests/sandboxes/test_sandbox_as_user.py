"""The whole sandbox suite once more, as a user without any privilege."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOBODY = 65534


#: What takes its time, or many variants, and is the same code whoever runs it.
SAME = (
    *("many_files", "side_by_side", "slow_program", "slow_reader", "writers_and_readers", "flood_of_output"),
    *("tree[child]", "tree[deaf]", "tree[session]", "tree[double-fork]", "tree[no-environment]", "killed[term]"),
    *("here_document", "only_an_image_build", "copy_that_fails", "many_layers"),
)


@pytest.mark.skipif(os.geteuid() != 0, reason="these tests run as an ordinary user already")
@pytest.mark.parametrize(
    "names",
    [
        ("local_conformance",),
        (
            *("sandbox_build", "sandbox_lifecycle", "sandbox_isolation", "local_escape", "sandbox_programs"),
            *("sandbox_users", "sandbox_limits", "sandbox_mounts", "sandbox_snapshots"),
            *("sandbox_on_disk", "layer_place", "local_network", "sandbox_system", "stand_ins"),
        ),
    ],
    ids=["public", "own"],
)
def test_the_suite_passes_without_privileges(names: tuple[str, ...]) -> None:
    # Not tmp_path: pytest closes its directories to other users. Not /tmp: the suite checks that none of it is seen.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        os.chmod(scratch, 0o755)
        suites = [f"tests/sandboxes/test_{name}.py" for name in names]
        command = [sys.executable, str(HERE / "run_as_user.py"), str(NOBODY), scratch, "-q", *suites]
        command += ["-k", " and ".join(f"not {word}" for word in SAME)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]
        assert re.search(r"\d+ passed", run.stdout)
