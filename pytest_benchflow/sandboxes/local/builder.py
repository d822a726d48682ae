"""Build the environment of a task: one cached layer for each RUN, COPY and ADD."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.errors import BuildError
from pytest_benchflow.sandboxes.base import SandboxSpec

from .context import BuildContext
from .dockerfile import parse
from .environment import Host
from .image import Image, Plan, Run, Step
from .launcher import Launcher
from .layers import LayerStore, layer_name
from .machine import Machine, MachineConfig
from .mirror import ensure_mirror
from .plan import make_plan
from .steps import copy_files, run_command, sources_of

_FORMAT = "1"
#: Mount options must fit one memory page: this many names do.
MAX_LAYERS = 120


@dataclass(frozen=True, slots=True)
class Built:
    """A finished environment."""

    image: Image
    layers: tuple[str, ...]
    """Topmost first."""
    layers_dir: Path
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
        base = await self._base()
        dockerfile = spec.environment_dir / "Dockerfile" if spec.environment_dir else None
        if dockerfile is None or not dockerfile.is_file():
            return Built(Image(), base, self._store.path)
        name = f"{dockerfile.parent.name}/{dockerfile.name}"
        plan = make_plan(parse(dockerfile.read_text(errors="replace"), name))
        if len(plan.steps) > MAX_LAYERS:
            raise BuildError(f"{name}: {len(plan.steps)} RUN, COPY and ADD; at most {MAX_LAYERS} fit, join some")
        job = _Job(self._host, self._launcher, self._store, plan, dockerfile.parent, name, spec)
        try:
            async with asyncio.timeout(spec.build_timeout_sec):
                layers = await job.run(base, self._rebuilt)
        except TimeoutError:
            raise BuildError(
                f"{job.where}: the build took longer than {spec.build_timeout_sec:g} s",
                advice="raise build_timeout_sec",
            ) from None
        return Built(plan.image, layers, self._store.path, plan.notes)

    async def _base(self) -> tuple[str, ...]:
        """Return the layers that every environment of this caller stands on."""
        if self._host.privileged:
            return ()
        name = layer_name(_hash("mirror", _FORMAT, *self._host.identity()))
        await ensure_mirror(self._store, name)
        return (name,)


class _Job:
    """One build."""

    def __init__(
        self,
        host: Host,
        launcher: Launcher,
        store: LayerStore,
        plan: Plan,
        directory: Path,
        name: str,
        spec: SandboxSpec,
    ) -> None:
        self._host = host
        self._launcher = launcher
        self._store = store
        self._plan = plan
        self._context = BuildContext(directory)
        self._name = name
        self._spec = spec
        self.where = name

    async def run(self, layers: tuple[str, ...], rebuilt: set[str]) -> tuple[str, ...]:
        """Put every step's layer on `layers`, making those that are missing; `force_build` makes each once more."""
        key = _hash("base", _FORMAT, *self._host.identity())
        for step in self._plan.steps:
            self.where = f"{self._name}:{step.line}"
            key = await asyncio.to_thread(self._key, key, step)
            layer = layer_name(key)
            forced = self._spec.force_build and layer not in rebuilt
            if forced or not self._store.has(layer):
                async with self._store.locked(layer):
                    if forced or not self._store.has(layer):
                        await self._make(step, layers, layer)
                rebuilt.add(layer)
            layers = (layer, *layers)
        return layers

    def _key(self, parent: str, step: Step) -> str:
        if isinstance(step, Run):
            facts: list[object] = [step.argv, dict(step.args), step.image.user]
        else:
            digests = [self._context.digest(source) for source in sources_of(step, self._context, self.where)]
            facts = [step.sources, step.target, step.owner, step.mode, step.unpack, digests]
        image = step.image
        return _hash(parent, type(step).__name__, facts, dict(image.env), image.workdir, image.dirs)

    async def _make(self, step: Step, layers: Sequence[str], layer: str) -> None:
        async with self._store.building(layer) as directory:
            machine = await Machine.start(
                self._launcher,
                MachineConfig(
                    name=f"{self._spec.name} (build)",
                    privileged=self._host.privileged,
                    layers_dir=str(self._store.path),
                    layers=layers,
                    build_dir=directory,
                    dirs=step.image.dirs,
                    python_prefix=self._host.python_prefix,
                    open_prefix=self._host.lends_python,
                ),
            )
            try:
                if isinstance(step, Run):
                    await run_command(step, machine, self._host, self.where)
                else:
                    await copy_files(step, machine, self._context, self.where)
            finally:
                await asyncio.shield(machine.stop())


def _hash(*facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
