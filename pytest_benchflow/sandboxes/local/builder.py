"""Build the environment of a task: one cached layer for each RUN, COPY and ADD."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, replace

from pytest_benchflow.errors import BuildError, SandboxError
from pytest_benchflow.sandboxes.archive import told_as_build_error
from pytest_benchflow.sandboxes.base import SandboxSpec

from .context import BuildContext
from .dockerfile import parse
from .environment import Host
from .image import Copy, Image, Plan, Run, Stage, Step
from .launcher import Launcher
from .layers import LayerStore, layer_name
from .machine import Machine, MachineConfig
from .mirror import ensure_mirror
from .plan import make_plan
from .steps import copy_between, copy_files, run_command, sources_of

_FORMAT = "3"
#: Mount options must fit one memory page: this many names do.
MAX_LAYERS = 120
_CACHE_ADVICE = "if its layer cache is no local disk (NFS, or a container's overlay), set BF_CACHE_DIR to one that is"


@dataclass(frozen=True, slots=True)
class Built:
    """A finished environment."""

    image: Image
    base: MachineConfig
    """The machine to start, but for what the sandbox itself decides."""
    notes: tuple[str, ...] = ()


class Builder:
    """Builds environments for one backend."""

    def __init__(self, host: Host, launcher: Launcher, store: LayerStore) -> None:
        self._host = host
        self._launcher = launcher
        self._store = store
        self._rebuilt: set[str] = set()

    async def build(self, spec: SandboxSpec) -> Built:
        """Return the environment of `spec`, building what is not cached within its time."""
        dockerfile = spec.environment_dir / "Dockerfile" if spec.environment_dir else None
        if dockerfile is None or not dockerfile.is_file():
            return Built(Image(), await self._base(spec.name))
        name = f"{dockerfile.parent.name}/{dockerfile.name}"
        with told_as_build_error(name):
            text = dockerfile.read_text(errors="replace")
        plan = make_plan(parse(text, name), self._host.path)
        if (count := max(map(len, (plan.steps, *(stage.steps for stage in plan.stages))))) > MAX_LAYERS:
            raise BuildError(f"{name}: {count} RUN, COPY and ADD; at most {MAX_LAYERS} fit, join some")
        with told_as_build_error(name):
            context = BuildContext(dockerfile.parent)
        job = _Job(self._launcher, self._store, self._host, plan, context, name)
        try:
            async with asyncio.timeout(spec.build_timeout_sec):
                base = await self._base(spec.name)
                rebuilt = self._rebuilt if spec.force_build else None
                base = await job.run(base, rebuilt)
                return Built(plan.image, base, (*plan.notes, *(self._store.place.notes if base.layers else ())))
        except TimeoutError:
            raise BuildError(
                f"{job.where}: the build took longer than {spec.build_timeout_sec:g} s",
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
            name,
            self._host.privileged,
            python_prefix=self._host.python_prefix,
            open_prefix=self._host.lends_python,
        )
        if self._host.privileged:
            return bare
        mirror = layer_name(_hash("mirror", _FORMAT, *self._host.identity()))
        await ensure_mirror(self._store, mirror)
        return replace(bare, layers_dir=str(self._store.path), mirror=mirror)


class _Job:
    """One build."""

    def __init__(
        self, launcher: Launcher, store: LayerStore, host: Host, plan: Plan, context: BuildContext, name: str
    ) -> None:
        self._launcher = launcher
        self._store = store
        self._host = host
        self._plan = plan
        self._context = context
        self._name = name
        self.where = name
        """The line being built, for messages."""

    async def run(self, base: MachineConfig, rebuilt: set[str] | None) -> MachineConfig:
        """Put every step's layer on `base`, making those that are missing, or not yet `rebuilt` if that is asked."""
        _, finished = await self._stage(self._plan.steps, base, rebuilt)
        return finished

    async def _stage(
        self, steps: tuple[Step, ...], bare: MachineConfig, rebuilt: set[str] | None
    ) -> tuple[str, MachineConfig]:
        """Build one stage and, before the steps that need them, the stages it copies from."""
        key, base = _hash("base", _FORMAT, *self._host.identity()), bare
        for step in steps:
            origin = None
            if isinstance(step, Copy) and step.stage is not None:
                origin = await self._origin(self._plan.stages[step.stage], bare, rebuilt)
            self.where = f"{self._name}:{step.line}"
            base = replace(base, layers_dir=str(self._store.path))
            key = await asyncio.to_thread(self._key, key, step, origin[0] if origin else None)
            layer = layer_name(key)
            if not self._is_ready(layer, rebuilt):
                async with self._store.locked(layer):
                    if not self._is_ready(layer, rebuilt):
                        await self._make(step, base, layer, origin[1] if origin else None)
            if rebuilt is not None:
                rebuilt.add(layer)
            base = replace(base, layers=(layer, *base.layers))
        return key, base

    async def _origin(self, stage: Stage, bare: MachineConfig, rebuilt: set[str] | None) -> tuple[str, MachineConfig]:
        key, base = await self._stage(stage.steps, bare, rebuilt)
        return _hash(key, stage.dirs), replace(base, dirs=stage.dirs)

    def _is_ready(self, layer: str, rebuilt: set[str] | None) -> bool:
        return self._store.has(layer) and (rebuilt is None or layer in rebuilt)

    def _key(self, parent: str, step: Step, origin: str | None) -> str:
        if isinstance(step, Run):
            facts: list[object] = [step.argv, dict(step.args), step.image.user, *([step.script] if step.script else [])]
        else:
            if origin is not None:
                digests = [origin]
            else:
                with told_as_build_error(f"{self.where}: {step.text}"):
                    digests = [self._context.digest(source) for source in sources_of(step, self._context, self.where)]
            facts = [step.sources, step.target, step.owner, step.mode, step.unpack, digests, *step.files]
        image = step.image
        return _hash(parent, type(step).__name__, facts, dict(image.env), image.workdir, image.dirs)

    async def _make(self, step: Step, base: MachineConfig, layer: str, origin: MachineConfig | None) -> None:
        async with self._store.building(layer) as directory:
            # A command before this one may have removed the directory that it is to run in.
            dirs = (*step.image.dirs, step.image.workdir or "/") if isinstance(step, Run) else step.image.dirs
            config = replace(base, write_dir=directory, keeps=True, dirs=dirs)
            try:
                machine = await Machine.start(self._launcher, config)
            except SandboxError as error:
                raise BuildError(f"{self.where}: {error.message}", advice=_CACHE_ADVICE) from None
            try:
                if isinstance(step, Run):
                    await run_command(step, machine, self._host, self.where)
                elif origin is not None:
                    await self._copy_between(step, origin, machine)
                else:
                    await copy_files(step, machine, self._context, self.where)
            finally:
                await asyncio.shield(machine.stop())

    async def _copy_between(self, step: Copy, origin: MachineConfig, machine: Machine) -> None:
        source = await Machine.start(self._launcher, origin)
        try:
            await copy_between(step, source, machine, self.where)
        finally:
            await asyncio.shield(source.stop())


def _hash(*facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
