"""The docker sandbox: one container with the image that its task describes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from pytest_benchflow.core.errors import SandboxError, SandboxSnapshotNotSupported
from pytest_benchflow.core.network import Network
from pytest_benchflow.sandboxes.base import (
    Capabilities,
    ExecResult,
    FileChange,
    KilledProgram,
    SandboxImage,
    SandboxSpec,
)
from pytest_benchflow.sandboxes.docker import custody, transfer
from pytest_benchflow.sandboxes.docker.container import Container
from pytest_benchflow.sandboxes.docker.container_spec import ImageFacts, container_name, working_directory
from pytest_benchflow.sandboxes.docker.containers import SandboxStarter
from pytest_benchflow.sandboxes.docker.exec import Command
from pytest_benchflow.sandboxes.docker.networks import ContainerNetwork
from pytest_benchflow.sandboxes.docker.sidecar import DockerService
from pytest_benchflow.sandboxes.docker.storage import Snapshots
from pytest_benchflow.sandboxes.docker.streams import DockerProcess, DockerTerminal
from pytest_benchflow.sandboxes.helpers import check_command, check_mounts, resolve_path
from pytest_benchflow.sandboxes.startup import run_entrypoint, wait_until_image_is_healthy


class DockerSandbox:
    """Implements `Sandbox` with a container."""

    def __init__(
        self,
        spec: SandboxSpec,
        starter: SandboxStarter,
        capabilities: Capabilities,
        stopped: Callable[[DockerSandbox], None],
    ) -> None:
        self._spec = spec
        self._starter = starter
        self._capabilities = capabilities
        self._on_stop = stopped
        self._id = container_name(spec.name)
        self._image = ImageFacts("")
        self._container: Container | None = None
        self._starting: asyncio.Task[None] | None = None
        self._network: ContainerNetwork | None = None
        self._notes: list[str] = []

    @property
    def id(self) -> str:
        """The container's name."""
        return self._id

    @property
    def workdir(self) -> str:
        """The working directory of commands that name none."""
        return working_directory(self._spec, self._image)

    @property
    def capabilities(self) -> Capabilities:
        """What this sandbox can do."""
        return self._capabilities

    @property
    def notes(self) -> Sequence[str]:
        """Limits that cannot be kept, hosts that were not reached, and how to enter a sandbox that was kept."""
        return [*self._notes, *(self._network.unreached.notes() if self._network else ())]

    async def start(self) -> None:
        """Build or pull what is missing and start the container."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._bring_up(None))
        await self._wait_started()

    async def _wait_started(self) -> None:
        assert self._starting is not None
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            await asyncio.shield(self.stop())
            raise

    async def _bring_up(self, image: ImageFacts | None) -> None:
        spec = self._spec
        check_mounts(spec)
        self._image = image or await self._starter.image(spec, self._id)
        self._container = await self._starter.start(spec, self._image, self._id)
        self._network = self._starter.network(spec, self._id)
        if self._network is not None:
            await self._network.open()
        self._notes += self._starter.notes(spec)
        if self._image.is_task_files_only and spec.environment_dir is not None:
            await self.upload_dir(spec.environment_dir, self.workdir)
        await run_entrypoint(self, spec.name, self._image.entrypoint, self._image.command)
        await wait_until_image_is_healthy(self, spec.name, self._image.healthcheck, spec.build_timeout_sec)
        await self._starter.finish_start(self._id)

    async def stop(self, *, delete: bool = True) -> None:
        """Remove the container with all that runs in it; with `delete=False` it stays, without its processes."""
        try:
            await self._end(delete=delete)
        finally:
            self._on_stop(self)

    async def _end(self, *, delete: bool = True) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
            container, self._container = self._container, None
            if self._network is not None:
                await self._network.aclose()
            if delete or container is None:
                await self._starter.stop(self._id, container)
            else:
                await self._keep(container)

    async def _keep(self, container: Container) -> None:
        kept = await self._starter.keep(container)
        self._id = kept.name
        self._notes.append(f"kept: enter it with `docker exec -it {kept.name} bash`, remove it with `{kept.removal}`")

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
        check_command(self._spec.name, ["bash", "-c", cmd], user=user, cwd=cwd, env=env or {})
        command = Command(cmd, cwd=self._cwd(cwd), user=self._user(user), env=self._env(env))
        return await self._running().run(command, stdin=stdin, timeout_sec=timeout_sec)

    async def open_process(
        self,
        argv: Sequence[str],
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> DockerProcess:
        """Start a program and return its byte pipe."""
        check_command(self._spec.name, argv, user=user, cwd=cwd, env=env or {})
        return await self._running().open(argv, user=self._user(user), cwd=self._cwd(cwd), env=self._env(env))

    async def open_terminal(
        self,
        argv: Sequence[str],
        *,
        rows: int,
        columns: int,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> DockerTerminal:
        """Start a program at a terminal."""
        check_command(self._spec.name, argv, user=user, cwd=cwd, env=env or {})
        return await self._running().open_terminal(
            argv, (rows, columns), user=self._user(user), cwd=self._cwd(cwd), env=self._env(env)
        )

    async def upload_file(self, source: Path, target: str) -> None:
        """Copy a host file to exactly `target`, keeping its mode."""
        await transfer.upload_file(self._running(), source, self._path(target))

    async def upload_dir(self, source: Path, target: str) -> None:
        """Copy the content of a host directory into `target`."""
        await transfer.upload_dir(self._running(), source, self._path(target))

    async def download_file(self, source: str, target: Path) -> None:
        """Copy a file out of the sandbox."""
        await transfer.download_file(self._running(), self._path(source), target)

    async def download_dir(self, source: str, target: Path) -> None:
        """Copy the content of a directory out, safely."""
        await transfer.download_dir(self._running(), self._path(source), target)

    async def end_programs(self, *, keep: Collection[str] = (), uid: int = 0) -> list[KilledProgram]:
        """Kill every program but those of `keep`, by PID 1 itself."""
        return await self._running().end_programs(keep, uid)

    async def changes(self) -> Sequence[FileChange]:
        """Return what differs from the image, as the engine knows it."""
        return await custody.changes(self._running())

    async def restore_files(self, paths: Collection[str]) -> None:
        """Make files what they are in the image; the engine writes them."""
        await custody.restore_files(self._running(), self._image.reference, paths)

    async def set_network(self, network: Network) -> None:
        """Let programs reach what `network` allows from now on."""
        self._running()
        if self._network is None:
            raise SandboxError(f"sandbox {self._spec.name} has several containers, whose network cannot change")
        await self._network.change(network)
        self._spec = replace(self._spec, network=network)

    def service(self, name: str) -> DockerService:
        """Return another container of the compose project."""
        self._running()
        return self._starter.service(self._id, name)

    async def stop_main(self) -> None:
        """End the sandbox's own container; what it left and the other services stay until `stop`."""
        self._running()
        await self._starter.stop_main(self._id)

    async def snapshot(self, name: str | None = None) -> SandboxImage:
        """Keep all files as an image, for this run."""
        return await self._snapshots().take(self._running(), self._spec, self._image, name)

    async def restore(self, image: SandboxImage) -> None:
        """Have the files of an image, in a new container."""
        facts = await self._snapshots().find(image, self._spec)
        await self._end()
        self._starting = asyncio.ensure_future(self._bring_up(facts))
        await self._wait_started()

    def _snapshots(self) -> Snapshots:
        snapshots = self._starter.snapshots
        if snapshots is None:
            reason = "it has several containers, or an engine without root and control groups"
            raise SandboxSnapshotNotSupported(f"sandbox {self._spec.name} cannot be kept as an image: {reason}")
        return snapshots

    def _running(self) -> Container:
        if self._container is None:
            raise SandboxError(f"sandbox {self._spec.name} is not running; call start() first")
        return self._container

    def _path(self, path: str) -> str:
        return resolve_path(self._spec.name, path, self.workdir)

    def _cwd(self, cwd: str | None) -> str:
        return str(PurePosixPath(self.workdir) / (cwd or ""))

    def _env(self, env: Mapping[str, str] | None) -> dict[str, str]:
        # With each command and not in the container's configuration, which others can read and images remember.
        return {**(self._network.variables if self._network else {}), **self._spec.env, **(env or {})}

    def _user(self, user: str | int | None) -> str:
        return self._image.user if user is None else str(user)
