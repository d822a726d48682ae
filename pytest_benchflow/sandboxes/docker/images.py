"""Find, build or pull the image of a sandbox: named by its content, made once per machine, errors with their line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from pytest_benchflow.core.activity import activity
from pytest_benchflow.core.errors import BuildError, SandboxError
from pytest_benchflow.core.files import compose_file
from pytest_benchflow.core.text import without_progress
from pytest_benchflow.sandboxes.archive import as_build_error
from pytest_benchflow.sandboxes.base import SandboxSpec
from pytest_benchflow.sandboxes.build_context import BuildContext
from pytest_benchflow.sandboxes.docker.client import DockerEngine, EngineError
from pytest_benchflow.sandboxes.docker.connection import open_connection
from pytest_benchflow.sandboxes.docker.container_spec import ImageFacts, locked
from pytest_benchflow.sandboxes.dockerfile import base_image, buildkit_line, line_of_step, needs_platform
from pytest_benchflow.sandboxes.startup import DEFAULT_SHELL, ImageHealthcheck, healthcheck_of

_TAIL_LINES = 30
_STEP = re.compile(r"Step (\d+)/\d+ : (.*)")
#: Podman counts within each stage, and names the stage where there are several.
_PODMAN_STEP = re.compile(r"(?:\[(\d+)/\d+\] )?STEP (\d+)/\d+: (.*)")
_STATUS = re.compile(r"(?:returned a non-zero code:|while running runtime: exit status) (\d+)$")
_BUILDKIT_LINE = re.compile(r"^Dockerfile:(\d+)$|dockerfile parse error (?:on )?line (\d+)")
BUILDKIT_CHATTER = re.compile(r"#\d+ (sha256:|DONE |CACHED$|\[(?:\S+ )?internal\]|copy /context|transferring )")
_BUILDKIT_AROUND = re.compile(r"^(ERROR: )?(failed to solve[^:]*: )?(failed to create LLB definition: )?")
_PARSE_LINE = re.compile(r"^dockerfile parse error (?:on )?line (\d+): ", re.IGNORECASE)
_NOISE = re.compile(r"\x1b\[[0-9;]*m")
_CHATTER = (" --->", "--> ", "Removing intermediate container", "Removed intermediate container")
#: What Podman puts around a reason: the step once more, and how its parser sees it.
_PODMAN_AROUND = re.compile(
    r'^building at STEP ".*?": (?:Build error: )?|&imagebuilder\.Step\{.*|\(UNHANDLED LOGLEVEL\).*'
)
_PODMAN_NOISE = "(UNHANDLED LOGLEVEL)"


class BuildLog:
    """Knows the line of the Dockerfile that a build is at and the end of what it printed there."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._line = 1
        self._step = ""

    def read(self, line: bytes) -> str | None:
        """Take a line of the engine's answer and return why the build failed, if that is what it says."""
        message: Mapping[str, object] = json.loads(line) if line.strip() else {}
        for text in str(message.get("stream", "")).splitlines():
            self._read_text(_NOISE.sub("", text))
        error = str(message.get("error") or "").strip()
        if match := _STATUS.search(error):
            return f"exit status {match[1]}"
        return self._without_line(_PODMAN_AROUND.sub("", error).strip()) if error else None

    def read_plain(self, line: str) -> None:
        """Take a line that BuildKit prints."""
        if match := _BUILDKIT_LINE.search(line):
            self._line = int(match[1] or match[2])
        if line.strip() and not BUILDKIT_CHATTER.match(line):
            self._tail.extend(without_progress(line))

    def buildkit_error(self) -> str | None:
        """Return the last reason that BuildKit gave, and take it out of the output."""
        for line in reversed(self._tail):
            if line.startswith(("ERROR: ", "failed to ")):
                self._tail.remove(line)
                return _BUILDKIT_AROUND.sub("", line)
        return None

    def explain(self, reason: str) -> str:
        """Return where the build failed, why, and the end of its output."""
        reason = self._without_line(reason)
        if self._step.upper().startswith("FROM ") and "took longer" not in reason:
            reason = f"the image cannot be pulled: {reason}"
        where = f"{self._context.name}:{self._line}"
        first = f"{where}: {self._step}: {reason}" if self._step else f"{where}: {reason}"
        return "\n    ".join([first, *self._tail])

    def _read_text(self, text: str) -> None:
        if match := _STEP.match(text):
            self._at(line_of_step(self._context.dockerfile, int(match[1])), match[2])
        elif match := _PODMAN_STEP.match(text):
            self._at(line_of_step(self._context.dockerfile, int(match[2]), stage=int(match[1] or 1)), match[3])
        elif text.strip() and not text.startswith(_CHATTER) and _PODMAN_NOISE not in text:
            self._tail.extend(without_progress(text))

    def _at(self, line: int, step: str) -> None:
        self._line, self._step = line, step
        self._tail.clear()

    def _without_line(self, reason: str) -> str:
        """Take the line out of a parser's complaint, which comes before any step."""
        if match := _PARSE_LINE.match(reason):
            self._line = int(match[1])
        return _PARSE_LINE.sub("", reason)


_NO_BUILDX = "buildx component is missing"


class Build:
    """One build of a context."""

    def __init__(
        self,
        engine: DockerEngine,
        context: BuildContext,
        *,
        tag: str,
        labels: Mapping[str, str],
        network: str | None,
        is_podman: bool = False,
    ) -> None:
        self._engine = engine
        self._context = context
        self._tag = tag
        self._labels = labels
        self._network = network
        # Podman's own builder reads what in Docker only BuildKit does, and Podman has no BuildKit.
        self._by_command = buildkit_line(context.dockerfile) is not None and not is_podman
        self._log = BuildLog(context)

    async def run(self, *, timeout_sec: float, fresh: bool = False) -> None:
        """Build within the time given; `fresh` uses no cached layer. Cancelled, the engine stops building."""
        # A file without a name goes with the process, however that ends.
        with tempfile.TemporaryFile() as packed:
            try:
                async with asyncio.timeout(timeout_sec):
                    await self._engine.thread(lambda: self._context.pack(packed))
                    packed.seek(0)
                    with activity(f"building the image {short_name(self._tag)}"):
                        await (self._with_buildkit if self._by_command else self._with_engine)(packed, fresh)
            except TimeoutError:
                raise self._build_error(
                    f"the build took longer than {timeout_sec:g} s; raise build_timeout_sec"
                ) from None

    async def _with_engine(self, packed: BinaryIO, fresh: bool) -> None:
        query = {"t": self._tag, "rm": "1", "forcerm": "1", "labels": json.dumps(dict(self._labels))}
        query |= {"nocache": "1"} if fresh else {}
        query |= {"networkmode": self._network} if self._network else {}
        query |= {"buildargs": json.dumps(await self._platform())} if needs_platform(self._context.dockerfile) else {}
        try:
            connection = await open_connection(
                self._engine.address, f"/v{await self._engine.version()}/build", query=query, file=packed, upgrade=False
            )
        except EngineError as error:
            raise self._build_error(error.reason) from None
        with contextlib.closing(connection):
            async for line in connection.lines():
                if reason := self._log.read(line):
                    raise self._build_error(reason)

    async def _platform(self) -> dict[str, str]:
        """Return the arguments that BuildKit would give to every build."""
        version = await self._engine.call(lambda client: client.version())
        facts = {"PLATFORM": f"{version['Os']}/{version['Arch']}", "OS": version["Os"], "ARCH": version["Arch"]}
        return {f"{side}{name}": value for side in ("BUILD", "TARGET") for name, value in facts.items()}

    async def _with_buildkit(self, packed: BinaryIO, fresh: bool) -> None:
        argv = ["docker", "build", "--progress=plain", "-t", self._tag]
        argv += [word for name, value in self._labels.items() for word in ("--label", f"{name}={value}")]
        argv += ["--no-cache"] if fresh else []
        argv += ["--network", self._network] if self._network else []
        env = {**self._engine.address.environment(), "DOCKER_BUILDKIT": "1"}
        try:
            program = await asyncio.create_subprocess_exec(
                *argv,
                "-",
                stdin=packed,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise self._no_buildkit_error("there is no docker command here") from None
        try:
            assert program.stdout is not None
            async for line in program.stdout:
                self._log.read_plain(line.decode(errors="replace").rstrip())
            code = await program.wait()
        finally:
            if program.returncode is None:
                os.killpg(program.pid, signal.SIGKILL)
                await asyncio.shield(program.wait())
        if code != 0:
            reason = self._log.buildkit_error() or f"docker build ended with status {code}"
            if _NO_BUILDX in reason:
                raise self._no_buildkit_error("the docker command has no buildx")
            raise self._build_error(reason)

    def _no_buildkit_error(self, lack: str) -> BuildError:
        where = f"{self._context.name}:{buildkit_line(self._context.dockerfile)}"
        return BuildError(f"{where}: this step needs BuildKit, and {lack}", advice="install the Docker CLI with buildx")

    def _build_error(self, reason: str) -> BuildError:
        return BuildError(self._log.explain(reason))


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
        self, engine: DockerEngine, *, builds: int | None = None, network: str | None = None, is_podman: bool = False
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
            image = await self.ensure_pulled(spec.docker_image, spec.build_timeout_sec)
            alone = directory is not None and not has_dockerfile and compose_file(directory) is None
            return replace(image, is_task_files_only=alone)
        if directory is not None and has_dockerfile:
            return await self._ensure_built(directory, spec)
        return await self.ensure_pulled(BASE_IMAGE, spec.build_timeout_sec)

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
            return await self.facts_of(tag)

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

    async def _ensure_built(self, directory: Path, spec: SandboxSpec) -> ImageFacts:
        with as_build_error(f"{directory.name}/Dockerfile"):
            context = BuildContext(directory)
            tag = await self.tag_for(context, {})
        build = Build(
            self._engine, context, tag=tag, labels={IMAGE_LABEL: tag}, network=self.network, is_podman=self._is_podman
        )
        return await self.ensure(
            tag,
            lambda: build.run(timeout_sec=spec.build_timeout_sec, fresh=spec.force_build),
            base=base_image(context.dockerfile),
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
        """Return whether the image is there and stands on the base image of today."""
        image = await self._inspect(tag)
        base_facts = await self._inspect(base) if image is not None and base else None
        if image is None or base_facts is None:
            return image is not None
        below: list[str] = base_facts["RootFS"].get("Layers") or []
        return (image["RootFS"].get("Layers") or [])[: len(below)] == below

    async def ensure_pulled(self, reference: str, timeout_sec: float) -> ImageFacts:
        """Return an image that somebody else made, pulled if it is not there."""
        async with self._locks.setdefault(reference, asyncio.Lock()):
            if reference in self._known:
                return self._known[reference]
            if await self._inspect(reference) is None:
                async with locked(f"pull-{reference}"):
                    if await self._inspect(reference) is None:
                        with activity(f"pulling {short_name(reference)}"):
                            await self._pull(reference, timeout_sec)
            return await self.facts_of(reference)

    async def _pull(self, reference: str, timeout_sec: float) -> None:
        from docker.utils import parse_repository_tag

        repository, tag = parse_repository_tag(reference)
        try:
            async with asyncio.timeout(timeout_sec):
                for attempt in range(1, _PULL_ATTEMPTS + 1):
                    try:
                        output = await self._engine.call(lambda client: client.pull(repository, tag=tag or "latest"))
                        _check_pull(output)
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

    async def facts_of(self, reference: str) -> ImageFacts:
        """Return what an image that is there says about itself."""
        facts = await self._inspect(reference)
        if facts is None:
            raise BuildError(f"image {reference} is not there after it was built or pulled")
        config = facts.get("Config") or {}
        image = ImageFacts(
            reference,
            user=config.get("User") or "",
            workdir=config.get("WorkingDir") or "",
            entrypoint=tuple(config.get("Entrypoint") or ()),
            healthcheck=_healthcheck(config),
        )
        self._known[reference] = image
        return image

    async def _inspect(self, reference: str) -> dict[str, Any] | None:
        try:
            facts: dict[str, Any] = await self._engine.call(lambda client: client.inspect_image(reference))  # type: ignore[no-untyped-call]
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return facts


def _healthcheck(config: Mapping[str, Any]) -> ImageHealthcheck | None:
    """Return the health check of an image, whose times are nanoseconds."""
    check = config.get("Healthcheck") or {}
    times = {
        "interval": (check.get("Interval") or 0) / 1e9,
        "timeout": (check.get("Timeout") or 0) / 1e9,
        "start_period": (check.get("StartPeriod") or 0) / 1e9,
    }
    return healthcheck_of(check.get("Test") or (), times, check.get("Retries"), config.get("Shell") or DEFAULT_SHELL)


def _check_pull(output: str) -> None:
    """Raise EngineError if an answer that began well ended with an error."""
    for line in output.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if reason := message.get("error"):
            raise EngineError(200, str(reason).strip())


def short_name(reference: str) -> str:
    """Return an image's name as Docker has it: Podman lists it with a registry."""
    return _PODMAN_PREFIX.sub("", reference)
