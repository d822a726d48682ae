"""Start and stop a sandbox: image and limits, build context, services, health check, files of a step, users."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import resolve_env
from pytest_benchflow.core.errors import BenchflowError, BuildError, Category, SandboxError, UsageError
from pytest_benchflow.rollout.config import UNLIMITED_AGENT_SEC, agent_limit
from pytest_benchflow.sandboxes import (
    OWN_ENV,
    Limits,
    SandboxSpec,
    empty_dirs_script,
    exec_checked,
    service_of,
    with_base,
    with_sources,
)
from pytest_benchflow.tasks import service_mentions

if TYPE_CHECKING:
    from pytest_benchflow.core.network import Endpoint
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.recorder import Recorder
    from pytest_benchflow.sandboxes import ExecResult, Mount, Sandbox, Service
    from pytest_benchflow.services import ServiceConfig
    from pytest_benchflow.tasks import EnvironmentConfig, Healthcheck, SetupCommand, Task, TaskStep

STOP_TIMEOUT_SEC = 60.0
_STEP_TIMEOUT_SEC = 180.0
#: Directory of a build context for what comes from the context root.
_DEPS = "_deps"

# One command for all of it, since every exec costs, and every program in it; the prompt comes through standard input.
_PREPARE_STEP = """
umask 022
{protected}
mkdir -p /logs/agent /logs/verifier /logs/artifacts || exit 1
{emptied}
cat >/instruction.md
"""

# One that is made anew has this mode already.
_PROTECTED = "[ ! -e /logs/verifier ] || chmod 755 /logs/verifier || exit 1"


def agent_spec(
    task: Task,
    config: RolloutConfig,
    name: str,
    *,
    build_dir: Path | None,
    mounts: tuple[Mount, ...] = (),
    endpoints: Sequence[Endpoint] = (),
) -> SandboxSpec:
    """Return the sandbox the agent works in; `build_dir` is the task's build context, or the copy made of it.

    `endpoints` are the servers that its agents must reach.
    """
    where = f"{task.file}: [environment.env]"
    spec = _spec(task.config.environment, build_dir, config, name, where)
    later = [step.agent_network.with_endpoints(endpoints) for step in task.steps]
    later += [step.verifier.network for step in task.steps if step.verifier.mode == "shared"]
    return replace(spec, mounts=mounts, later_networks=tuple(dict.fromkeys(later)))


def verifier_spec(
    task: Task, step: TaskStep, config: RolloutConfig, name: str, *, build_dir: Path | None
) -> SandboxSpec:
    """Return the sandbox of a separate verifier: its own image, the tests' Dockerfile, or a fresh agent environment."""
    environment, directory = step.verifier.environment or task.config.environment, step.verifier.directory(build_dir)
    spec = _spec(environment, directory, config, name, f"{task.file}: [verifier.environment.env]")
    return replace(spec, network=step.verifier.network)


def _spec(
    environment: EnvironmentConfig, directory: Path | None, config: RolloutConfig, name: str, where: str
) -> SandboxSpec:
    # A prebuilt image contains the base image that the override replaces.
    builds = config.base_image_override is not None and directory is not None and (directory / "Dockerfile").is_file()
    return SandboxSpec(
        name=name,
        environment_dir=directory,
        docker_image=None if builds else environment.docker_image,
        env=resolve_env(environment.env, os.environ, where),
        workdir=environment.workdir,
        network=environment.network,
        limits=Limits(environment.cpus, environment.memory_mb, environment.storage_mb, environment.gpus),
        build_timeout_sec=environment.build_timeout_sec * config.timeout_multiplier,
        force_build=config.force_build,
    )


def make_context(environment: Path, target: Path, *, base_image: str | None, root: Path | None) -> None:
    """Copy a build context to `target` and rewrite the Dockerfile there; the task's own files stay as they are."""
    shutil.copytree(environment, target, symlinks=True)
    file = target / "Dockerfile"
    text = file.read_text("utf-8", errors="surrogateescape")
    if base_image is not None:
        text = with_base(text, base_image)
    if root is not None:
        text = with_sources(text, _ContextFiles(environment, target, root.resolve()).place)
    file.unlink()
    file.write_text(text, "utf-8", errors="surrogateescape")


class _ContextFiles:
    """Copies from the context root what a Dockerfile copies and its own directory does not have."""

    def __init__(self, environment: Path, target: Path, root: Path) -> None:
        self._file = f"{environment.name}/Dockerfile"
        self._environment = environment
        self._root = root
        self._name = _DEPS
        while os.path.lexists(target / self._name):
            self._name += "_"
        self._deps = target / self._name
        self._ignore = target / ".dockerignore"

    def place(self, line: int, source: str) -> str | None:
        """Copy what a source names into the context and return its path there; None if it is to stay as it is."""
        pattern = PurePosixPath(source.lstrip("/"))
        if ".." in pattern.parts:
            raise self._error(line, source, f"leaves the context root {self._root}; write it relative to that")
        if not pattern.parts or _exists(self._environment, pattern):
            return None
        sources = sorted(self._root.glob(str(pattern)))
        for path in sources:
            self._copy(line, source, path)
        return f"{self._name}/{pattern}{'/' if source.endswith('/') else ''}" if sources else None

    def _copy(self, line: int, source: str, path: Path) -> None:
        for inside in (path, *(path.rglob("*") if path.is_dir() else ())):
            if (inside.is_symlink() or inside == path) and not inside.resolve().is_relative_to(self._root):
                raise self._error(line, source, f"{inside} is a link that leaves the context root {self._root}")
        self._make_deps()
        copy = self._deps / path.relative_to(self._root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path.resolve(), copy, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(path, copy)

    def _make_deps(self) -> None:
        """Make the directory for these files, and exempt it from the task's .dockerignore."""
        if not self._deps.exists():
            self._deps.mkdir()
            if self._ignore.is_file():
                self._ignore.write_text(f"{self._ignore.read_text()}\n!{self._name}\n")

    def _error(self, line: int, source: str, what: str) -> BuildError:
        return BuildError(f"{self._file}:{line}: {source}: {what}")


def _exists(directory: Path, pattern: PurePosixPath) -> bool:
    return os.path.lexists(directory / pattern) or next(directory.glob(str(pattern)), None) is not None


async def prepare_environment(
    sandbox: Sandbox, task: Task, config: RolloutConfig, services: Sequence[ServiceConfig] = ()
) -> None:
    """Bring a started sandbox to where the first step of its task can begin."""
    environment = task.config.environment
    check_services(sandbox, task)
    await put_uploads(sandbox, config.uploads)
    await run_setup_commands(sandbox, environment.setup_commands, f"{task.file}: [environment.setup_commands.env]")
    if services:
        from pytest_benchflow.services import start_services

        await start_services(sandbox, services)
    await run_hooks(sandbox, config)
    if environment.healthcheck is not None:
        await wait_until_healthy(sandbox, environment.healthcheck)


async def prepare_step(sandbox: Sandbox, step: TaskStep, config: RolloutConfig) -> None:
    """Put the prompt and the files of a step in place, and wait until the environment is ready."""
    prompt = step.instruction.encode()
    is_protected = step.verifier.hardening.does("protect_logs")
    others = ("/logs/artifacts",) if is_protected else ("/logs/artifacts", "/logs/verifier")
    emptied = empty_dirs_script("/logs/agent", others=others)
    script = _PREPARE_STEP.format(protected=_PROTECTED if is_protected else "", emptied=emptied)
    await exec_checked(sandbox, script, "prepare the workspace", stdin=prompt, timeout_sec=_STEP_TIMEOUT_SEC)
    if step.workdir_dir is not None:
        await sandbox.upload_dir(step.workdir_dir, sandbox.workdir)
        if (step.workdir_dir / "setup.sh").exists():
            await run_command(sandbox, "bash setup.sh", agent_limit(step, config) or UNLIMITED_AGENT_SEC)
    if step.healthcheck is not None:
        await wait_until_healthy(sandbox, step.healthcheck)


async def stop_sandbox(sandbox: Sandbox, recorder: Recorder, *, keep: bool) -> None:
    """Stop the sandbox or leave it for inspection; one that cannot outlive its runner leaves a copy of its files."""
    if keep and not sandbox.capabilities.survives_runner:
        await _copy_workspace(sandbox, recorder)
    await sandbox.stop(delete=not keep)
    recorder.notes += [note for note in sandbox.notes if note not in recorder.notes]
    if keep:
        recorder.write_sandbox(sandbox)


async def _copy_workspace(sandbox: Sandbox, recorder: Recorder) -> None:
    assert recorder.directory is not None  # setup() made it
    reason = f"{recorder.sandbox} sandboxes end with their rollout"
    try:
        async with asyncio.timeout(STOP_TIMEOUT_SEC / 2):
            await sandbox.download_dir(sandbox.workdir, recorder.directory / "workspace")
    except (BenchflowError, OSError) as error:
        recorder.notes.append(f"{reason}, and {sandbox.workdir} could not be copied: {error}")
    else:
        recorder.notes.append(f"{reason}: {sandbox.workdir} is kept as workspace/ beside its result.json")


async def run_command(
    service: Service,
    command: str,
    timeout_sec: float,
    *,
    user: str | int | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a command of the task; one that fails is an error that a retry would not change."""
    try:
        done = await service.exec(command, user=user, cwd=cwd, env=env, timeout_sec=timeout_sec)
    except TimeoutError:
        raise SandboxError(f"{command!r} did not end within {timeout_sec:g} s", retryable=False) from None
    if done.return_code:
        output = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise SandboxError(f"{command!r} ended with status {done.return_code}: {output}", retryable=False)


async def run_setup_commands(sandbox: Sandbox, commands: Sequence[SetupCommand], where: str) -> None:
    """Run the commands that prepare an environment, each in its service; `where` names their table in messages."""
    for setup in commands:
        env = resolve_env(setup.env, os.environ, where)
        service = service_of(sandbox, setup.service)
        await run_command(service, setup.command, setup.timeout_sec, user=setup.user, cwd=setup.cwd, env=env)


async def wait_until_healthy(sandbox: Sandbox, check: Healthcheck) -> None:
    """Probe until one try succeeds; tries that fail within the start period do not count."""
    started = time.monotonic()
    counted = 0
    while True:
        in_start_period = time.monotonic() - started < check.start_period_sec
        failure = await _probe(sandbox, check)
        if failure is None:
            return
        if not in_start_period:
            counted += 1
            if counted >= max(1, check.retries):
                raise BenchflowError(
                    f"healthcheck {check.command!r} failed {counted} times: {failure}", category=Category.HEALTHCHECK
                )
        await asyncio.sleep(check.start_interval_sec if in_start_period else check.interval_sec)


async def _probe(sandbox: Sandbox, check: Healthcheck) -> str | None:
    try:
        done = await sandbox.exec(check.command, timeout_sec=check.timeout_sec)
    except TimeoutError:
        return f"no answer within {check.timeout_sec:g} s"
    return None if done.return_code == 0 else _failure(done)


def _failure(done: ExecResult) -> str:
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    return f"exit status {done.return_code}" + (f", {last[0][:200]}" if last else "")


async def put_uploads(sandbox: Sandbox, uploads: Mapping[str | Path, str]) -> None:
    """Copy host files and directories to where the configuration wants them."""
    for path, target in uploads.items():
        source = Path(path)
        if source.is_dir():
            await sandbox.upload_dir(source, target)
        elif source.is_file():
            await sandbox.upload_file(source, target)
        else:
            raise UsageError(f"uploads: {source} does not exist", advice="name a file or directory of this machine")


def check_services(sandbox: Sandbox, task: Task) -> None:
    """Refuse services that the task names and the started sandbox does not have; only compose knows them all."""
    for path, service, directory in service_mentions(task):
        try:
            if directory == task.environment_dir:
                service_of(sandbox, service)
        except UsageError as error:
            key = ".".join(part for part in path if isinstance(part, str))
            raise UsageError(f"{task.file}: {key} is {service!r}: {error.message}", advice=error.advice) from None


async def run_hooks(sandbox: Sandbox, config: RolloutConfig) -> None:
    """Await the hooks in order; the failure of one is the failure of the rollout."""
    for hook in config.pre_agent_hooks:
        try:
            await hook(sandbox)
        except BenchflowError:
            raise
        except Exception as error:
            name = getattr(hook, "__name__", type(hook).__name__)
            raise SandboxError(f"hook {name}: {type(error).__name__}: {error}", retryable=False) from error


READER = "agent-reader"
_KILL_TIMEOUT_SEC = 60.0

# Links are never followed: a link in the image can point to any path.
_CREATE = """
user={user} work={work}
if ! id -u "$user" >/dev/null 2>&1; then
  useradd -m -U -s /bin/bash "$user" 2>/dev/null || adduser -D -s /bin/bash "$user" 2>/dev/null || {{
    uid=1000
    while cut -d: -f3 /etc/passwd /etc/group | grep -qx "$uid"; do uid=$((uid + 1)); done
    echo "$user:x:$uid:" >>/etc/group && echo "$user:x:$uid:$uid::/home/$user:/bin/bash" >>/etc/passwd || exit 1
  }}
fi
home=$(sed -n "s/^$user:[^:]*:[^:]*:[^:]*:[^:]*:\\([^:]*\\):.*/\\1/p" /etc/passwd)
group=$(id -g "$user") && [ -n "$home" ] && mkdir -p "$home" || exit 1
chown -hR "$user:$group" "$home" || exit 1
case $work in
  / | /bin | /boot | /dev | /etc | /lib* | /proc | /root | /sbin | /sys | /usr | /var) ;;
  *) mkdir -p "$work" && chown -hR "$user:$group" "$work" || exit 1 ;;
esac
for other in /root /home/*; do
  case {guarded}/ in "$other"/*) continue ;; esac
  [ "$other" = "$home" ] || [ -L "$other" ] || [ ! -d "$other" ] || chmod go-rwx "$other" || exit 1
done
chmod 700 "$home" && echo "$home"
"""

# A read-only role gets a user of its own, which does not own the workspace.
_OPEN_TO_READERS = """
chmod -R a+rX,o-w {work} || exit 1
"""

_FIND_HOME = "sed -n 's/^{user}:[^:]*:[^:]*:[^:]*:[^:]*:\\([^:]*\\):.*/\\1/p' /etc/passwd"

# All processes are stopped before any is killed, so that none can fork in between; zombies count as dead.
_KILL = """
uid=$(id -u {user} 2>/dev/null) || exit 0
[ "$uid" != 0 ] || exit 0
mine() {{
  for p in /proc/[0-9]*; do
    [ "$(stat -c %u "$p" 2>/dev/null)" = "$uid" ] || continue
    case $(sed 's/.*) //' "$p/stat" 2>/dev/null) in Z* | X* | '') continue ;; esac
    echo "${{p#/proc/}}"
  done
}}
for round in 1 2 3 4 5 6 7 8 9 10; do
  pids=$(mine)
  [ -n "$pids" ] || exit 0
  kill -STOP $pids 2>/dev/null
  kill -KILL $pids 2>/dev/null
done
[ -z "$(mine)" ]
"""


@dataclass(frozen=True, slots=True)
class SandboxUser:
    """The user that agents run as in a sandbox."""

    name: str | int | None
    home: str
    is_ours: bool = False
    """Whether nothing but agents runs as this user, so that all its processes may be killed."""


async def create_user(sandbox: Sandbox, name: str, timeout_sec: float) -> SandboxUser:
    """Make the user, give it workspace and home, and close the homes of others to it."""
    return await _create(sandbox, name, sandbox.workdir, "", timeout_sec)


async def create_reader(sandbox: Sandbox, timeout_sec: float) -> SandboxUser:
    """Make the user of read-only roles, or let it read what has been added to the workspace since."""
    opening = _OPEN_TO_READERS.format(work=shlex.quote(sandbox.workdir))
    return await _create(sandbox, READER, "/", opening, timeout_sec)


async def _create(sandbox: Sandbox, name: str, work: str, before: str, timeout_sec: float) -> SandboxUser:
    script = before + _CREATE.format(
        user=shlex.quote(name), work=shlex.quote(work), guarded=shlex.quote(sandbox.workdir)
    )
    try:
        done = await sandbox.exec(script, user=0, cwd="/", env=OWN_ENV, timeout_sec=timeout_sec)
    except TimeoutError:
        raise SandboxError(
            f"the sandbox user {name!r} was not ready within {timeout_sec:g} s",
            advice="raise --bf-sandbox-setup-timeout",
        ) from None
    home = done.stdout.strip()
    if done.return_code or not home.startswith("/"):
        output = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise SandboxError(f"could not make the sandbox user {name!r}: {output}", advice="use --bf-sandbox-user none")
    return SandboxUser(name, home, is_ours=True)


async def existing_user(sandbox: Sandbox, user: str | int | None, timeout_sec: float) -> SandboxUser:
    """Return the image's own user, or the one that the task names, with its home."""
    script = 'echo "$HOME"' if user is None else _FIND_HOME.format(user=str(user).partition(":")[0])
    done = await sandbox.exec(script, user=0 if user is not None else None, cwd="/", timeout_sec=timeout_sec)
    home = done.stdout.strip()
    return SandboxUser(user, home if home.startswith("/") and home != "/" else "/root")


async def kill_processes(sandbox: Sandbox, name: str) -> None:
    """Kill all processes of the sandbox user, so that none runs longer than its agent."""
    script = _KILL.format(user=shlex.quote(name))
    purpose = f"kill the processes of the user {name!r}"
    await exec_checked(sandbox, script, purpose, cwd="/", timeout_sec=_KILL_TIMEOUT_SEC)
