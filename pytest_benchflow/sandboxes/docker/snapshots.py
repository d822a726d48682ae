"""Images of running containers: made by the engine, gone with the run, or found by their labels after it."""

from __future__ import annotations

import contextlib
import re
import secrets

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes.base import SandboxImage, SandboxSpec

from .container import Container
from .engine import Engine, EngineError
from .plan import ImageFacts

PROVIDER = "docker"
_REPOSITORY = "pytest-benchflow-snapshot"


class Snapshots:
    """Makes and removes the snapshots of one backend."""

    def __init__(self, engine: Engine, run: str) -> None:
        self._engine = engine
        self._run = run
        self._made: list[str] = []

    async def take(self, container: Container, spec: SandboxSpec, image: ImageFacts, name: str | None) -> SandboxImage:
        """Make an image of a container, which stands still meanwhile."""
        word = re.sub("[^a-zA-Z0-9_.-]+", "-", name or spec.name)[:48].strip("-.") or "snapshot"
        tag = f"{word}-{self._run}-{secrets.token_hex(4)}"
        reference = f"{_REPOSITORY}:{tag}"
        self._made.append(reference)
        try:
            await self._engine.finish(lambda client: client.commit(container.id, repository=_REPOSITORY, tag=tag))
        except EngineError as error:
            raise SandboxError(f"sandbox {spec.name}: no snapshot could be made: {error.reason}") from None
        return SandboxImage(PROVIDER, reference, {"user": image.user, "workdir": image.workdir})

    async def find(self, image: SandboxImage, spec: SandboxSpec) -> ImageFacts:
        """Return a snapshot as the image of a sandbox."""
        if image.provider != PROVIDER:
            raise SandboxError(
                f"sandbox {spec.name} is a container and cannot restore an image of {image.provider}", retryable=False
            )
        await self._check(image.ref)
        user, workdir = (image.meta.get(key, "") for key in ("user", "workdir"))
        return ImageFacts(image.ref, user=user, workdir=workdir, is_snapshot=True)

    async def aclose(self) -> None:
        """Remove what this backend made; what is still in use is found by its labels later."""
        for reference in self._made:
            with contextlib.suppress(SandboxError):
                await self._engine.call(lambda client, name=reference: client.remove_image(name))  # type: ignore[misc]
        self._made.clear()

    async def _check(self, reference: str) -> None:
        try:
            await self._engine.call(lambda client: client.inspect_image(reference))  # type: ignore[no-untyped-call]
        except EngineError as error:
            if error.status == 404:
                raise SandboxError(f"image {reference} is gone", retryable=False) from None
            raise
