"""A sandbox is a system that others' programs feel at home in: logins, dotfiles, packages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from sandbox_helpers import StartSandbox, needs_users, only_root, output

from pytest_benchflow.sandboxes import Sandbox

needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs packages of Debian")


@needs_users
async def test_a_process_can_say_of_itself_what_a_login_says(sandbox: Sandbox) -> None:
    code = """
for name, text in (("oom_score_adj", "700"), ("loginuid", "0"), ("comm", "named")):
    open(f"/proc/self/{name}", "w").write(text)
    print(open(f"/proc/self/{name}").read().strip())
"""
    result = await sandbox.exec("python3 -", stdin=code.encode())
    assert result.stdout.split() == ["700", "0", "named"], result.stderr


async def test_root_has_the_files_that_shells_read(sandbox: Sandbox) -> None:
    seen = await output(sandbox, "ls -A ~; bash --login -i -c 'echo in' 2>/dev/null")
    assert {".bashrc", ".profile", "in"} <= set(seen.split())


async def test_people_of_the_host_are_nobody_here(sandbox: Sandbox) -> None:
    numbers = (await output(sandbox, "cut -d: -f3 /etc/passwd /etc/group")).split()
    assert [number for number in numbers if 1000 <= int(number) != 65534] == []
    names = (await output(sandbox, "cut -d: -f4 /etc/group | tr ',' '\n' | sort -u; cut -d: -f1 /etc/shadow")).split()
    known = (await output(sandbox, "cut -d: -f1 /etc/passwd")).split()
    assert set(names) == set(known)
    # What Dockerfiles do to have a user with the number of most people.
    made = "useradd --create-home --uid 1000 --user-group someone && id -u someone && id -g someone"
    assert (await output(sandbox, made)).split() == ["1000", "1000"]


async def test_directories_of_the_hosts_packages_are_there_without_their_content(sandbox: Sandbox) -> None:
    theirs = [path for path in sorted(Path("/var/lib").iterdir()) if path.is_dir() and not path.is_symlink()]
    for path in theirs:
        if path.stat().st_mode & 0o005 == 0o005 and path.name not in ("apt", "dpkg"):
            files = await sandbox.exec(f"find {path} -type f")
            assert (files.return_code, files.stdout) == (0, ""), path


DEB = """
mkdir -p /deb/DEBIAN /deb{directory}
about='Package: {package}\\nVersion: 9999\\nArchitecture: all\\nMaintainer: x\\nDescription: x\\n'
printf "$about" > /deb/DEBIAN/control
printf '#!/bin/sh\\necho replaced\\n' > /deb{path} && chmod 755 /deb{path}
dpkg-deb --root-owner-group -b /deb /p.deb >/dev/null && dpkg -i --force-all /p.deb 2>&1
"""


def deb_script(package: str, path: str) -> str:
    """Return what makes a newer release of a package, with one file, and installs it."""
    return DEB.format(package=package, path=path, directory=os.path.dirname(path))


@needs_dpkg
async def test_a_package_of_the_host_can_be_upgraded(sandbox: Sandbox) -> None:
    path = os.path.realpath("/usr/bin/which.debianutils")
    if not os.path.exists(path):
        pytest.skip("needs debianutils")
    before = Path(path).read_bytes()
    result = await sandbox.exec(deb_script("debianutils", path))
    assert result.return_code == 0, result.stdout
    assert await output(sandbox, path) == "replaced\n"
    assert Path(path).read_bytes() == before


@needs_dpkg
async def test_what_the_hosts_dpkg_is_just_doing_is_not_seen(sandbox: Sandbox) -> None:
    # As long as its journal holds something, apt does nothing but tell to repair it.
    look = "ls -A /var/lib/dpkg/updates; stat -f -c %T /var/lib/dpkg/updates"
    assert await output(sandbox, look) == "tmpfs\n"


@needs_dpkg
@only_root
async def test_a_package_that_an_ordinary_user_cannot_upgrade_is_named(start: StartSandbox) -> None:
    sandbox = await start()
    deep = (await output(sandbox, "find /usr -type d ! -writable -perm -005 2>/dev/null | head -1")).strip()
    if not deep:
        pytest.skip("every directory of this host is mirrored")
    result = await sandbox.exec(deb_script("debianutils", f"{deep}/x"))
    assert result.return_code != 0
    assert (
        f"debianutils cannot be replaced by an ordinary user: {deep} is the host's; run pytest as root" in result.stdout
    )
