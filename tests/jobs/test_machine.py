"""What a process may use of its machine, from the files of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from project import write_files

from pytest_benchflow.jobs.machine import free_memory_mb, usable_cores

GB = 1 << 30
MEMINFO = "MemTotal: 64000000 kB\nMemAvailable: 33554432 kB\n"
V1 = "4:memory:/docker/1f2e\n1:cpu,cpuacct:/docker/1f2e\n0::/\n"


def machine(root: Path, own: str, files: Mapping[str, str]) -> tuple[Path, Path]:
    write_files(root, {"proc/meminfo": MEMINFO, "proc/self/cgroup": own})
    (root / "sys").mkdir()
    write_files(root / "sys", files)
    return root / "proc", root / "sys"


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/", {}, 16),
        ("0::/", {"cpu.max": "max 100000"}, 16),
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/ci/job", {"ci/cpu.max": "400000 100000", "ci/job/cpu.max": "max 100000"}, 4),
        (V1, {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16),
        (V1, {"cpu/docker/1f2e/cpu.cfs_quota_us": "100000", "cpu/docker/1f2e/cpu.cfs_period_us": "100000"}, 1),
        ("garbage", {"cpu.max": ""}, 16),
    ],
)
def test_a_quota_counts_as_so_many_cores(tmp_path: Path, own: str, files: dict[str, str], cores: int) -> None:
    assert usable_cores(*machine(tmp_path, own, files), present=16) == cores


@pytest.mark.parametrize(
    ("own", "files", "gigabytes"),
    [
        ("0::/", {}, 32),
        ("0::/", {"memory.max": "max", "memory.current": "1"}, 32),
        ("0::/", {"memory.max": str(8 * GB), "memory.current": str(7 * GB)}, 1),
        (
            "0::/",
            {
                "memory.max": str(8 * GB),
                "memory.current": str(8 * GB),
                "memory.stat": f"anon 1\ninactive_file {5 * GB}\n",
            },
            5,
        ),
        ("0::/a/b", {"a/memory.max": str(4 * GB), "a/memory.current": str(5 * GB)}, 0),
        (
            V1,
            {
                "memory/memory.limit_in_bytes": str(4 * GB),
                "memory/memory.usage_in_bytes": str(3 * GB),
                "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GB}",
            },
            2,
        ),
    ],
)
def test_memory_that_a_group_may_not_use_is_not_free(
    tmp_path: Path, own: str, files: dict[str, str], gigabytes: int
) -> None:
    assert free_memory_mb(*machine(tmp_path, own, files)) == pytest.approx(gigabytes * 1024)
