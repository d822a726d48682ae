"""The cache of bundles: directories shared by all processes of one user, each complete from the moment it exists.

An agent is installed into a new directory: packages, runtime, wrappers, and the proof that its programs start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.agents.bundles.bundle import FACTS, KEY, Bundle, BundleSpec, is_whole, read, seal
from pytest_benchflow.agents.bundles.commands import Commands
from pytest_benchflow.agents.bundles.npm import install_npm, provide_node
from pytest_benchflow.agents.bundles.python import PYTHON, install_python
from pytest_benchflow.agents.bundles.wrappers import NODE, write_wrapper
from pytest_benchflow.core.activity import activity
from pytest_benchflow.core.errors import InstallError
from pytest_benchflow.core.files import cache_directory, is_abandoned, locked_files, temporary_name
from pytest_benchflow.core.removal import remove_tree

_ANSWER_SEC = 30.0
#: How a shell says that a program could not be started.
_NEVER_STARTED = (126, 127)
CHECK = "check"
_PYTHON = "3.12"
#: What may run the programs, and the words that prove that it does; for Python its libraries are part of that.
_RUNTIMES = {NODE: "--version", f"{PYTHON}/bin/python": "-I -c 'import ssl, ctypes, sqlite3'"}


async def install(spec: BundleSpec, top: Path, scratch: Path, commands: Commands, node: Path | None) -> tuple[str, ...]:
    """Fill the new directory `top`; return what runs the programs."""
    top.mkdir()
    programs: dict[str, list[str]] = {}
    if spec.npm:
        programs |= await install_npm(spec.npm, top, scratch, commands, node)
    if spec.pip:
        programs |= await install_python(spec.python or _PYTHON, spec.pip, top, spec.target, scratch, commands)
    for name in spec.programs:
        if name not in programs:
            offered = ", ".join(sorted(programs)) or "none"
            raise commands.failed(f"the packages have no program {name!r}; they have: {offered}")
        write_wrapper(top, top / "bin" / name, programs[name])
    runtimes = _write_check(top)
    for name in spec.programs:
        await _prove(name, top, scratch, commands)
    return tuple([await _version(top / path, commands) for path in runtimes])


def _write_check(top: Path) -> list[str]:
    """Write the script that tells, by its exit status, whether the bundle's runtimes start on a system."""
    runtimes = {path: words for path, words in _RUNTIMES.items() if (top / path).exists()}
    tests = " && ".join(f'"$top/{path}" {words}' for path, words in runtimes.items())
    (top / CHECK).write_text(f"#!/bin/sh\ntop=${{0%/*}}\n{tests or 'true'}\n")
    (top / CHECK).chmod(0o755)
    return list(runtimes)


async def _prove(name: str, top: Path, scratch: Path, commands: Commands) -> None:
    """See a program start; many agents know no `--version` and end with an error of their own, which is enough."""
    home = scratch / f"home-{name}"
    home.mkdir()
    argv = [str(top / "bin" / name), "--version"]
    status, lines = await commands.attempt(argv, cwd=home, env={"HOME": str(home)}, timeout_sec=_ANSWER_SEC)
    if status is not None and (status in _NEVER_STARTED or status < 0):
        raise commands.failed(f"its program {name} does not start: {lines[-1] if lines else 'no output'}", status)


async def _version(program: Path, commands: Commands) -> str:
    _, lines = await commands.attempt([str(program), "--version"], timeout_sec=_ANSWER_SEC)
    return f"{program.name} {lines[-1].split()[-1].removeprefix('v') if lines else '?'}"


INSTALL_TIMEOUT_SEC = 900.0
_KEY_LENGTH = 20


@dataclass(slots=True)
class _Shared:
    """One search or installation that several callers wait for."""

    work: asyncio.Task[Bundle]
    waiting: int = 0


class BundleStore:
    """Bundles on disk; asking for one installs it if it is missing."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._shared: dict[str, _Shared] = {}
        self._checked: set[str] = set()

    @property
    def path(self) -> Path:
        """The directory that holds the bundles, made on first use and closed to others."""
        path = self._directory or cache_directory() / "agents"
        advice = "set BF_CACHE_DIR to a directory of your own"
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            status = path.stat()
        except OSError as error:
            raise InstallError(f"the agent cache {path} cannot be made: {error.strerror}", advice=advice) from None
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            # Whoever can write there could put anything into our sandboxes.
            raise InstallError(f"others can write to the agent cache {path}", advice=advice, retryable=False)
        return path

    async def provide(self, spec: BundleSpec, *, log: Path | None = None) -> Bundle:
        """Return the bundle of a spec, installed if it is missing; what the installation printed goes to `log`."""
        shared = self._shared.get(spec.name)
        if shared is None:
            shared = self._shared[spec.name] = _Shared(asyncio.ensure_future(self._provide(spec)))
            shared.work.add_done_callback(lambda _: self._shared.pop(spec.name, None))
        shared.waiting += 1
        try:
            return await asyncio.shield(shared.work)
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.work.done():
                # Nobody is left who wants it.
                shared.work.cancel()
                await asyncio.wait([shared.work])
            if log is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(self._log(spec), log)

    def installed(self) -> list[Bundle]:
        """List the bundles that are there, by name."""
        paths = (path for path in sorted(self.path.iterdir()) if not path.name.startswith("tmp-"))
        return [bundle for path in paths if (bundle := read(path)) is not None]

    def unused(self, *, days: float = 30.0) -> list[Bundle]:
        """List the bundles nobody has asked for in so many days, but the one of each agent that was used last."""
        newest: dict[str, Bundle] = {}
        bundles = self.installed()
        for bundle in sorted(bundles, key=lambda bundle: bundle.used):
            newest[bundle.spec.agent] = bundle
        oldest = time.time() - days * 86400
        return [bundle for bundle in bundles if bundle.used <= oldest and bundle is not newest[bundle.spec.agent]]

    def remove(self, bundles: Sequence[Bundle]) -> None:
        """Remove bundles, and what installations that are gone have left."""
        for bundle in bundles:
            # Renamed first: whoever looks for it meanwhile finds it whole or not at all.
            with contextlib.suppress(FileNotFoundError):
                remove_tree(bundle.path.rename(self.path / temporary_name()))
            self._log(bundle.spec).unlink(missing_ok=True)
        self._remove_runtimes()
        self._sweep()

    def _remove_runtimes(self) -> None:
        """Remove the nodes that no bundle stands on; one of today may be for a bundle that is being installed."""
        used = {bundle.spec.node for bundle in self.installed()}
        for home in (self.path / "runtimes").glob("node-*-*/"):
            if home.name.split("-")[1] not in used and home.stat().st_mtime < time.time() - 86400:
                remove_tree(home)

    async def _provide(self, spec: BundleSpec) -> Bundle:
        if (bundle := await asyncio.to_thread(self._find, spec)) is not None:
            return bundle
        try:
            # Another process may be installing it; that ends within the same time, and then it is our turn.
            async with asyncio.timeout(2 * INSTALL_TIMEOUT_SEC), locked_files(self.path / f"{spec.name}.lock"):
                if (bundle := await asyncio.to_thread(self._find, spec)) is not None:
                    return bundle
                return await self._install(spec)
        except TimeoutError:
            raise InstallError(
                f"Agent {spec.agent} install failed: it took longer than {INSTALL_TIMEOUT_SEC:g} s",
                advice=f"see {self._log(spec)}",
            ) from None

    def _find(self, spec: BundleSpec) -> Bundle | None:
        """Return the bundle if it is there and whole; each is checked once by a process."""
        bundle = read(self.path / spec.name)
        if bundle is None or bundle.spec != spec:
            return None
        if spec.name not in self._checked and not is_whole(bundle):
            return None
        self._checked.add(spec.name)
        with contextlib.suppress(OSError):
            os.utime(bundle.path)
        return bundle

    async def _install(self, spec: BundleSpec) -> Bundle:
        with activity(f"installing {spec.agent} {spec.version}"):
            return await self._install_now(spec)

    async def _install_now(self, spec: BundleSpec) -> Bundle:
        await asyncio.to_thread(self._sweep)
        began = time.monotonic()
        work = self.path / temporary_name()
        scratch = work / "scratch"
        scratch.mkdir(parents=True)
        commands = Commands(spec.agent, self._log(spec))
        try:
            async with asyncio.timeout(INSTALL_TIMEOUT_SEC):
                node = await provide_node(self.path / "runtimes", spec.node, scratch, commands) if spec.node else None
                runtimes = await install(spec, work / "bundle", scratch, commands, node)
            seconds = round(time.monotonic() - began, 1)
            commands.say(f"{spec.agent} {spec.version} with {', '.join(runtimes)} in {seconds:g} s")
            return await asyncio.to_thread(self._finish, spec, work / "bundle", seconds, runtimes)
        except TimeoutError:
            raise
        except (OSError, subprocess.SubprocessError) as error:
            # Such as a full disk.
            raise commands.failed(str(error)) from None
        finally:
            await asyncio.shield(asyncio.to_thread(remove_tree, work))

    def _finish(self, spec: BundleSpec, top: Path, seconds: float, runtimes: tuple[str, ...]) -> Bundle:
        content = seal(top)
        path = self.path / spec.name
        key = content.digest[:_KEY_LENGTH]
        bundle = Bundle(spec, path, key, content.files, content.size, seconds, runtimes)
        (top / KEY).write_text(f"{key}\n")
        (top / FACTS).write_text(bundle.facts())
        for name in (KEY, FACTS):
            (top / name).chmod(0o644)
        if path.exists():
            # It was damaged. Sandboxes may still show it: it goes when this process is gone.
            path.rename(self.path / temporary_name())
        top.rename(path)
        self._checked.add(spec.name)
        return bundle

    def _log(self, spec: BundleSpec) -> Path:
        """Return where the last installation of a spec is told; not in the bundle, which agents can read."""
        return self.path / f"{spec.name}.log"

    def _sweep(self) -> None:
        """Remove what installations that are gone have left."""
        for place in (self.path, self.path / "runtimes"):
            for path in place.glob("tmp-*"):
                # Another process may be sweeping too.
                with contextlib.suppress(OSError):
                    if is_abandoned(path.name):
                        remove_tree(path)
