"""Compose projects, one per sandbox; the service `main` is the sandbox, the others are sidecars."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from pytest_benchflow.core.errors import BuildError, SandboxError, UsageError
from pytest_benchflow.core.files import compose_file
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.sandboxes.base import SandboxSpec
from pytest_benchflow.sandboxes.build_context import BuildContext
from pytest_benchflow.sandboxes.docker import compose
from pytest_benchflow.sandboxes.docker.channel import Channel
from pytest_benchflow.sandboxes.docker.compose import MAIN, PLACEHOLDER, ComposeCli, ComposeFailed
from pytest_benchflow.sandboxes.docker.container import Container, attach
from pytest_benchflow.sandboxes.docker.container_spec import (
    KEPT_PREFIX,
    ImageFacts,
    locked,
    make_labels,
    notes_for,
    working_directory,
)
from pytest_benchflow.sandboxes.docker.containers import KeptSandbox, Starter, end_programs
from pytest_benchflow.sandboxes.docker.project_watcher import Watcher, containers_of, remove_project
from pytest_benchflow.sandboxes.docker.sidecar import DockerService

#: No connection of the runner keeps main alive, so the runner has to give signs of life.
LEASE_SEC = 300
_CONFIG_TIMEOUT_SEC = 60.0
_STOP_SEC = 2
_SERVICE_LABEL = "com.docker.compose.service"
_NUMBER_LABEL = "com.docker.compose.container-number"


class Project:
    """Everything that one sandbox of several containers consists of."""

    def __init__(self, name: str, spec: SandboxSpec, starter: Starter) -> None:
        assert spec.environment_dir is not None
        self.name = name
        self.container: Container | None = None
        self._spec = spec
        self._starter = starter
        self._task_dir = spec.environment_dir
        self._held = contextlib.AsyncExitStack()
        self.directory = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="bf-compose-")))
        file = compose_file(self._task_dir)
        assert file is not None
        self._file = file
        self._config: dict[str, Any] = {}
        self._main_stopped = False
        self._main_is_checked = False

    async def prepare(self) -> ImageFacts:
        """Merge the files, build what is missing and return what main's image says about itself."""
        for name in compose.LOG_DIRS:
            (self.directory / name).mkdir(mode=0o777)
        self._write("base.json", compose.base_file())
        try:
            text = await self._compose().run("config", "--format", "json", timeout_sec=_CONFIG_TIMEOUT_SEC)
        except ComposeFailed as error:
            raise UsageError(f"{self._file}: {error.output.splitlines()[-1]}") from None
        self._config = json.loads(text)
        tags = await self._tags()
        image, service = await self._main_image(tags), self._config["services"][MAIN]
        self._main_is_checked = image.healthcheck is not None or service.get("healthcheck") is not None
        main = compose.as_service(image, service)
        tags |= {
            name: main.reference
            for name, service in self._config["services"].items()
            if service.get("image") == PLACEHOLDER and name not in tags
        }
        override = compose.override_file(
            self._config,
            self._spec,
            self._starter.facts,
            labels=make_labels(self._starter.run, self._spec.name),
            images=tags,
            workdir=working_directory(self._spec, main),
            lease_sec=LEASE_SEC,
        )
        self._write("override.json", override)
        return main

    async def up(self, image: ImageFacts) -> Container:
        """Start every service, wait until they are healthy, and return main.

        Where main has a health check, only what main needs starts: its programs, which are checked, are not there yet.
        """
        await self._starter.volumes.provide(self._spec, image)
        for thing in self._exclusive_resources():
            # Two projects that want the same take turns; the order is the same in all, so none waits in a ring.
            await self._held.enter_async_context(locked(f"compose-{thing}"))
        await self._up(*([MAIN] if self._main_is_checked else ["--wait"]))
        main_id = await self._container_of(MAIN)
        channel = await self._open_channel(main_id)
        self.container = Container(self._starter.engine, main_id, self._spec.name, channel)
        return self.container

    async def _open_channel(self, main_id: str) -> Channel:
        channel = await attach(self._starter.engine, main_id, self._spec.name)
        try:
            await channel.open(LEASE_SEC)
        except BaseException:
            channel.close()
            raise
        return channel

    async def finish_up(self) -> None:
        """Start the rest, now that main's programs run, and wait until all services are healthy."""
        if self._main_is_checked:
            await self._up("--wait")

    async def _up(self, *words: str) -> None:
        limit = self._spec.build_timeout_sec
        try:
            await self._compose("override.json").run(
                "up", "--detach", "--no-build", "--quiet-pull", *words, timeout_sec=limit
            )
        except ComposeFailed as error:
            raise SandboxError(await self._explain(error.output)) from None
        except TimeoutError:
            reason = f"{self._file}: the services were not up within {limit:g} s"
            raise SandboxError(reason, advice="raise build_timeout_sec") from None

    def check_clash(self, other: Project) -> None:
        """Raise an error if this project wants what another one has as long as it lives: it would wait for ever."""
        if both := sorted({*self._exclusive_resources()} & {*other._exclusive_resources()}):
            raise SandboxError(
                f"{self._file}: {both[0]} is taken by the sandbox {other.name}, which stays while this one runs",
                advice="let Docker choose it, or do without --bf-keep-sandbox",
                retryable=False,
            )

    def _exclusive_resources(self) -> list[str]:
        return compose.exclusive_resources(self._config, self.name)

    def service(self, name: str) -> DockerService:
        """Return a service beside main."""
        if name not in self._config["services"]:
            known = did_you_mean(name, self._config["services"])
            raise UsageError(f"{self._file} has no service {name!r}", advice=known)
        title = f"service {name} of sandbox {self._spec.name}"
        return DockerService(self._starter.engine, lambda: self._container_of(name), title)

    async def stop_main(self) -> None:
        """End main, and what it still does to the other services; its files stay."""
        if self.container is not None and not self._main_stopped:
            main_id, self._main_stopped = self.container.id, True
            await self._starter.engine.finish(lambda client: client.stop(main_id, timeout=_STOP_SEC))

    async def start_main(self) -> bool:
        """Have main again without the runner, for somebody to look at; False if it was never ended."""
        if self.container is None or not self._main_stopped:
            return False
        main_id, self._main_stopped = self.container.id, False
        await self._starter.engine.finish(lambda client: client.start(main_id))
        channel = await self._open_channel(main_id)
        await channel.keep()
        channel.close()
        return True

    async def _container_of(self, service: str) -> str:
        """Return the number of a service's first container, running or not."""
        found = await self._starter.engine.call(lambda client: containers_of(client, self.name))
        ours = [item for item in found if item["Labels"][_SERVICE_LABEL] == service]
        if not ours:
            raise SandboxError(f"{self._file}: service {service} has no container", retryable=False)
        first = min(ours, key=lambda item: int(item["Labels"].get(_NUMBER_LABEL, 1)))
        return str(first["Id"])

    async def down(self) -> None:
        """Remove everything of the project, its volumes too; idempotent."""
        await self._starter.engine.call(lambda client: remove_project(client, self.name))
        await self.release()

    async def release(self) -> None:
        """Let other projects have what this one had for itself."""
        await self._held.aclose()

    async def rename_as_kept(self) -> str:
        """Give every container a name that is never swept, and return main's."""
        engine, main = self._starter.engine, ""
        for item in await engine.call(lambda client: containers_of(client, self.name)):
            name = f"{KEPT_PREFIX}{item['Names'][0].lstrip('/').removeprefix('bf-')}"
            await engine.call(lambda client, item=item, name=name: client.rename(item["Id"], name))  # type: ignore[misc]
            main = name if item["Labels"][_SERVICE_LABEL] == MAIN else main
        return main

    async def _main_image(self, tags: dict[str, str]) -> ImageFacts:
        service = self._config["services"][MAIN]
        if MAIN in tags:
            return await self._starter.images.facts_of(tags[MAIN])
        if service["image"] == PLACEHOLDER:
            return await self._starter.images.find(self._spec)
        return await self._starter.images.ensure_pulled(service["image"], self._spec.build_timeout_sec)

    async def _tags(self) -> dict[str, str]:
        """Return the image of every service that is built, building those that are missing."""
        images, tags = self._starter.images, {}
        for service, build in compose.built_services(self._config).items():
            context = BuildContext(Path(build["context"]))
            # Where the context lies makes no difference, only what is in it.
            facts = {"service": json.dumps({**build, "context": None}, sort_keys=True)}
            tags[service] = await images.tag_for(context, facts)

            async def make(service: str = service, tag: str = tags[service]) -> None:
                await self._build(service, tag)

            await images.ensure(tags[service], make, force=self._spec.force_build)
        return tags

    async def _build(self, service: str, tag: str) -> None:
        self._write("build.json", {"services": {service: {"image": tag}}})
        limit = self._spec.build_timeout_sec
        try:
            await self._compose("build.json").run("build", service, timeout_sec=limit)
        except ComposeFailed as error:
            what = f"{self._file}: service {service} could not be built"
            raise BuildError(compose.explain_build(what, error.output)) from None
        except TimeoutError:
            reason = f"{self._file}: the build of service {service} took longer than {limit:g} s"
            raise BuildError(reason, advice="raise build_timeout_sec") from None

    async def _explain(self, output: str) -> str:
        """Return why the services are not up, with the end of what they printed."""
        with contextlib.suppress(ComposeFailed, TimeoutError):
            logs = await self._compose("override.json").run("logs", "--no-color", "--tail", "10", timeout_sec=20)
            output += "\n" + logs
        return compose.explain(f"{self._file}: the services are not up", output, self.name)

    def _compose(self, *above: str) -> ComposeCli:
        files = [self.directory / "base.json", self._file, *(self.directory / name for name in above)]
        variables = compose.variables(self._spec, self.directory)
        if self._starter.facts.is_podman:
            # Compose would look for BuildKit in an image of its own.
            variables["DOCKER_BUILDKIT"] = "0"
        return ComposeCli(self._starter.engine.address, self.name, self._task_dir, files, variables)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        # The spec's variables may be secret.
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))


class ComposeStarter:
    """Does for compose projects what `Starter` does for containers."""

    snapshots = None

    def __init__(self, starter: Starter, watcher: Watcher) -> None:
        self._starter = starter
        self._watcher = watcher
        self._projects: dict[str, Project] = {}

    async def image(self, spec: SandboxSpec, container_name: str) -> ImageFacts:
        """Read the project, build what is missing and return what main's image says about itself."""
        project = Project(container_name.lower(), spec, self._starter)
        try:
            image = await project.prepare()
        except BaseException:
            await project.release()
            raise
        self._projects[container_name] = project
        return image

    async def start(self, spec: SandboxSpec, image: ImageFacts, container_name: str) -> Container:
        """Bring the project up and return its main container."""
        project = self._projects[container_name]
        if spec.coexists_with in self._projects:
            project.check_clash(self._projects[spec.coexists_with])
        await self._starter.engine.thread(lambda: self._watcher.watch(project.name, project.directory))
        return await project.up(image)

    async def finish_start(self, container_name: str) -> None:
        """Start the services that waited for main, and wait until all are healthy."""
        await self._projects[container_name].finish_up()

    async def stop(self, container_name: str, container: Container | None) -> None:
        """Remove the whole project; idempotent."""
        project = self._projects.pop(container_name, None)
        if project is not None:
            await project.down()
            await self._starter.engine.thread(lambda: self._watcher.forget(project.name))
        if container is not None:
            container.close()
            # The loop closes sockets on its next turn, and may not have one afterwards.
            await asyncio.sleep(0)

    async def keep(self, container: Container) -> KeptSandbox:
        """Leave the project without the runner, and main without its processes."""
        name = next(name for name, project in self._projects.items() if project.container is container)
        project = self._projects.pop(name)
        self._watcher.forget(project.name)
        if not await project.start_main():
            await end_programs(container)
        kept = await project.rename_as_kept()
        await container.channel.keep()
        container.close()
        await project.release()
        return KeptSandbox(kept, f"docker compose -p {project.name} down --volumes")

    def network(self, spec: SandboxSpec, container_name: str) -> None:
        """Return nothing: services are in networks of their project, which the task wrote."""

    def notes(self, spec: SandboxSpec) -> list[str]:
        """Return what the user should know about this sandbox."""
        return notes_for(spec, self._starter.facts)

    def service(self, container_name: str, service: str) -> DockerService:
        """Return another container of the project."""
        return self._projects[container_name].service(service)

    async def stop_main(self, container_name: str) -> None:
        """End the container of main, and nothing beside it; idempotent."""
        await self._projects[container_name].stop_main()
