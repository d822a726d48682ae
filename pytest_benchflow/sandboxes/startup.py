"""What an image starts before a sandbox is ready: its ENTRYPOINT, the command of a compose file, its HEALTHCHECK."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_benchflow.core.errors import BenchflowError, Category, SandboxError
from pytest_benchflow.core.text import one_line

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.base import Sandbox

_ENTRYPOINT_WAIT_SEC = 10
_COMMAND_WAIT_SEC = 1
#: Starts "$@", and tells once the command of ours that lives on has its turn, or how "$@" ended before.
_START = r"""
exec 8< <(
  exec 9>&1 2>/dev/null
  {
    COMMAND </dev/null 2>&1
    echo "ended $?" >&9
  } | tail -n 1 >&9
)
read -r -t SECONDS_TO_WAIT -u 8 word status && [ "$word" = ended ] && MATTERS || exit 0
read -r -t 1 -u 8 line
echo "$status $line"
"""
#: How "$@" starts, and which end of it is an error: an engine's container ends with a command of its own.
_OUR_COMMAND = """"$@" sh -c 'echo ready >&9; exec 9>&- sleep infinity'""", '[ "$status" != 0 ]'
_OWN_COMMAND = '"$@" 9>&-', ":"
_KEEP_ALIVE = re.compile(r"((/bin/)?(ba)?sh -c )?(exec )?(sleep (infinity|inf)|tail -f /dev/null)")


async def run_entrypoint(sandbox: Sandbox, name: str, entrypoint: Sequence[str], command: Sequence[str] = ()) -> None:
    """Run an image's ENTRYPOINT as an engine does that is to keep a container alive; what it starts goes on.

    `command` is what a compose file has for its command. Nothing tells when that is ready, so it is not waited for.
    """
    if not entrypoint and not command:
        return
    start, matters = _OWN_COMMAND if command else _OUR_COMMAND
    wait_sec = _COMMAND_WAIT_SEC if command else _ENTRYPOINT_WAIT_SEC
    script = _START.replace("SECONDS_TO_WAIT", str(wait_sec)).replace("COMMAND", start).replace("MATTERS", matters)
    words = shlex.join([*entrypoint, *command])
    done = await sandbox.exec(f"set -- {words}\n{script}", timeout_sec=6 * _ENTRYPOINT_WAIT_SEC)
    if done.return_code or done.stdout:
        status, _, line = (done.stdout or f"{done.return_code} {done.stderr}").strip().partition(" ")
        what, advice = (
            (f"the command of service main ended with status {status}", "let it live on, or leave it out")
            if command
            else (
                f"the ENTRYPOINT of its image ended with status {status} before it ran its command",
                'let it end with exec "$@", or write ENTRYPOINT [] into the Dockerfile',
            )
        )
        raise SandboxError(f"{name}: {what}" + (f": {one_line(line)}" if line else ""), advice=advice, retryable=False)


def keeps_alive(command: Sequence[str]) -> bool:
    """Return whether all that a command does is not to end."""
    return _KEEP_ALIVE.fullmatch(" ".join(command)) is not None


@dataclass(frozen=True, slots=True)
class ImageHealthcheck:
    """The HEALTHCHECK of an image, with what an engine takes where it says nothing."""

    argv: tuple[str, ...]
    interval_sec: float = 30.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    retries: int = 3

    @property
    def limit_sec(self) -> float:
        """After how long without success an engine calls a container unhealthy."""
        return self.start_period_sec + self.retries * self.interval_sec


#: What runs a command that is a line of text, unless an image says otherwise.
DEFAULT_SHELL = ("/bin/sh", "-c")
_UNIT_SEC = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?)(h|ms|m|s|us|µs|ns)")


def seconds(duration: str) -> float | None:
    """Return how long `1m30s` is; None if it is not written like that."""
    parts = _DURATION_PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        return None
    return sum(float(number) * _UNIT_SEC[unit] for number, unit in parts)


def healthcheck_of(
    test: Sequence[str], times: Mapping[str, float | None], retries: int | None, shell: Sequence[str]
) -> ImageHealthcheck | None:
    """Return the check that an engine's `test` stands for; a time that is missing or zero has its default."""
    kind, *words = test or ("NONE",)
    if kind == "NONE" or not words:
        return None
    check = ImageHealthcheck(tuple(words) if kind == "CMD" else (*shell, *words))
    given: dict[str, Any] = {f"{name}_sec": value for name, value in times.items() if value}
    if retries:
        given["retries"] = retries
    return replace(check, **given)


_PROBE_SEC = 1.0


async def wait_until_image_is_healthy(
    sandbox: Sandbox, name: str, check: ImageHealthcheck | None, limit_sec: float
) -> None:
    """Wait until the check of an image succeeds, at most as long as an engine does before it gives up.

    An engine probes once per interval, by default every 30 seconds. Here it is every second, so that nobody waits for
    what is ready.
    """
    if check is None:
        return
    limit = min(check.limit_sec, limit_sec)
    deadline, tries = time.monotonic() + limit, 0
    while (failure := await _probe(sandbox, check)) is not None:
        tries += 1
        if time.monotonic() >= deadline and tries >= check.retries:
            raise BenchflowError(
                f"{name}: the HEALTHCHECK of its image failed for {limit:g} s: {failure}",
                category=Category.HEALTHCHECK,
                advice="CMD never runs: let the ENTRYPOINT start what is checked, or write HEALTHCHECK NONE",
            )
        await asyncio.sleep(min(check.interval_sec, _PROBE_SEC))


async def _probe(sandbox: Sandbox, check: ImageHealthcheck) -> str | None:
    """Return why a check failed; None if it did not."""
    try:
        done = await sandbox.exec(shlex.join(check.argv), timeout_sec=check.timeout_sec)
    except TimeoutError:
        return f"no answer within {check.timeout_sec:g} s"
    if done.return_code == 0:
        return None
    line = one_line((done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2], 200)
    return f"exit status {done.return_code}" + (f", {line}" if line else "")
