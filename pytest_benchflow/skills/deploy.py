"""Put a directory of skills into a sandbox and link it where an agent looks; take the links away again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BadValue
from pytest_benchflow.sandboxes import exec_checked

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox


ROOT = "/skills"
_TIMEOUT_SEC = 60.0


async def deploy_skills(
    sandbox: Sandbox, source: Path, *, name: str, places: Sequence[str], user: str | int | None
) -> None:
    """Upload skills to `/skills/NAME` and link each of them into the places where the agent looks.

    The links are made as the agent's user, so that every directory on the way is its own: agents keep more there.
    """
    skills = sorted(path.parent.name for path in source.glob("*/SKILL.md"))
    if not skills:
        raise BadValue(f"{source} holds no skill", advice="a skill is a folder with a SKILL.md in it")
    target, purpose = f"{ROOT}/{name}", f"put the skills of {source} in place"
    await sandbox.upload_dir(source, target)
    readable = f"chmod -R a+rX {shlex.quote(target)}"
    await exec_checked(sandbox, readable, purpose, cwd="/", timeout_sec=_TIMEOUT_SEC)
    lines = []
    for place in places:
        lines.append(f"mkdir -p {shlex.quote(place)}")
        lines += [f"ln -sfn {shlex.quote(f'{target}/{skill}')} {shlex.quote(f'{place}/{skill}')}" for skill in skills]
    await exec_checked(sandbox, " && ".join(lines), purpose, user=user, cwd="/", timeout_sec=_TIMEOUT_SEC)


async def withdraw_skills(sandbox: Sandbox, places: Sequence[str], *, user: str | int | None) -> None:
    """Remove the links, so that the next role starts without them; skills an agent wrote itself stay."""
    listed = " ".join(shlex.quote(place) for place in places)
    script = (
        f'for d in {listed}; do for l in "$d"/*; do case $(readlink "$l") in {ROOT}/*) rm -f -- "$l";; esac; done; done'
    )
    await exec_checked(sandbox, script, "remove skills", user=user, cwd="/", timeout_sec=_TIMEOUT_SEC)
    await exec_checked(sandbox, f"rm -rf {ROOT}/*", "remove skills", cwd="/", timeout_sec=_TIMEOUT_SEC)
