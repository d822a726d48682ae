"""Install npm packages and the node that runs them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pytest_benchflow.agents.bundles.commands import Commands
from pytest_benchflow.agents.bundles.wrappers import NODE, command_of, write_wrapper
from pytest_benchflow.core.errors import InstallError
from pytest_benchflow.core.files import locked_files, temporary_name
from pytest_benchflow.core.removal import remove_tree

#: Lines of npm that say nothing about the reason.
_NOISE = ("A complete log of this run", "syscall ", "errno ", "path ", "Note that you can also", "If you are behind")
_PREFIX = "npm"


async def install_npm(
    packages: Sequence[str], top: Path, scratch: Path, commands: Commands, node: Path | None
) -> dict[str, list[str]]:
    """Install packages below the new directory `top`; return how each program that they offer is run."""
    prefix = top / _PREFIX
    prefix.mkdir()
    if node is not None:
        (top / NODE).parent.mkdir()
        await asyncio.to_thread(_link, node / "bin/node", top / NODE)
    await _npm(packages, prefix, scratch, commands, node)
    return await asyncio.to_thread(_programs, top, prefix / "node_modules")


async def provide_node(directory: Path, version: str, scratch: Path, commands: Commands) -> Path:
    """Return the prefix of a node, made once for all bundles of this machine."""
    home = directory / f"node-{version}-{os.uname().machine}"
    directory.mkdir(exist_ok=True)
    async with locked_files(directory / f"{home.name}.lock"):
        if not await _runs(home / "bin/node", commands):
            made = directory / temporary_name()
            try:
                await _make_node(version, made, scratch / "node", commands)
                await asyncio.to_thread(remove_tree, home)
                made.rename(home)
            finally:
                await asyncio.shield(asyncio.to_thread(remove_tree, made))
    os.utime(home)
    return home


async def _runs(node: Path, commands: Commands) -> bool:
    if not node.exists():
        return False
    status, _ = await commands.attempt([str(node), "--version"], timeout_sec=60)
    return status == 0


async def _make_node(version: str, home: Path, scratch: Path, commands: Commands) -> None:
    scratch.mkdir()
    await _npm([f"node@{version}"], scratch, scratch, commands, None)
    package = scratch / "node_modules/node"
    if not (package / "bin/node").is_file():
        raise commands.failed(f"the npm package node@{version} gives no program here")
    home.mkdir()
    (package / "bin").rename(home / "bin")
    # What native modules compile against; npm would look for it on the network.
    if headers := next(package.glob("node_modules/node-*/include"), None):
        headers.rename(home / "include")


async def _npm(packages: Sequence[str], prefix: Path, scratch: Path, commands: Commands, node: Path | None) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError(
            f"Agent {commands.agent} install failed: there is no npm on this machine",
            advice="install Node.js with npm; only the installation needs it, not the sandboxes",
        )
    # Install scripts find a home that is thrown away, npm the user's own settings.
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    env = {"HOME": str(home), "npm_config_cache": str(scratch / "npm-cache"), "npm_config_userconfig": _user_config()}
    if node is not None:
        # Install scripts have to run with the node that the agent will have.
        env |= {"PATH": f"{node / 'bin'}:{os.environ.get('PATH', os.defpath)}", "npm_config_nodedir": str(node)}
    options = ("--omit=dev", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts=false")
    # A package that is a directory of this machine is copied, not linked.
    argv = [npm, "install", "--prefix", str(prefix), "--install-links", *options, *packages]
    await commands.run(argv, explain=reason_of_npm, cwd=prefix, env=env)


def _user_config() -> str:
    user_config = next((value for name, value in os.environ.items() if name.lower() == "npm_config_userconfig"), None)
    return user_config or os.path.expanduser("~/.npmrc")


def reason_of_npm(lines: Sequence[str]) -> str:
    """Return what npm says about its failure, in one line."""
    errors = [
        line.partition(" ")[2].partition(" ")[2].strip() for line in lines if line.startswith(("npm error", "npm ERR!"))
    ]
    code = next((line.removeprefix("code ") for line in errors if line.startswith("code ")), "")
    reasons = [line for line in errors if line and not line.startswith(("code ", *_NOISE))]
    if not reasons:
        return code or (lines[-1] if lines else "npm said nothing")
    return f"{code}: {reasons[0]}" if code else reasons[0]


def _programs(top: Path, modules: Path) -> dict[str, list[str]]:
    """Make what packages call by name run with the bundle's node; return the commands of the top level."""
    (modules / ".package-lock.json").unlink(missing_ok=True)
    programs: dict[str, list[str]] = {}
    for folder, names, _ in os.walk(modules):
        if ".bin" not in names:
            continue
        names.remove(".bin")
        for link in sorted(Path(folder, ".bin").iterdir()):
            program = link.resolve()
            if not program.is_file() or not program.is_relative_to(top.resolve()):
                continue
            words = command_of(top.resolve(), program)
            if words is None:
                continue
            if Path(folder) == modules:
                programs[link.name] = words
            if words[0] == f"$top/{NODE}":
                write_wrapper(top, link, words)
    return programs


def _link(source: Path, target: Path) -> None:
    """Share the file where the file system can, for it is a large one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
