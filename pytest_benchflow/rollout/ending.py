"""The end of a rollout's sandbox: gone, or kept for inspection, and no secret in what it left."""

from __future__ import annotations

import asyncio
import errno
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_benchflow.errors import BenchflowError
from pytest_benchflow.rollout.result import ErrorInfo
from pytest_benchflow.rollout.store import write_json, write_text

if TYPE_CHECKING:
    from pytest_benchflow.rollout.record import Record
    from pytest_benchflow.rollout.result import RolloutResult
    from pytest_benchflow.rollout.stage import StageRun
    from pytest_benchflow.sandboxes import Sandbox

STOP_TIMEOUT_SEC = 60.0
_RECOVER_TIMEOUT_SEC = 30.0
_SHOWN_FILES = 5
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def describe(error: BaseException, record: Record) -> ErrorInfo:
    """Describe what ended a rollout; of what nobody foresaw the traceback is kept."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        advice = "make room, or choose another --bf-jobs-dir"
        error = BenchflowError(f"results cannot be written: {error.strerror}", advice=advice)
    if not isinstance(error, BenchflowError):
        if record.directory is not None:
            with suppress(OSError):
                write_text(record.directory / "exception.txt", "".join(traceback.format_exception(error)))
        error = BenchflowError(f"{type(error).__name__}: {error}", advice="a bug in the harness; see exception.txt")
    return ErrorInfo.of(error, record.phase)


def write_result(record: Record) -> RolloutResult:
    """Write the result and return it; that it cannot be written is the result then."""
    try:
        return record.write()
    except OSError as error:
        record.error = record.error or describe(error, record)
        return record.result()


def write_sandbox_facts(record: Record, sandbox: Sandbox) -> None:
    """Write `sandbox.json`, so that what a killed run leaves can be found."""
    assert record.directory is not None  # setup() made it
    facts = {"sandbox": record.sandbox, "id": sandbox.id, "workdir": sandbox.workdir}
    write_json(record.directory / "sandbox.json", {**facts, "notes": [*sandbox.notes]})


async def recover(work: StageRun) -> None:
    """Keep the logs and artifacts of agents whose rollout broke, as far as they can still be had."""
    with suppress(Exception):
        async with asyncio.timeout(_RECOVER_TIMEOUT_SEC):
            await work.recover()


async def end_sandbox(record: Record, sandbox: Sandbox, *, may_keep: bool) -> None:
    """Stop the sandbox, unless it is to be kept; one that cannot outlive its runner leaves its workspace."""
    keep = may_keep and record.config.keeps_sandbox(passed=record.result().passed)
    if keep and not sandbox.capabilities.keeps:
        await _keep_workspace(record, sandbox)
    await sandbox.stop(delete=not keep)
    record.notes += [note for note in sandbox.notes if note not in record.notes]
    if keep:
        write_sandbox_facts(record, sandbox)


def mask_secrets(record: Record) -> None:
    """Look once more for secrets in everything that was written, and mask what is found."""
    if record.directory is not None and (found := record.redactor.scrub(record.directory)):
        more = f" and {len(found) - _SHOWN_FILES} more" if len(found) > _SHOWN_FILES else ""
        record.notes.append(f"a secret was masked in {', '.join(found[:_SHOWN_FILES])}{more}")


async def _keep_workspace(record: Record, sandbox: Sandbox) -> None:
    assert record.directory is not None  # setup() made it
    where = f"{record.sandbox} sandboxes end with their rollout"
    try:
        async with asyncio.timeout(STOP_TIMEOUT_SEC / 2):
            await sandbox.download_dir(sandbox.workdir, record.directory / "workspace")
    except (BenchflowError, OSError) as error:
        record.notes.append(f"{where}, and {sandbox.workdir} could not be copied: {error}")
    else:
        record.notes.append(f"{where}: {sandbox.workdir} is kept as workspace/ beside its result.json")
