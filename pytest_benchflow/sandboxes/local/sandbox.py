"""The local sandbox: a machine with the image that its Dockerfile describes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import SandboxError, UnsupportedError
from pytest_benchflow.core.network import Network
from pytest_benchflow.sandboxes import archive
from pytest_benchflow.sandboxes.base import (
    Capabilities,
    ExecResult,
    FileChange,
    KilledProgram,
    SandboxImage,
    SandboxSpec,
)
from pytest_benchflow.sandboxes.helpers import UnreachedHosts, check_command, check_mounts, resolve_path
from pytest_benchflow.sandboxes.local.builder import Builder, BuiltEnvironment, EnvironmentPlan
from pytest_benchflow.sandboxes.local.control import Launcher
from pytest_benchflow.sandboxes.local.custody import Image
from pytest_benchflow.sandboxes.local.host import Host
from pytest_benchflow.sandboxes.local.interpreter import ImageConfig
from pytest_benchflow.sandboxes.local.layers import Snapshots
from pytest_benchflow.sandboxes.local.machine import Command, LocalProcess, Machine, Target
from pytest_benchflow.sandboxes.startup import run_entrypoint, wait_until_image_is_healthy

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.local.terminal import LocalTerminal


class LocalSandbox:
    """Implements `Sandbox` with namespaces and overlays of the host's own system."""

    def __init__(
        self,
        spec: SandboxSpec,
        *,
        number: int,
        host: Host,
        launcher: Launcher,
        builder: Builder,
        plan: EnvironmentPlan | None,
        snapshots: Snapshots,
        stopped: Callable[[LocalSandbox], None],
    ) -> None:
        self._spec = spec
        self._network = spec.network
        self._plan = plan
        self._host = host
        self._launcher = launcher
        self._builder = builder
        self._snapshots = snapshots
        self._on_stop = stopped
        self._id = f"local-{host.pid}-{number}"
        self._built: BuiltEnvironment | None = None
        self._machine: Machine | None = None
        self._stopped = False
        # Known before the build, and for whoever wants to know why it failed.
        self._notes = [*(plan.plan.notes if plan else ())]
        self._oom_kills = 0
        self._unreached_hosts = UnreachedHosts()

    @property
    def id(self) -> str:
        """Identify the sandbox within this machine."""
        return self._id

    @property
    def _image(self) -> ImageConfig:
        return self._built.image if self._built else ImageConfig()

    @property
    def workdir(self) -> str:
        """The working directory of commands that name none."""
        if self._spec.workdir is None and self._image.workdir is None:
            return "/app"
        return str(PurePosixPath("/", self._image.workdir or "", self._spec.workdir or ""))

    @property
    def capabilities(self) -> Capabilities:
        """What this sandbox can do."""
        return self._host.capabilities

    @property
    def notes(self) -> Sequence[str]:
        """Facts the user should read once."""
        unreached = self._machine.unreached_hosts if self._machine else self._unreached_hosts
        notes = (*self._notes, *unreached.notes())
        kills = self._machine.oom_kills if self._machine else self._oom_kills
        if not kills:
            return notes
        took = f"more than memory_mb = {self._spec.limits.memory_mb}" if self._spec.limits.memory_mb else "too much"
        return (*notes, f"killed for taking {took}: {kills} process{'es' if kills > 1 else ''}")

    async def start(self) -> None:
        """Build what is not cached and bring the sandbox up."""
        if self._machine is None:
            self._stopped = False
            check_mounts(self._spec)
            await self._bring_up(await self._builder.build(self._spec, self._plan))
            try:
                name, limit = self._spec.name, self._spec.build_timeout_sec
                await run_entrypoint(self, name, self._image.entrypoint)
                await wait_until_image_is_healthy(self, name, self._image.healthcheck, limit)
            except BaseException:
                await self._end()
                raise

    async def _bring_up(self, built: BuiltEnvironment) -> None:
        self._built = built
        self._notes = [*(self._plan.plan.notes if self._plan else ()), *built.notes]
        if self._image.user not in (None, "root", "0") and not self._host.privileged:
            self._notes.append(f"USER {self._image.user} is root here: an ordinary user cannot make other users")
        config = replace(
            built.base,
            write_dir=await self._builder.write_dir(),
            network=self._network,
            leads_out=any(network.leads_out for network in (self._spec.network, *self._spec.later_networks)),
            storage_mb=self._spec.limits.storage_mb,
            memory_mb=self._spec.limits.memory_mb,
            cpus=self._spec.limits.cpus,
            pids=self._spec.limits.pids,
            dirs=(*self._image.dirs, self.workdir),
            mounts=tuple((str(mount.source.absolute()), mount.target) for mount in self._spec.mounts),
        )
        machine = await Machine.start(self._launcher, config)
        if self._network.endpoints:
            await machine.set_network(self._network)
        if self._stopped:
            await machine.stop()
            raise SandboxError(f"sandbox {self._spec.name} was stopped while it started")
        self._machine = machine
        limits = (
            ("cpus", config.cpus, "cpu" in machine.enforced),
            ("memory_mb", config.memory_mb, "memory" in machine.enforced),
            ("pids", config.pids, "pids" in machine.enforced),
            ("storage_mb", config.storage_mb, config.write_dir is None),
        )
        if ignored := [name for name, limit, enforced in limits if limit is not None and not enforced]:
            verb = "is" if len(ignored) == 1 else "are"
            self._notes.append(f"{' and '.join(ignored)} {verb} not enforced in the local sandbox")

    async def stop(self, *, delete: bool = True) -> None:
        """End every process and remove the sandbox; `delete=False` does the same, it cannot outlive its runner."""
        self._stopped = True
        await self._end()
        self._on_stop(self)

    async def _end(self) -> None:
        machine, self._machine = self._machine, None
        if machine is not None:
            await machine.stop()
            self._oom_kills = machine.oom_kills
            self._unreached_hosts = machine.unreached_hosts

    async def exec(
        self,
        cmd: str,
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: float | None = None,
        stdin: bytes | None = None,
    ) -> ExecResult:
        """Run a bash command line."""
        command = self._command([self._host.bash, "-c", cmd], user, cwd, env)
        return await self._running().run(command, stdin=stdin or b"", timeout_sec=timeout_sec)

    async def open_process(
        self,
        argv: Sequence[str],
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> LocalProcess:
        """Start a program and return its byte pipe."""
        return await self._running().open(self._command(argv, user, cwd, env))

    async def open_terminal(
        self,
        argv: Sequence[str],
        *,
        rows: int,
        columns: int,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> LocalTerminal:
        """Start a program at a terminal."""
        return await self._running().open_terminal(self._command(argv, user, cwd, env), rows, columns)

    async def upload_file(self, source: Path, target: str) -> None:
        """Copy a host file to exactly `target`, keeping its mode."""
        path = PurePosixPath(self._path(target))
        await self._running().push(
            lambda stream: archive.pack_file(source, path.name, stream), Target(str(path.parent))
        )

    async def upload_dir(self, source: Path, target: str) -> None:
        """Copy the content of a host directory into `target`."""
        await self._running().push(lambda stream: archive.pack_dir(source, stream), Target(self._path(target)))

    async def download_file(self, source: str, target: Path) -> None:
        """Copy a file out of the sandbox."""
        path = self._path(source)
        await self._running().pull(lambda stream: archive.unpack_file(stream, target), path, directory=False)

    async def download_dir(self, source: str, target: Path) -> None:
        """Copy the content of a directory out, safely."""
        path = self._path(source)
        await self._running().pull(lambda stream: archive.unpack_dir(stream, target), path, directory=True)

    async def set_network(self, network: Network) -> None:
        """Let programs reach what `network` allows from now on."""
        await self._running().set_network(network)
        self._network = network

    async def end_programs(self, *, keep: Collection[str] = (), uid: int = 0) -> list[KilledProgram]:
        """Kill every program but those of `keep`, by init itself."""
        return await self._running().end_programs(keep, uid)

    async def changes(self) -> Sequence[FileChange]:
        """Return what differs from the image, from the overlays' layers."""
        machine, image = self._running(), self._layers()

        def look() -> list[FileChange]:
            with machine.written() as written:
                return image.changes(written)

        return await asyncio.to_thread(look)

    async def restore_files(self, paths: Collection[str]) -> None:
        """Make files what they are in the image; init writes them."""
        if paths:
            image = self._layers()
            target = Target("/", keep_owners=True, replaces=True)
            await self._running().push(lambda stream: image.pack(paths, stream), target)

    def _layers(self) -> Image:
        assert self._built is not None
        return Image(self._built.base)

    async def listen(self, port: int) -> socket.socket:
        """Return a listening socket that programs in the sandbox reach at 127.0.0.1 and this port."""
        return await self._running().listen(port)

    async def snapshot(self, name: str | None = None) -> SandboxImage:
        """Keep all files as a layer, for this run."""
        machine = self._running()
        assert self._built is not None
        return await self._snapshots.take(machine, self._built, name)

    async def restore(self, image: SandboxImage) -> None:
        """Have the files of a snapshot, in a new machine."""
        built = self._snapshots.find(image, self._spec.name)
        self._stopped = False
        check_mounts(self._spec)
        await self._end()
        await self._bring_up(built)

    def _path(self, path: str) -> str:
        return resolve_path(self._spec.name, path, self.workdir)

    def _running(self) -> Machine:
        if self._machine is None:
            raise SandboxError(f"sandbox {self._spec.name} is not running; call start() first")
        return self._machine

    def _command(
        self, argv: Sequence[str], user: str | int | None, cwd: str | None, env: Mapping[str, str] | None
    ) -> Command:
        check_command(self._spec.name, argv, user=user, cwd=cwd, env=env or {})
        return Command(
            argv,
            cwd=str(PurePosixPath(self.workdir, cwd or "")),
            user=self._user(user),
            env={
                **self._host.variables(),
                **self._image.env,
                **self._spec.env,
                **(env or {}),
            },
        )

    def _user(self, user: str | int | None) -> str | int | None:
        if self._host.privileged:
            return self._image.user if user is None else user
        if user in (None, 0, "0", "root"):
            return None
        raise UnsupportedError(
            f"sandbox {self._spec.name} cannot run a program as user {user!r}: only root exists for an ordinary user",
            advice="run pytest as root, or use --bf-sandbox docker",
        )
