"""Create a container, attach the runner's line to it and start it; nothing is left if that fails."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from pytest_benchflow.errors import SandboxError

from .channel import Channel
from .connection import open_connection
from .container import Container
from .engine import Engine, EngineError

_REMOVE_TIMEOUT_SEC = 60.0
_REMOVE_ATTEMPTS = 4
_NO_BASH = re.compile(r'exec: "bash".*(not found|no such file)', re.IGNORECASE)


async def launch(
    engine: Engine, config: dict[str, Any], *, container_name: str, name: str, lease_sec: int
) -> Container:
    """Start a container and return it once PID 1 answers."""
    await engine.finish(lambda client: client.create_container_from_config(config, container_name))  # type: ignore[no-untyped-call]
    try:
        # Podman prepares a program when somebody attaches to it, and so may refuse it here already.
        channel = await attach(engine, container_name, name)
        try:
            await engine.finish(lambda client: client.start(container_name))
            await channel.open(lease_sec)
        except BaseException:
            channel.close()
            raise
    except EngineError as error:
        raise _not_started(error, config, name) from None
    return Container(engine, container_name, name, channel)


async def attach(engine: Engine, container_id: str, name: str) -> Channel:
    """Open a line to PID 1 of a container."""
    path = f"/v{await engine.version()}/containers/{container_id}/attach"
    query = {"stream": "1", "stdin": "1", "stdout": "1", "stderr": "1"}
    return Channel(await open_connection(engine.address, path, query=query), name)


async def remove(engine: Engine, container_id: str) -> None:
    """Kill and remove a container with its anonymous volumes, and return when it is gone; idempotent."""
    failures = 0
    async with asyncio.timeout(_REMOVE_TIMEOUT_SEC):
        while True:
            try:
                await engine.call(lambda client: client.remove_container(container_id, force=True, v=True))
                return
            except EngineError as error:
                if error.status == 404:
                    return
                # 409: it ended by itself and is being removed already. 500: a busy file system lets go in a while.
                failures += error.status != 409
                if failures == _REMOVE_ATTEMPTS:
                    raise
                await asyncio.sleep(0.05 if error.status == 409 else 0.5)


def _not_started(error: EngineError, config: dict[str, Any], name: str) -> SandboxError:
    if _NO_BASH.search(error.reason):
        return SandboxError(
            f"image {config['Image']} has no bash, which every sandbox needs",
            advice="install it in the Dockerfile",
            retryable=False,
        )
    return SandboxError(f"sandbox {name} did not start: {error.reason}")
