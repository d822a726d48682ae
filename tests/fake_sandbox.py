"""A sandbox made of plain Python: it answers commands from a script and keeps files in a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_benchflow.core.errors import SandboxSnapshotNotSupported, UsageError
from pytest_benchflow.sandboxes import Capabilities, ExecResult, Process, SandboxImage

Answer = ExecResult | BaseException


def ok(stdout: str = "") -> ExecResult:
    """Return the answer of a command that succeeded."""
    return ExecResult(0, stdout, "")


def failed(code: int = 1, stderr: str = "") -> ExecResult:
    """Return the answer of a command that failed."""
    return ExecResult(code, "", stderr)


@dataclass
class FakeSandbox:
    """Implements `Sandbox`; `answer` decides what a command gives, and everything done is recorded."""

    answer: Callable[[str], Answer] = lambda cmd: ok()
    files: dict[str, bytes | dict[str, bytes]] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    timeouts: list[float | None] = field(default_factory=list)
    uploads: list[tuple[str, str]] = field(default_factory=list)
    id: str = "fake"
    workdir: str = "/app"
    capabilities: Capabilities = field(default_factory=Capabilities)
    notes: Sequence[str] = ()

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self, *, delete: bool = True) -> None:
        """Nothing to stop."""

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
        """Answer from the script."""
        self.commands.append(cmd)
        self.timeouts.append(timeout_sec)
        answer = self.answer(cmd)
        if cmd.endswith("; echo intact") and answer == ok():
            answer = ok("intact\n")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def open_process(
        self,
        argv: Sequence[str],
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """No test needs one."""
        raise NotImplementedError

    async def upload_file(self, source: Path, target: str) -> None:
        """Remember it."""
        self.uploads.append(("file", target))
        self.files[target] = source.read_bytes()

    async def upload_dir(self, source: Path, target: str) -> None:
        """Remember it."""
        self.uploads.append(("dir", target))

    async def download_file(self, source: str, target: Path) -> None:
        """Write the file of that name."""
        content = self.files.get(source)
        if not isinstance(content, bytes):
            raise FileNotFoundError(source)
        target.write_bytes(content)

    async def download_dir(self, source: str, target: Path) -> None:
        """Write the files of that directory."""
        content = self.files.get(source)
        if not isinstance(content, dict):
            raise FileNotFoundError(source)
        target.mkdir(parents=True, exist_ok=True)
        for name, data in content.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    async def snapshot(self, name: str | None = None) -> SandboxImage:
        """Refuse it, as most sandboxes may."""
        raise SandboxSnapshotNotSupported("fake sandboxes have no snapshots")

    async def restore(self, image: SandboxImage) -> None:
        """Refuse it, as most sandboxes may."""
        raise SandboxSnapshotNotSupported("fake sandboxes have no snapshots")


@dataclass
class FakeComposed(FakeSandbox):
    """Implements `HasServices` too, with fake sandboxes as the services."""

    capabilities: Capabilities = field(default_factory=lambda: Capabilities(services=True))
    services: dict[str, FakeSandbox] = field(default_factory=dict)
    is_main_stopped: bool = False

    def service(self, name: str) -> FakeSandbox:
        """Return the service of that name."""
        if name not in self.services:
            raise UsageError(f"no service {name!r}")
        return self.services[name]

    async def stop_main(self) -> None:
        """Remember it."""
        self.is_main_stopped = True
