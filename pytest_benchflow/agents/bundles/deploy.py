"""Bring a bundle into a started sandbox: see whether it is there, else upload it, else install the agent inside."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents.bundles.bundle import KEY, Bundle, host_platform
from pytest_benchflow.agents.bundles.npm import reason_of_npm
from pytest_benchflow.agents.installation import exec_install
from pytest_benchflow.sandboxes import OWN_ENV

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox


_LOOK_SEC = 120.0
_INSTALL_SEC = 900.0
_NPM = """
command -v npm >/dev/null || {{ echo "the image has no npm"; exit 127; }}
npm install --prefix {own}/npm --omit=dev --no-audit --no-fund --no-package-lock --cache {own}/cache {packages} 2>&1
rm -rf {own}/cache
"""
_PIP = """
command -v python3 >/dev/null || {{ echo "the image has no python3"; exit 127; }}
python3 -m venv {own}/venv 2>&1
{own}/venv/bin/pip install --no-cache-dir --disable-pip-version-check {packages} 2>&1
"""
_LOOK = """
key=$(cat {target}/bundle.key 2>/dev/null)
if [ "$key" != {key} ]; then echo absent; elif {target}/check >/dev/null 2>&1; then echo ready; else echo foreign; fi
uname -m
ls /lib/ld-musl-* >/dev/null 2>&1 && echo musl || echo glibc
cat {own}/bundle.key 2>/dev/null
"""


async def deploy(bundle: Bundle, sandbox: Sandbox, log: Path | None) -> str:
    """Return the prefix of the bundle's programs in the sandbox, made ready if need be."""
    own = f"{bundle.target}-own"
    state, system, installed = await _look(bundle, sandbox, own)
    if state == "absent" and system == _host():
        await sandbox.upload_dir(bundle.path, bundle.target)
        state, _, _ = await _look(bundle, sandbox, own)
    if state == "ready":
        return bundle.target
    if installed != bundle.key:
        await _install(bundle, sandbox, own, system, log)
    return own


async def _look(bundle: Bundle, sandbox: Sandbox, own: str) -> tuple[str, str, str]:
    """Return whether the bundle is there and runs, the kind of system, and the key of what was installed inside."""
    script = _LOOK.format(target=bundle.target, key=bundle.key, own=own)
    result = await sandbox.exec(script, user=0, cwd="/", env=OWN_ENV, timeout_sec=_LOOK_SEC)
    state, machine, libc, *installed = [*result.stdout.split(), "", "", ""][:4]
    return state, f"{machine} {libc}", installed[0]


def _host() -> str:
    _, machine, libc = host_platform().split("-")
    return f"{machine} {libc}"


async def _install(bundle: Bundle, sandbox: Sandbox, own: str, system: str, log: Path | None) -> None:
    """Install the agent with what the image has."""
    advice = f"its bundle runs on {_host()}, the image is {system}: use another image, or put npm or pip into it"

    def write_log(output: str) -> None:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as file:
                file.write(output)

    await exec_install(
        sandbox,
        _script(bundle, own),
        bundle.spec.agent,
        timeout_sec=_INSTALL_SEC,
        cwd="/",
        log=write_log,
        explain=reason_of_npm,
        advice=advice,
    )


def _script(bundle: Bundle, own: str) -> str:
    """Return the commands that install the agent below `own` and mark it as complete."""
    spec = bundle.spec
    script = f"set -e\numask 022\nrm -rf {own}\nmkdir -p {own}/bin\n"
    places = []
    if spec.npm:
        script += _NPM.format(own=own, packages=shlex.join(spec.npm))
        places.append(f"{own}/npm/node_modules/.bin")
    if spec.pip:
        script += _PIP.format(own=own, packages=shlex.join(spec.pip))
        places.append(f"{own}/venv/bin")
    for program in map(shlex.quote, spec.programs):
        script += f"for place in {' '.join(places)}; do\n"
        script += f"  if [ -x $place/{program} ]; then ln -sf $place/{program} {own}/bin/; fi\ndone\n"
        script += f'[ -x {own}/bin/{program} ] || {{ echo "no program {program} in the packages"; exit 127; }}\n'
    return f"{script}echo {bundle.key} >{own}/{KEY}\n"
