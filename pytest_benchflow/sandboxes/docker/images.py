"""Find or make the image of a sandbox: named by its content, built once on this machine, pulled once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_benchflow.compose_file import compose_file
from pytest_benchflow.errors import BuildError, SandboxError
from pytest_benchflow.sandboxes.archive import told_as_build_error
from pytest_benchflow.sandboxes.base import SandboxSpec

from .build import Build
from .context import BuildContext
from .engine import Engine, EngineError
from .locks import locked
from .plan import ImageFacts

REPOSITORY = "pytest-benchflow"
IMAGE_LABEL = "benchflow.image"
#: For sandboxes that ask for nothing in particular.
BASE_IMAGE = "debian:bookworm-slim"
_DIGEST_LENGTH = 24
_PULL_ATTEMPTS = 3
_PODMAN_PREFIX = re.compile(r"^(localhost|[^/]+\.[^/]+/library)/")


class Images:
    """Knows the images of one engine; each is looked at once per process."""

    def __init__(
        self, engine: Engine, *, builds: int | None = None, network: str | None = None, is_podman: bool = False
    ) -> None:
        self._engine = engine
        self._slots = [f"build-slot-{n}" for n in range(builds or max(2, os.cpu_count() or 2))]
        self.network = network
        self._is_podman = is_podman
        self._locks: dict[str, asyncio.Lock] = {}
        self._known: dict[str, ImageFacts] = {}
        self._failed: dict[str, BuildError] = {}
        self._digests: dict[object, tuple[int, str]] = {}
        self._rebuilt: set[str] = set()

    async def find(self, spec: SandboxSpec) -> ImageFacts:
        """Return the image of a sandbox, built or pulled if it is not there."""
        directory = spec.environment_dir
        has_dockerfile = directory is not None and (directory / "Dockerfile").is_file()
        if spec.docker_image is not None and not (spec.force_build and has_dockerfile):
            image = await self.pulled(spec.docker_image, spec.build_timeout_sec)
            alone = directory is not None and not has_dockerfile and compose_file(directory) is None
            return replace(image, is_task_files_only=alone)
        if directory is not None and has_dockerfile:
            return await self._built(directory, spec)
        return await self.pulled(BASE_IMAGE, spec.build_timeout_sec)

    def forget(self, image: ImageFacts) -> None:
        """Look at an image again: it was removed while this process knew it."""
        self._known.pop(image.reference, None)

    async def tag_for(self, context: BuildContext, facts: Mapping[str, str]) -> str:
        """Return the name of the image that a context and what else it depends on lead to."""
        digest = await self._engine.thread(lambda: self._digest(context, facts))
        return f"{REPOSITORY}:{digest[:_DIGEST_LENGTH]}"

    async def ensure(
        self, tag: str, make: Callable[[], Awaitable[None]], *, base: str | None = None, force: bool = False
    ) -> ImageFacts:
        """Make an image unless it is there and stands on today's base; only one process on this host does so."""
        async with self._locks.setdefault(tag, asyncio.Lock()):
            forced = force and tag not in self._rebuilt
            if tag in self._known and not forced:
                return self._known[tag]
            if tag in self._failed:
                raise self._failed[tag]
            async with locked(tag):
                if forced or not await self._is_current(tag, base):
                    await self._make(tag, make)
            if forced:
                self._rebuilt.add(tag)
            return await self.look(tag)

    async def _make(self, tag: str, make: Callable[[], Awaitable[None]]) -> None:
        before = await self._inspect(tag)
        async with locked(*self._slots):
            try:
                await make()
            except BuildError as error:
                # The other rollouts of this task would only wait for the same.
                self._failed[tag] = error
                raise
        if before is not None:
            await self._remove_replaced(tag, str(before["Id"]))

    async def _remove_replaced(self, tag: str, old: str) -> None:
        """Remove the image that had a name before, unless it is the same one or still in use."""
        now = await self._inspect(tag)
        if now is not None and now["Id"] != old:
            with contextlib.suppress(EngineError):
                await self._engine.call(lambda client: client.remove_image(old))

    async def _built(self, directory: Path, spec: SandboxSpec) -> ImageFacts:
        with told_as_build_error(f"{directory.name}/Dockerfile"):
            context = BuildContext(directory)
            tag = await self.tag_for(context, {})
        build = Build(
            self._engine,
            context,
            tag=tag,
            labels={IMAGE_LABEL: tag},
            network=self.network,
            is_podman=self._is_podman,
        )
        return await self.ensure(
            tag,
            lambda: build.run(timeout_sec=spec.build_timeout_sec, fresh=spec.force_build),
            base=context.base,
            force=spec.force_build,
        )

    def _digest(self, context: BuildContext, facts: Mapping[str, str]) -> str:
        """Return the context's digest; files that have not changed are not read again."""
        key, signature = (context.directory, tuple(sorted(facts.items()))), context.signature()
        known = self._digests.get(key)
        if known is None or known[0] != signature:
            known = self._digests[key] = (signature, context.digest(facts))
        return known[1]

    async def _is_current(self, tag: str, base: str | None) -> bool:
        """Say whether the image is there and stands on the base image of today."""
        image = await self._inspect(tag)
        found = await self._inspect(base) if image is not None and base else None
        if image is None or found is None:
            return image is not None
        below: list[str] = found["RootFS"].get("Layers") or []
        return (image["RootFS"].get("Layers") or [])[: len(below)] == below

    async def pulled(self, reference: str, timeout_sec: float) -> ImageFacts:
        """Return an image that somebody else made, pulled if it is not there."""
        async with self._locks.setdefault(reference, asyncio.Lock()):
            if reference in self._known:
                return self._known[reference]
            if await self._inspect(reference) is None:
                async with locked(f"pull-{reference}"):
                    if await self._inspect(reference) is None:
                        await self._pull(reference, timeout_sec)
            return await self.look(reference)

    async def _pull(self, reference: str, timeout_sec: float) -> None:
        from docker.utils import parse_repository_tag

        repository, tag = parse_repository_tag(reference)
        try:
            async with asyncio.timeout(timeout_sec):
                for attempt in range(1, _PULL_ATTEMPTS + 1):
                    try:
                        said = await self._engine.call(lambda client: client.pull(repository, tag=tag or "latest"))
                        _check_pull(said)
                    except SandboxError as error:
                        hopeless = isinstance(error, EngineError) and error.status in (400, 401, 403, 404)
                        if hopeless or attempt == _PULL_ATTEMPTS:
                            reason = error.reason if isinstance(error, EngineError) else str(error)
                            raise BuildError(f"image {reference} cannot be pulled: {reason}") from None
                        await asyncio.sleep(attempt * 2)
                    else:
                        return
        except TimeoutError:
            raise BuildError(
                f"image {reference} was not pulled within {timeout_sec:g} s", advice="raise build_timeout_sec"
            ) from None

    async def look(self, reference: str) -> ImageFacts:
        """Return what an image that is there says about itself."""
        facts = await self._inspect(reference)
        if facts is None:
            raise BuildError(f"image {reference} is not there after it was built or pulled")
        config = facts.get("Config") or {}
        image = ImageFacts(reference, user=config.get("User") or "", workdir=config.get("WorkingDir") or "")
        self._known[reference] = image
        return image

    async def _inspect(self, reference: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self._engine.call(lambda client: client.inspect_image(reference))  # type: ignore[no-untyped-call]
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return found


def _check_pull(said: str) -> None:
    """Raise EngineError if an answer that began well ended with an error."""
    for line in said.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if reason := message.get("error"):
            raise EngineError(200, str(reason).strip())


def short_name(reference: str) -> str:
    """Return an image's name as Docker has it: Podman lists it with a registry."""
    return _PODMAN_PREFIX.sub("", reference)
