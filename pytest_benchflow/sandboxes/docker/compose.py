"""What is put under and over a task's compose file, and how `docker compose` is run: no library does that."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_benchflow.core.errors import SandboxError, UnsupportedError
from pytest_benchflow.sandboxes.base import SandboxSpec
from pytest_benchflow.sandboxes.docker.channel import FIRST_LINE_SEC, bootstrap
from pytest_benchflow.sandboxes.docker.client import Address
from pytest_benchflow.sandboxes.docker.container_spec import (
    PIDS_LIMIT,
    STOP_SIGNAL,
    EngineFacts,
    ImageFacts,
    volume_name,
)
from pytest_benchflow.sandboxes.docker.images import BUILDKIT_CHATTER
from pytest_benchflow.sandboxes.docker.project_watcher import PROJECT_OPTION
from pytest_benchflow.sandboxes.startup import keeps_alive

_NO_COMPOSE = ("is not a docker command", "unknown shorthand flag", "unknown command")


class ComposeFailed(Exception):
    """A compose command ended with an error; `output` is what it printed."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


class ComposeCli:
    """Compose commands on one project."""

    def __init__(
        self, address: Address, project: str, directory: Path, files: Sequence[Path], variables: Mapping[str, str]
    ) -> None:
        self._words = ["docker", "compose", PROJECT_OPTION, project, "--project-directory", str(directory)]
        self._words += [word for file in files for word in ("--file", str(file))]
        self._env = {**address.environment(), **variables, "COMPOSE_ANSI": "never"}

    async def run(self, *words: str, timeout_sec: float) -> str:
        """Return the output of a command; ComposeFailed if it fails, TimeoutError if it is too slow."""
        try:
            program = await asyncio.create_subprocess_exec(
                *self._words,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise _missing_compose_error() from None
        try:
            async with asyncio.timeout(timeout_sec):
                out, err = await program.communicate()
        finally:
            if program.returncode is None:
                os.killpg(program.pid, signal.SIGKILL)
                await asyncio.shield(program.wait())
        if program.returncode != 0:
            # A build tells its steps on one stream and why it failed on the other.
            text = "\n".join(filter(None, (part.decode(errors="replace").strip() for part in (out, err))))
            if any(sign in text for sign in _NO_COMPOSE):
                raise _missing_compose_error()
            raise ComposeFailed(text)
        return out.decode(errors="replace")


def _missing_compose_error() -> SandboxError:
    return SandboxError(
        "the task has a docker-compose file, and there is no `docker compose` here",
        advice="install the Docker CLI with compose v2",
        retryable=False,
    )


MAIN = "main"
#: Stands for main's image until the merged file tells where that comes from.
PLACEHOLDER = "pytest-benchflow:main-image"
Config = Mapping[str, Any]
_PROGRESS = re.compile(
    r"\s*(Network|Volume|Container) \S+\s+(Creating|Created|Recreate|Recreated|Starting|Started|Running|Waiting|Healthy"
    r"|Exited|Error|Stopping|Stopped|Removing|Removed)\s*"
)
_TAIL_LINES = 25
_FOR_A_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LOG_DIRS = ("agent", "verifier", "artifacts")


def variables(spec: SandboxSpec, logs: Path) -> dict[str, str]:
    """Return what a compose file may interpolate, older tasks' names included."""
    limits = spec.limits
    found = {
        "CONTEXT_DIR": str(spec.environment_dir),
        "MAIN_IMAGE_NAME": PLACEHOLDER,
        "PREBUILT_IMAGE_NAME": spec.docker_image or "",
        "CPUS": f"{limits.cpus:g}" if limits.cpus else "0",
        "MEMORY": f"{limits.memory_mb}M" if limits.memory_mb else "0",
        "TEST_DIR": "/tests",
    }
    for name in LOG_DIRS:
        found[f"HOST_{name.upper()}_LOGS_PATH"] = str(logs / name)
        found[f"ENV_{name.upper()}_LOGS_PATH"] = f"/logs/{name}"
    return found


def base_file() -> dict[str, Any]:
    """Return the file below the task's own: it only makes sure that there is a main service with an image."""
    return {"services": {MAIN: {"image": PLACEHOLDER}}}


def override_file(
    config: Config,
    spec: SandboxSpec,
    engine: EngineFacts,
    *,
    labels: Mapping[str, str],
    images: Mapping[str, str],
    workdir: str,
    lease_sec: int,
) -> dict[str, Any]:
    """Return the file above the task's own: labels for all, names for built images, our PID 1 for main."""
    services: dict[str, dict[str, Any]] = {name: {"labels": dict(labels)} for name in config["services"]}
    for name, image in images.items():
        services[name]["image"] = image
    services[MAIN] |= _main(spec, workdir, lease_sec)
    services[MAIN] |= _resources(spec, engine, config["services"][MAIN])
    override: dict[str, Any] = {"services": services}
    for kind in ("networks", "volumes"):
        own = {name for name, value in (config.get(kind) or {}).items() if not (value or {}).get("external")}
        override[kind] = {name: {"labels": dict(labels)} for name in own}
    override["volumes"] |= {name: {"external": True, "name": name} for name in map(volume_name, spec.mounts)}
    if not spec.network:
        _check_own_network(config, spec)
        # The sidecars stay within reach, the world does not.
        for network in override["networks"].values():
            network["internal"] = True
    return override


def _main(spec: SandboxSpec, workdir: str, lease_sec: int) -> dict[str, Any]:
    # It may start as soon as the services are on their way, and the runner waits until all of them are up.
    words = bootstrap(spec.build_timeout_sec + FIRST_LINE_SEC, lease_sec)
    # A dollar sign would be a variable.
    entrypoint = [word.replace("$", "$$") for word in words]
    main: dict[str, Any] = {
        "entrypoint": entrypoint,
        "command": [],
        "user": "0",
        "working_dir": workdir.replace("$", "$$"),
        "stdin_open": True,
        "tty": False,
        "init": False,
        "restart": "no",
        "stop_signal": STOP_SIGNAL,
        "logging": {"driver": "none"},
    }
    if spec.mounts:
        main["volumes"] = [
            {
                "type": "volume",
                "source": volume_name(mount),
                "target": mount.target.replace("$", "$$"),
                "read_only": True,
                "volume": {"nocopy": True},
            }
            for mount in spec.mounts
        ]
    return main


def _resources(spec: SandboxSpec, engine: EngineFacts, service: Config) -> dict[str, Any]:
    """Return the limits of main, where the task's file has its own: compose takes only one of two places."""
    limits = spec.limits
    pids, cpus = limits.pids or PIDS_LIMIT, min(limits.cpus or 0, engine.cpus)
    memory = (limits.memory_mb or 0) << 20
    below: dict[str, Any] = {}
    if ((service.get("deploy") or {}).get("resources") or {}).get("limits") is not None:
        places = {"pids": pids, "cpus": f"{cpus:g}" if cpus else None, "memory": str(memory) if memory else None}
        below["limits"], plain = {name: value for name, value in places.items() if value}, {}
    else:
        plain = {"pids_limit": pids, "cpus": cpus, "mem_limit": memory}
    found = {name: value for name, value in {**plain, "memswap_limit": memory}.items() if value}
    if limits.gpus:
        if not engine.has_gpus:
            raise UnsupportedError(f"{spec.name}: gpus = {limits.gpus}, and this Docker engine has no GPU runtime")
        below["reservations"] = {"devices": [{"driver": "nvidia", "count": limits.gpus, "capabilities": ["gpu"]}]}
    return {**found, "deploy": {"resources": below}} if below else found


def _check_own_network(config: Config, spec: SandboxSpec) -> None:
    for name, service in config["services"].items():
        if service.get("network_mode") not in (None, "none", f"service:{MAIN}"):
            raise UnsupportedError(
                f'{spec.name}: service {name} has network_mode = "{service["network_mode"]}" in a task without network'
            )
    for name, network in (config.get("networks") or {}).items():
        if (network or {}).get("external"):
            raise UnsupportedError(f"{spec.name}: network {name} is external in a task without network")


def as_service(image: ImageFacts, service: Config) -> ImageFacts:
    """Return main's image with what the file says in its place: who its programs are, where they begin, and which."""
    user, workdir = service.get("user") or image.user, service.get("working_dir") or image.workdir
    entrypoint, command = image.entrypoint, _words(service.get("command"))
    if service.get("entrypoint") is not None:
        entrypoint = _words(service["entrypoint"])
    return replace(
        image,
        user=str(user),
        workdir=workdir,
        entrypoint=entrypoint,
        command=() if keeps_alive(command) else command,
        # Compose waits for it.
        healthcheck=None,
    )


def _words(value: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(word.replace("$$", "$") for word in value or ())


def built_services(config: Config) -> dict[str, Any]:
    """Return the build section of every service that has one."""
    return {name: service["build"] for name, service in config["services"].items() if service.get("build")}


def exclusive_resources(config: Config, project: str) -> list[str]:
    """Name what two projects cannot have at once: host ports, container names, subnets, shared networks and volumes."""
    return sorted(set(_exclusive_resources(config, project)))


def _exclusive_resources(config: Config, project: str) -> Iterator[str]:
    for service in config["services"].values():
        if name := service.get("container_name"):
            yield f"container-{name}"
        if service.get("network_mode") == "host":
            yield "host-network"
        for port in service.get("ports") or []:
            if published := port.get("published"):
                yield f"port-{published}-{port.get('protocol', 'tcp')}"
    for kind in ("networks", "volumes"):
        for thing in (config.get(kind) or {}).values():
            name = (thing or {}).get("name", project)
            if not (thing or {}).get("external") and not name.startswith(project):
                yield f"{kind}-{name}"
            for subnet in ((thing or {}).get("ipam") or {}).get("config") or []:
                yield f"subnet-{subnet.get('subnet')}"


def explain(what: str, output: str, project: str) -> str:
    """Return what compose and its services printed as one reason and the rest, with services named as in the file."""
    container = re.compile(rf"\b(container )?{re.escape(project)}-(\S+?)-\d+\b")
    plain_lines = (line for line in _plain_lines(output) if not _PROGRESS.fullmatch(line))
    lines = [container.sub(r"service \2", line.strip()) for line in plain_lines]
    signs = ("unhealthy", "rror", "exited")
    reason = next(
        (line for line in lines if any(sign in line for sign in signs)), lines[0] if lines else "no reason given"
    )
    rest = [line for line in lines if line != reason]
    advice = "; free it, or let Docker choose one" if "address already in use" in reason else ""
    return "\n    ".join(
        [f"{what}: {reason.removeprefix('Error response from daemon: ')}{advice}", *rest[-_TAIL_LINES:]]
    )


def explain_build(what: str, output: str) -> str:
    """Return what a build printed, but for what it tells of every build."""
    plain_lines = (line for line in _plain_lines(output) if not BUILDKIT_CHATTER.match(line))
    return "\n    ".join([what, *list(plain_lines)[-_TAIL_LINES:]])


def _plain_lines(output: str) -> Iterator[str]:
    """Yield the lines that say something, without what compose has for a terminal."""
    return (line for line in _FOR_A_TERMINAL.sub("", output).splitlines() if line.strip())
