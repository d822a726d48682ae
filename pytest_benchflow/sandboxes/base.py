"""The `Sandbox` protocol: where agent and verifier run. Backends implement it, everything above uses only this."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self, runtime_checkable

from pytest_benchflow.core.network import PUBLIC, Network


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a finished command left: its exit status and both streams, decoded with replacement."""

    return_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Resources a sandbox may use; None means no limit."""

    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    pids: int | None = None
    """Processes at a time; None leaves it to the backend, which should not allow any number."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do, so that a task asking for more is refused before anything starts."""

    no_network: bool = False
    allowlist: bool = False
    """Whether the network can be restricted to hosts, and changed while the sandbox runs: such are `HasNetwork` too."""
    docker_image: bool = False
    compose: bool = False
    services: bool = False
    """Whether the other services of compose tasks can be reached; such sandboxes are `HasServices` too."""
    gpus: bool = False
    windows: bool = False
    users: bool = False
    snapshots: bool = False
    """Whether `snapshot` and `restore` work; otherwise they raise SandboxSnapshotNotSupported."""
    mounts: bool = False
    """Whether host directories can be mounted read-only, `SandboxSpec.mounts`; without it they are uploaded."""
    terminals: bool = False
    """Whether programs can be given a terminal; such sandboxes are `HasTerminals` too."""
    custody: bool = False
    """Whether its programs can be ended, and files compared with the image, by no program inside: `HasCustody` too."""
    remote: bool = False
    """Whether sandboxes run on other machines, so that this one's cores and memory do not bound how many there are."""
    survives_runner: bool = False
    """Whether a sandbox stopped with `delete=False` outlives its runner."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A host directory that the sandbox sees read-only; its content never changes, and `key` names that content."""

    source: Path
    target: str
    key: str


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """The sandbox a rollout asks for, independent of any backend."""

    name: str
    """Names the sandbox in labels and messages, for example the rollout's name."""
    environment_dir: Path | None = None
    """Build context that holds the Dockerfile; None means the bare base."""
    docker_image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Persistent environment of every command, over the image's own."""
    workdir: str | None = None
    """Working directory; None means the image's WORKDIR, or /app where it has none."""
    network: Network = PUBLIC
    later_networks: tuple[Network, ...] = ()
    """What `set_network` will be called with, so that the sandbox is made in a way that allows it."""
    limits: Limits = Limits()
    build_timeout_sec: float = 600.0
    force_build: bool = False
    mounts: tuple[Mount, ...] = ()
    coexists_with: str | None = None
    """Id of a sandbox that lives on until this one is stopped, for backends where the two could want the same thing."""


@dataclass(frozen=True, slots=True)
class SandboxImage:
    """The files of a sandbox at one moment; it lasts as long as the backend that made it."""

    provider: str
    """The name of the backend that made it, which may be one behind another."""
    ref: str
    """What the backend finds it by."""
    meta: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Process(Protocol):
    """A running program inside a sandbox, seen as a byte pipe."""

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input, waiting while the pipe is full."""

    async def close_stdin(self) -> None:
        """Close its standard input; idempotent."""

    async def read(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of its standard output; b"" at the end."""

    async def read_stderr(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of its standard error; b"" at the end."""

    async def wait(self) -> int:
        """Wait for its exit and return the status (128 + signal number if a signal ended it)."""

    async def kill(self) -> None:
        """Kill the whole process tree inside the sandbox; idempotent, returns when it is gone."""


@runtime_checkable
class Service(Protocol):
    """Something that runs commands and keeps files: a sandbox, or a container beside it with an image of its own."""

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
        """Run a command line, with bash in a sandbox and with `sh` beside it.

        On timeout the whole process tree is killed inside and TimeoutError raised.
        """

    async def upload_file(self, source: Path, target: str) -> None:
        """Copy a host file to exactly `target`, keeping its mode; parents are made; owned by root."""

    async def upload_dir(self, source: Path, target: str) -> None:
        """Copy the content of a host directory into `target`; symlinks stay links; owned by root."""

    async def download_file(self, source: str, target: Path) -> None:
        """Copy a file out, of a container beside the sandbox also after its end; FileNotFoundError if there is none."""

    async def download_dir(self, source: str, target: Path) -> None:
        """Copy the content of a directory out, safely: no links that leave it, no special files, no set-uid bits."""


@runtime_checkable
class Sandbox(Service, Protocol):
    """One isolated machine. Users are names, numbers or None for the image's own user; paths are absolute."""

    @property
    def id(self) -> str:
        """Identify the sandbox on its backend; known before anything is uploaded."""

    @property
    def workdir(self) -> str:
        """The working directory of commands that name none; valid once started."""

    @property
    def capabilities(self) -> Capabilities:
        """What this sandbox can do."""

    @property
    def notes(self) -> Sequence[str]:
        """Facts the user should read once, such as a Dockerfile's FROM being the host."""

    async def start(self) -> None:
        """Build what is not cached and bring the sandbox up."""

    async def stop(self, *, delete: bool = True) -> None:
        """End every process and remove the sandbox; idempotent. With `delete=False` it stays for inspection."""

    async def open_process(
        self,
        argv: Sequence[str],
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a program and return its byte pipe."""

    async def snapshot(self, name: str | None = None) -> SandboxImage:
        """Keep all files as an image, without mounts and the spec's environment; programs stand still meanwhile."""

    async def restore(self, image: SandboxImage) -> None:
        """Have the files of an image and no process, started or not: instead of `start`, or to go back in time."""


class HasNetwork(Protocol):
    """What a sandbox can do beyond `Sandbox` if its `capabilities.allowlist` says so."""

    async def set_network(self, network: Network) -> None:
        """Let programs reach what `network` allows from now on; connections that it does not allow are cut."""


class HasServices(Protocol):
    """What a sandbox can do beyond `Sandbox` if its `capabilities.services` says so."""

    def service(self, name: str) -> Service:
        """Return a service other than main; UsageError if there is none of that name."""

    async def stop_main(self) -> None:
        """End the sandbox itself with all that runs in it, but none of its services; `stop` then ends those."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A path whose file is not the image's any more."""

    path: str
    kind: Literal["added", "changed", "deleted"]


class KilledProgram(NamedTuple):
    """A program that was killed."""

    id: str
    """NUMBER:START, as /proc has them."""
    name: str


class HasCustody(Protocol):
    """What a sandbox can do beyond `Sandbox` if its `capabilities.custody` says so, trusting nothing inside."""

    async def end_programs(self, *, keep: Collection[str] = (), uid: int = 0) -> Sequence[KilledProgram]:
        """Kill every program but those of `keep`, each NUMBER:START, and return some; SandboxError if one survives.

        The others are killed whatever they do about it; `uid` is whose they are, if they are not root's.
        """

    async def changes(self) -> Sequence[FileChange]:
        """Return what differs from the image, mounts left out; directories only where they are new or gone."""

    async def restore_files(self, paths: Collection[str]) -> None:
        """Make regular files and links what they are in the image, or remove them if it has none."""


@runtime_checkable
class Terminal(Protocol):
    """A running program inside a sandbox, at a terminal: keys go in, all that it prints comes out."""

    async def write(self, data: bytes) -> None:
        """Type bytes, waiting while the program is slow; BrokenPipeError if it has ended."""

    async def read(self, n: int = 65536) -> bytes:
        """Return up to `n` bytes of what it printed; b"" at the end."""

    async def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size; the program in its foreground hears of it."""

    async def wait(self) -> int:
        """Wait for its exit and return the status (128 + signal number if a signal ended it)."""

    async def kill(self) -> None:
        """Kill the whole process tree inside the sandbox; idempotent, returns when it is gone."""


@runtime_checkable
class HasTerminals(Protocol):
    """What a sandbox can do beyond `Sandbox` if its `capabilities.terminals` says so."""

    async def open_terminal(
        self,
        argv: Sequence[str],
        *,
        rows: int,
        columns: int,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Terminal:
        """Start a program at a terminal of this size, as the leader of its session."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that a run has made in a backend and that outlives the run's process."""

    kind: str
    """What it is, in one or two words: `container`, `half-built layer`."""
    id: str
    """What the backend removes it by."""
    name: str
    owner: str
    """Whose it is, for people."""
    created: float
    """Seconds since 1970; 0 if nobody knows."""
    abandoned: bool
    """Whether nobody needs it any more: its run is gone, and it was not kept on purpose."""
    run: str | None = None
    rollout: str | None = None


class Leftovers(Protocol):
    """One place where a backend leaves things; open while the context lasts."""

    @property
    def title(self) -> str:
        """The heading of its list: the backend's name, and what is in the place if there are several."""

    @property
    def is_cache(self) -> bool:
        """Return whether it holds what later runs could use again, rather than what killed runs left."""

    @property
    def has_runs(self) -> bool:
        """Return whether each leftover names its run, so that those of one run can be chosen."""

    async def __aenter__(self) -> Self:
        """Open the place; SandboxError if it cannot be reached."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""

    async def find(self) -> list[Leftover]:
        """List everything of ours that is there, abandoned or not."""

    async def remove(self, leftovers: Sequence[Leftover]) -> list[Leftover]:
        """Remove these, and return those that are gone."""


@dataclass(frozen=True, slots=True)
class BackendOption:
    """A setting of one backend, which users write as text, for example `docker.network=host`."""

    name: str
    help: str
    """One line: what it sets, and what a value looks like."""
    type: type[str] | type[int] | type[float] = str
    choices: tuple[str, ...] = ()
    """The values it can have; empty for any of its type."""
    default: str | None = None
    """The value where users set none; None leaves it to the backend."""

    def problem(self, value: str) -> str | None:
        """Return what is wrong with a value; None if it can be used."""
        if self.choices and value not in self.choices:
            return f"expected {' or '.join(self.choices)}"
        try:
            self.type(value)
        except ValueError:
            return f"expected a {'whole ' if self.type is int else ''}number"
        return None


class Backend(Protocol):
    """Makes sandboxes of one kind; one instance serves a whole run.

    Making an instance starts nothing and asks nobody: `preflight` does. `SandboxRegistry.create` makes it without
    arguments and hands it the values of its `options` with `configure`; `bf cleanup` asks an instance that was never
    opened for its `leftovers`.
    """

    @property
    def name(self) -> str:
        """The word users choose it by."""

    @property
    def options(self) -> Sequence[BackendOption]:
        """The settings that users can give it."""

    @property
    def capabilities(self) -> Capabilities:
        """What its sandboxes can do."""

    def configure(self, values: Mapping[str, str]) -> None:
        """Take the values of its options by name, checked, defaults included; called before `preflight`, if at all."""

    async def preflight(self) -> None:
        """Raise SandboxError with one clear reason if no sandbox could start here."""

    def create(self, spec: SandboxSpec) -> Sandbox:
        """Return a sandbox that is not started yet."""

    def leftovers(self, *, unused_for_sec: float | None = None) -> Sequence[Leftovers]:
        """Return the places where killed runs may have left something; empty if they cannot.

        With a time also those of its caches, as far as nothing used their content for so long.
        """

    async def aclose(self) -> None:
        """End everything this backend still owns; idempotent."""


@runtime_checkable
class BuildsAhead(Protocol):
    """What a backend can do beyond `Backend` so that builds do not keep places which others could use."""

    async def build(self, spec: SandboxSpec) -> None:
        """Build or pull what sandboxes of this spec stand on, unless it is there; their `start` then need not."""
