"""Build the environment of a task: one cached layer for each RUN, COPY and ADD, made inside a machine."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pytest_benchflow.core.activity import activity
from pytest_benchflow.core.errors import BuildError, SandboxError
from pytest_benchflow.core.text import without_progress
from pytest_benchflow.sandboxes import archive
from pytest_benchflow.sandboxes.archive import as_build_error
from pytest_benchflow.sandboxes.base import SandboxSpec
from pytest_benchflow.sandboxes.build_context import BuildContext, ContextError, Source, is_pattern, matches
from pytest_benchflow.sandboxes.dockerfile import parse
from pytest_benchflow.sandboxes.local.control import Launcher
from pytest_benchflow.sandboxes.local.host import Host
from pytest_benchflow.sandboxes.local.interpreter import (
    BuildPlan,
    BuildStage,
    BuildStep,
    CopyStep,
    ImageConfig,
    RunStep,
    ToolStep,
    make_plan,
)
from pytest_benchflow.sandboxes.local.layers import LayerStore, ensure_mirror, layer_name
from pytest_benchflow.sandboxes.local.machine import Command, Machine, MachineConfig, Target
from pytest_benchflow.sandboxes.local.standins import find_stand_in, host_title

_TAIL_LINES = 30
_NO_PACKAGE = re.compile("Unable to locate package|has no installation candidate|Couldn't find any package")
_LIST = 'shopt -s nullglob dotglob; files=("$1"/*); ((${#files[@]})) && printf "%s\\0" "${files[@]}"'


async def run_command(step: RunStep, machine: Machine, host: Host, where: str) -> None:
    """Run the command of a RUN; BuildError shows the end of what it printed."""
    image = step.image
    command = Command(
        step.argv,
        cwd=image.workdir or "/",
        user=image.user if host.privileged else None,
        env={**host.variables(), **step.args, **image.env},
        merge=True,
    )
    with _step_errors(f"RUN {step.text}", where):
        result = await machine.run(command, stdin=(step.script or "").encode(errors="surrogateescape"))
    if result.return_code != 0:
        tail = without_progress(result.stdout)[-_TAIL_LINES:]
        first = f"{where}: RUN {step.text}: exit status {result.return_code}"
        raise BuildError("\n    ".join([first, *tail]), advice=_advice(tail))


def _advice(output: Sequence[str]) -> str | None:
    """Return what to do where the image's distribution may have what the host's does not."""
    if any(line.startswith("E: ") and _NO_PACKAGE.search(line) for line in output):
        return f"this host is {host_title()}, and the image's distribution may have it; use --bf-sandbox docker"
    return None


async def copy_files(step: CopyStep, machine: Machine, context: BuildContext, where: str) -> None:
    """Copy the files of a COPY or ADD as Docker would place them."""
    sources = sources_of(step, context, where)
    path = step.target.rstrip("/") or "/"
    tree = Target(path, step.owner, step.mode)
    file = Target(path, step.owner, step.mode, is_file=not step.target.endswith("/"))
    with _step_errors(step.text, where):
        for source in sources:
            if source.path.is_dir():
                await machine.push(_pack_directory(source, context), tree)
            elif step.unpack and _is_archive(source.path):
                await machine.push(_send_archive(source), Target(path, step.owner, keep_owners=True))
            else:
                await machine.push(_pack_file(source), file)
        for name, content in step.files:
            await machine.push(_pack_content(name, content.encode(errors="surrogateescape")), file)


async def copy_between(step: CopyStep, source: Machine, target: Machine, where: str) -> None:
    """Copy what a COPY --from names out of the machine of another stage."""
    names = [name for word in step.sources for name in await _matching_paths(source, word)]
    if not names:
        raise BuildError(f"{where}: {step.text}: matches nothing in the stage it is copied from")
    into_directory = step.target.endswith("/")
    _check_target(step, len(names), where)
    path = step.target.rstrip("/") or "/"
    for name in names:
        with tempfile.TemporaryFile() as file:
            is_directory = await _pull_into(source, name, file, where)
            file.seek(0)
            is_file = not (is_directory or into_directory)
            place = Target(path, step.owner, step.mode, is_file, keep_owners=step.owner is None)
            with _step_errors(step.text, where):
                await target.push(lambda stream, file=file: shutil.copyfileobj(file, stream), place)  # type: ignore[misc]


@contextlib.contextmanager
def _step_errors(step: str, where: str) -> Iterator[None]:
    """Name the line and the step in what a failure says."""
    try:
        with archive.as_build_error(f"{where}: {step}"):
            yield
    except SandboxError as error:
        raise BuildError(f"{where}: {step}: {error.message}", retryable=error.retryable) from None


async def _matching_paths(machine: Machine, pattern: str) -> list[str]:
    """List the paths of a machine that match a pattern; a plain path matches itself."""
    paths = [""]
    for part in PurePosixPath(pattern).parts[1:] if is_pattern(pattern) else ():
        paths = [
            f"{parent}/{name}" for parent in paths for name in await _list_names(machine, parent) if matches(name, part)
        ]
    return sorted(paths) if is_pattern(pattern) else [pattern]


async def _list_names(machine: Machine, directory: str) -> list[str]:
    listing = await machine.run(Command(("bash", "-c", _LIST, "bash", directory)))
    return [path.rpartition("/")[2] for path in listing.stdout.split("\0")[:-1]]


async def _pull_into(source: Machine, name: str, file: BinaryIO, where: str) -> bool:
    """Write the tar stream of a file or directory as it is; return whether it is a directory."""
    for directory in (False, True):
        try:
            await source.pull(lambda stream: shutil.copyfileobj(stream, file), name, directory=directory)
        except FileNotFoundError:
            file.seek(0)
            file.truncate()
        else:
            return directory
    raise BuildError(f"{where}: COPY {name}: not found in the stage it is copied from")


def sources_of(step: CopyStep, context: BuildContext, where: str) -> list[Source]:
    """Find what a COPY or ADD names; a pattern may match nothing as long as another source exists."""
    keyword = step.text.split(maxsplit=1)[0]
    try:
        sources = [source for word in step.sources for source in context.find(word)]
    except ContextError as error:
        raise BuildError(f"{where}: {keyword} {error}") from None
    if not sources and not step.files:
        raise BuildError(f"{where}: {keyword} {' '.join(step.sources)}: matches nothing in the build context")
    _check_target(step, len(sources) + len(step.files), where)
    return sources


def _check_target(step: CopyStep, count: int, where: str) -> None:
    if count > 1 and not step.target.endswith("/"):
        keyword = step.text.split(maxsplit=1)[0]
        raise BuildError(f"{where}: {keyword} of several files needs a directory; write {step.target}/ as its target")


def _is_archive(path: Path) -> bool:
    """Return whether a file is an archive with anything in it."""
    try:
        with tarfile.open(path) as tar:
            return tar.next() is not None
    except tarfile.TarError:
        return False


def _pack_directory(source: Source, context: BuildContext) -> Callable[[BinaryIO], None]:
    return lambda stream: archive.pack_dir(source.path, stream, keep=lambda name: context.keeps(source, name))


def _pack_file(source: Source) -> Callable[[BinaryIO], None]:
    return lambda stream: archive.pack_file(source.path, source.file_name, stream)


def _pack_content(name: str, content: bytes) -> Callable[[BinaryIO], None]:
    def pack(stream: BinaryIO) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(content), 0o644, int(time.time())
        with tarfile.open(fileobj=stream, mode="w|") as tar:
            tar.addfile(info, io.BytesIO(content))

    return pack


def _send_archive(source: Source) -> Callable[[BinaryIO], None]:
    """Send an archive as it is: it is unpacked, and if need be uncompressed, inside."""

    def send(stream: BinaryIO) -> None:
        with open(source.path, "rb") as file:
            shutil.copyfileobj(file, stream)

    return send


_FORMAT = "4"
#: Mount options must fit one memory page: this many names do.
MAX_LAYERS = 120
_CACHE_ADVICE = (
    "if its layer cache is not on a local disk (NFS, or a container's overlay), set BF_CACHE_DIR to one that is"
)


@dataclass(frozen=True, slots=True)
class BuiltEnvironment:
    """A finished environment."""

    image: ImageConfig
    base: MachineConfig
    """The machine to start, but for what the sandbox itself decides."""
    notes: tuple[str, ...] = ()
    """What is to be said of the layers; the plan has notes of its own."""


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """What the Dockerfile of an environment comes to on this host."""

    name: str
    """How messages call the Dockerfile."""
    context: BuildContext
    plan: BuildPlan


def plan_environment(directory: Path | None, host: Host) -> EnvironmentPlan | None:
    """Read the Dockerfile of an environment and start nothing; None if it has none.

    UnsupportedError for what this host cannot stand in for, BuildError for what no build could read.
    """
    dockerfile = directory / "Dockerfile" if directory else None
    if dockerfile is None or not dockerfile.is_file():
        return None
    name = f"{dockerfile.parent.name}/{dockerfile.name}"
    with as_build_error(name):
        context = BuildContext(dockerfile.parent)
        text = context.dockerfile
    plan = make_plan(parse(text, name), host.path, lambda image: find_stand_in(image, host.environ))
    if (count := max(map(len, (plan.steps, *(stage.steps for stage in plan.stages))))) > MAX_LAYERS:
        raise BuildError(
            f"{name}: {count} RUN, COPY and ADD instructions, and at most {MAX_LAYERS} are supported; join some"
        )
    with as_build_error(name):
        _check_sources(plan, plan.steps, context, name)
    return EnvironmentPlan(name, context, plan)


def _check_sources(plan: BuildPlan, steps: Iterable[BuildStep], context: BuildContext, name: str) -> None:
    """Refuse a COPY or ADD of what is not there, in these steps and the stages that they copy from."""
    for step in steps:
        if isinstance(step, CopyStep) and step.stage is not None:
            _check_sources(plan, plan.stages[step.stage].steps, context, name)
        elif isinstance(step, CopyStep):
            sources_of(step, context, f"{name}:{step.line}")


class Builder:
    """Builds environments for one backend."""

    def __init__(self, host: Host, launcher: Launcher, store: LayerStore) -> None:
        self._host = host
        self._launcher = launcher
        self._store = store
        self._rebuilt: set[str] = set()
        self._failed: dict[str, BuildError] = {}

    async def build(self, spec: SandboxSpec, plan: EnvironmentPlan | None) -> BuiltEnvironment:
        """Return the environment of `spec`, building what is not cached within its time."""
        if plan is None:
            return BuiltEnvironment(ImageConfig(), await self._base(spec.name))
        build = _Build(self._launcher, self._store, self._host, plan, self._failed)
        try:
            async with asyncio.timeout(spec.build_timeout_sec):
                base = await self._base(spec.name)
                rebuilt = self._rebuilt if spec.force_build else None
                base = await build.run(base, rebuilt)
                return BuiltEnvironment(plan.plan.image, base, self._store.place.notes if base.layers else ())
        except TimeoutError:
            raise BuildError(
                f"{build.where}: the build took longer than {spec.build_timeout_sec:g} s",
                advice="raise build_timeout_sec",
            ) from None

    async def write_dir(self) -> str | None:
        """Name the directory of the cache for all that a new sandbox writes; None where memory can hold it better."""
        if self._host.writes_to_memory or not self._store.place.holds_writes:
            return None
        return await self._store.reserve()

    async def _base(self, name: str) -> MachineConfig:
        """Return the machine that every environment of this caller stands on."""
        bare = MachineConfig(
            name, self._host.privileged, python_prefix=self._host.python_prefix, open_prefix=self._host.lends_python
        )
        if self._host.privileged:
            return bare
        mirror = layer_name(_hash("mirror", _FORMAT, *self._host.identity()))
        await ensure_mirror(self._store, mirror)
        return replace(bare, layers_dir=str(self._store.path), mirror=mirror)


class _Build:
    """One build."""

    def __init__(
        self,
        launcher: Launcher,
        store: LayerStore,
        host: Host,
        environment: EnvironmentPlan,
        failed: dict[str, BuildError],
    ) -> None:
        self._failed = failed
        """What came of layers that cannot be made: the other rollouts of a task would only wait for the same."""
        self._launcher = launcher
        self._store = store
        self._host = host
        self._plan = environment.plan
        self._context = environment.context
        self._name = environment.name
        self.where = environment.name
        """The line being built, for messages."""

    async def run(self, base: MachineConfig, rebuilt: set[str] | None) -> MachineConfig:
        """Put every step's layer on `base`, making those that are missing, or not yet `rebuilt` if that is asked."""
        _, finished = await self._stage(self._plan.steps, base, rebuilt)
        return finished

    async def _stage(
        self, steps: tuple[BuildStep, ...], bare: MachineConfig, rebuilt: set[str] | None
    ) -> tuple[str, MachineConfig]:
        """Build one stage and, before the steps that need them, the stages it copies from."""
        key, base = _hash("base", _FORMAT, *self._host.identity()), bare
        for step in steps:
            origin = None
            if isinstance(step, CopyStep) and step.stage is not None:
                origin = await self._origin(self._plan.stages[step.stage], bare, rebuilt)
            self.where = f"{self._name}:{step.line}"
            base = replace(base, layers_dir=str(self._store.path))
            key = await asyncio.to_thread(self._key, key, step, origin[0] if origin else None)
            layer = layer_name(key)
            if not self._is_ready(layer, rebuilt):
                async with self._store.locked(layer):
                    if layer in self._failed:
                        raise self._failed[layer]
                    if not self._is_ready(layer, rebuilt):
                        with activity(f"building {self.where}"):
                            await self._try_making(step, base, layer, origin[1] if origin else None)
            if rebuilt is not None:
                rebuilt.add(layer)
            base = replace(base, layers=(layer, *base.layers))
        return key, base

    async def _origin(
        self, stage: BuildStage, bare: MachineConfig, rebuilt: set[str] | None
    ) -> tuple[str, MachineConfig]:
        key, base = await self._stage(stage.steps, bare, rebuilt)
        return _hash(key, stage.dirs), replace(base, dirs=stage.dirs)

    def _is_ready(self, layer: str, rebuilt: set[str] | None) -> bool:
        return self._store.has(layer) and (rebuilt is None or layer in rebuilt)

    def _key(self, parent: str, step: BuildStep, origin: str | None) -> str:
        if isinstance(step, ToolStep):
            from pytest_benchflow.sandboxes.local.tool_layer import files_key

            return _hash(parent, "Tool", files_key(step.files))
        kind = "Run" if isinstance(step, RunStep) else "Copy"
        if isinstance(step, RunStep):
            facts: list[object] = [step.argv, dict(step.args), step.image.user, *([step.script] if step.script else [])]
        else:
            if origin is not None:
                digests = [origin]
            else:
                with as_build_error(f"{self.where}: {step.text}"):
                    digests = [
                        self._context.digest_of(source) for source in sources_of(step, self._context, self.where)
                    ]
            facts = [step.sources, step.target, step.owner, step.mode, step.unpack, digests, *step.files]
        image = step.image
        return _hash(parent, kind, facts, dict(image.env), image.workdir, image.dirs)

    async def _try_making(self, step: BuildStep, base: MachineConfig, layer: str, origin: MachineConfig | None) -> None:
        try:
            await self._make(step, base, layer, origin)
        except BuildError as error:
            if not error.retryable:
                self._failed[layer] = error
            raise

    async def _make(self, step: BuildStep, base: MachineConfig, layer: str, origin: MachineConfig | None) -> None:
        async with self._store.building(layer) as directory:
            if isinstance(step, ToolStep):
                await self._put_tool(step, directory)
                return
            # A command before this one may have removed the directory that it is to run in.
            dirs = (*step.image.dirs, step.image.workdir or "/") if isinstance(step, RunStep) else step.image.dirs
            config = replace(base, write_dir=directory, is_layer=True, dirs=dirs)
            try:
                machine = await Machine.start(self._launcher, config)
            except SandboxError as error:
                raise BuildError(f"{self.where}: {error.message}", advice=_CACHE_ADVICE) from None
            try:
                if isinstance(step, RunStep):
                    await run_command(step, machine, self._host, self.where)
                elif origin is not None:
                    await self._copy_between(step, origin, machine)
                else:
                    await copy_files(step, machine, self._context, self.where)
            finally:
                await asyncio.shield(machine.stop())

    async def _put_tool(self, step: ToolStep, directory: str) -> None:
        from pytest_benchflow.sandboxes.local.tool_layer import write_layer

        try:
            await asyncio.to_thread(write_layer, step.files, self._store.path / directory)
        except (OSError, ValueError) as error:
            raise BuildError(f"{self.where}: {step.text}: {error}") from None

    async def _copy_between(self, step: CopyStep, origin: MachineConfig, machine: Machine) -> None:
        source = await Machine.start(self._launcher, origin)
        try:
            await copy_between(step, source, machine, self.where)
        finally:
            await asyncio.shield(source.stop())


def _hash(*facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
