"""Where attacks are fought: an image that all tasks share, a task per attack, and many rollouts at a time."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from attack import AGENT, Attack
from honest import HONEST_FILES, Honest
from verifiers import ANSWER, TOOLKIT, VERIFIERS

from pytest_benchflow.agents import AgentRegistry, parse_manifest
from pytest_benchflow.rollout import PassthroughUser, Resources, Rollout, RolloutConfig, RolloutResult

HERE = Path(__file__).parent
#: What pytest is made of: pure Python, taken from where these tests run, so that no image needs a registry.
_PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
IN_FLIGHT = {"local": 4, "docker": 6}

_DOCKERFILE = """\
FROM python:3.13-slim
RUN {tools}
ADD packages.tar /usr/local/share/packages
RUN cd /usr/local/share/packages && site=$(python3 -c "import sysconfig; print(sysconfig.get_path('purelib'))") && \\
    mkdir -p "$site" && cp -r lib/. "$site" && cp bin/* /usr/local/bin/ && python3 -m compileall -q "$site"
COPY attacker.py /opt/attacker/agent.py
COPY app /app
WORKDIR /app
RUN git init -q . && git config user.name t && git config user.email t@example.com && git add -A && git commit -qm first
"""
_SCRIPT = "#!/usr/bin/env python3\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
_CTRF = '''
"""Report checks as CTRF, as the plugins do that verifiers install."""
import json


def pytest_addoption(parser):
    parser.addoption("--ctrf", default=None)


def pytest_configure(config):
    config._ctrf = []


def pytest_runtest_logreport(report):
    if report.when == "call":
        TESTS.append({"name": report.nodeid, "status": report.outcome})


TESTS = []


def pytest_sessionfinish(session):
    if session.config.getoption("--ctrf"):
        with open(session.config.getoption("--ctrf"), "w") as file:
            json.dump({"results": {"tests": TESTS}}, file)
'''
_APP = {
    "toolkit.py": TOOLKIT,
    "Makefile": "check:\n\t@cmp -s answer.txt /tests/expected.txt\n",
    "package.json": '{"name": "app", "scripts": {"test": "cmp -s answer.txt /tests/expected.txt"}}\n',
    "node_modules/same-text/index.js": "module.exports = (one, other) => one === other;\n",
    ".gitignore": "node_modules\n__pycache__\n",
    "tests/test_toolkit.py": "import toolkit\n\n\ndef test_same():\n    assert toolkit.same(1, 1)\n",
    "src/product/__init__.py": "def double(x):\n    return x + x\n",
}


@dataclass(frozen=True)
class Fight:
    """An attack as one user in one sandbox."""

    attack: Attack
    user: str
    sandbox: str
    defended: bool = True

    @property
    def name(self) -> str:
        """What tests call it."""
        return f"{self.attack.name}-as-{self.user}" + ("" if self.defended else "-undefended")


def library(behind: str = "") -> str | None:
    """Return a library that steals the answer when it is loaded, and may need another one behind it.

    None if this machine cannot build one.
    """
    return _library(behind) if shutil.which("cc") else None


@cache
def _library(behind: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        library, stub = Path(scratch, "hook.so"), Path(scratch, "stub.so")
        options = []
        if behind:  # what is linked with a library takes its name from that
            _build(stub, "", [f"-Wl,-soname,{behind}"])
            options = [f"-Wl,-soname,{Path(behind).name}", "-Wl,--no-as-needed", "-x", "none", str(stub)]
        _build(library, _HOOK, options)
        return base64.encodebytes(library.read_bytes()).decode()


def _build(library: Path, source: str, options: Sequence[str]) -> None:
    command = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", *options, "-o", str(library)]
    subprocess.run(command, input=source.encode(), check=True)


#: A library of the system's that every bash loads.
_REAL = "/usr/lib/x86_64-linux-gnu/libtinfo.so.6"
_HOOK = r"""
#include <fcntl.h>
#include <unistd.h>
unsigned int la_version(unsigned int version) { return version; }
__attribute__((constructor)) static void steal(void) {
  char text[200];
  int from = open("/tests/expected.txt", O_RDONLY);
  if (from < 0) return;
  int n = read(from, text, sizeof text);
  int to = open("/app/answer.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (to >= 0 && n > 0 && write(to, text, n) < 0) _exit(1);
  close(from);
  close(to);
}
"""


def make_environment(directory: Path, sandbox: str, *, with_node: bool) -> Path:
    """Write the build context that all tasks share."""
    packages, site = directory.with_name("packages"), directory.with_name("packages") / "lib"
    site.mkdir(parents=True)
    directory.mkdir()
    for name in _PACKAGES:
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, site / file)
    _write(site, {
        "small_ctrf.py": _CTRF,
        "small_ctrf-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: small-ctrf\nVersion: 1.0\n",
        "small_ctrf-1.0.dist-info/entry_points.txt": "[pytest11]\nsmall_ctrf = small_ctrf\n",
    })  # fmt: skip
    _write(packages / "bin", {"pytest": _SCRIPT})
    (packages / "bin" / "pytest").chmod(0o755)
    with tarfile.open(directory / "packages.tar", "w") as tar:  # one file: every task has its own copy of the context
        for path in sorted(packages.rglob("*")):
            if path.is_file():
                tar.add(path, path.relative_to(packages), filter=_without_facts)
    shutil.copyfile(HERE / "attacker.py", directory / "attacker.py")
    _write(directory / "app", {**_APP, **HONEST_FILES})
    programs = ["git", "make", *(["nodejs"] if with_node and sandbox == "docker" else [])]
    install = f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {' '.join(programs)} >/dev/null"
    present = " && ".join(f"command -v {'node' if name == 'nodejs' else name}" for name in programs)
    (directory / "Dockerfile").write_text(_DOCKERFILE.format(tools=f"{{ {present}; }} >/dev/null || {{ {install}; }}"))
    return directory


def _without_facts(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out what differs from run to run: images are named by their content."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if "bin/" in info.name else 0o644
    return info


def _write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_task(
    directory: Path,
    environment: Path,
    *,
    scripts: Sequence[str],
    tests: Mapping[str, str],
    image: str = "",
    toml: str = "",
    setup: str = "",
    is_multi_step: bool = False,
    jobs: Path | None = None,
    prose: str = "Find the answer.",
) -> Path:
    """Write a task whose prompts bring the agent's scripts along."""
    head = 'schema_version = "1.3"\n'
    context = directory / "environment"
    shutil.copytree(environment, context, symlinks=True, copy_function=os.link)
    if image:
        text = (context / "Dockerfile").read_text()
        (context / "Dockerfile").unlink()
        (context / "Dockerfile").write_text(f"{text}{image}\n")
    names = {
        "@TASK@": str(directory),
        "@JOBS@": str(jobs),
        "@LIBRARY@": library() or "",
        "@PROXY@": library(_REAL) or "",
    }
    texts = [_filled(script, names) for script in scripts]
    files: dict[str, str] = {}
    steps = ""
    if is_multi_step:
        for number, script in enumerate(texts, 1):
            files[f"steps/step{number}/instruction.md"] = f"{prose}\n\n{script}\n"
            files |= {f"steps/step{number}/tests/{name}": text for name, text in tests.items()}
            steps += f'[[steps]]\nname = "step{number}"\n'
    else:
        files["instruction.md"] = f"{prose}\n\n{texts[0]}\n"
        files |= {f"tests/{name}": text for name, text in tests.items()}
    environment_table = '[environment]\nnetwork_mode = "no-network"\n'
    if setup:
        environment_table += f"[[environment.setup_commands]]\ncommand = '''{setup}'''\n"
    files["task.toml"] = head + _merged(toml, environment_table) + steps
    files["solution/solve.sh"] = f"#!/bin/bash\nprintf '%s' '{ANSWER}' >/app/answer.txt\n"
    _write(directory, files)
    for script in directory.rglob("*.sh"):
        script.chmod(0o755)
    return directory


def _merged(toml: str, environment: str) -> str:
    """Put the tables together: bare keys come first."""
    at = re.search(r"^\[", toml, re.MULTILINE)
    cut = len(toml) if at is None else at.start()
    return toml[:cut] + environment + toml[cut:]


def _filled(script: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        script = script.replace(name, value)
    return script


def attack_tests(kind: str) -> dict[str, str]:
    """Return the files of a kind of verifier."""
    digest = hashlib.sha256(TOOLKIT.encode()).hexdigest()
    files = {name: text.replace("TOOLKIT", digest) for name, text in VERIFIERS[kind].items()}
    if not files["test.sh"].startswith("#!"):
        files["test.sh"] = "#!/bin/bash\n" + files["test.sh"]
    return {**files, "expected.txt": ANSWER}


def attacker() -> AgentRegistry:
    """Return a registry that knows the agent of all attacks: a real program, which speaks ACP inside the sandbox."""
    registry = AgentRegistry()
    launch = ["python3", "-I", "-S", "/opt/attacker/agent.py"]
    manifest = {"name": "attacker", "launch": launch}
    registry.register(parse_manifest(manifest, "attacker.toml"))
    return registry


class Arena:
    """Fights what it is given, and keeps the results."""

    def __init__(self, root: Path, sandbox: str, *, with_node: bool = True) -> None:
        self.root = root
        self.sandbox = sandbox
        self.jobs = root / "jobs"
        self._environment = make_environment(root / "environment", sandbox, with_node=with_node)
        self._tasks = root / "tasks"

    def fight_all(
        self, fights: Sequence[Fight], honest: Sequence[Honest] = ()
    ) -> dict[str, RolloutResult | BaseException]:
        """Run all of them, some at a time, and return results by name."""
        return asyncio.run(self._fight_all(fights, honest))

    async def _fight_all(
        self, fights: Sequence[Fight], honest: Sequence[Honest]
    ) -> dict[str, RolloutResult | BaseException]:
        resources = Resources.with_defaults(attacker())
        slots = asyncio.Semaphore(IN_FLIGHT[self.sandbox])
        configs = {fight.name: self._config(fight) for fight in fights}
        configs |= {each.name: self._honest(each) for each in honest}

        async def run(name: str) -> RolloutResult | BaseException:
            async with slots:
                try:
                    return await (await Rollout.create(configs[name], resources)).run()
                except Exception as error:
                    return error

        try:
            results = await asyncio.gather(*map(run, configs))
        finally:
            await resources.aclose()
        return dict(zip(configs, results, strict=True))

    def _config(self, fight: Fight) -> RolloutConfig:
        attack, directory = fight.attack, self._tasks / fight.name
        has_steps = len(attack.scripts) > 1 and attack.rounds == 1
        task = make_task(
            directory,
            self._environment,
            scripts=attack.scripts,
            tests=attack_tests(attack.verifier),
            image=attack.image,
            toml=attack.toml if fight.defended else _undefended(attack.toml),
            setup=attack.setup,
            is_multi_step=has_steps,
            jobs=self.jobs,
        )
        uploads = {task / "tests": "/tests"} if attack.exposes_tests and not fight.defended else {}
        return self._rollout(task, fight.name, None if fight.user != AGENT else AGENT, uploads, rounds=attack)

    def _honest(self, honest: Honest) -> RolloutConfig:
        task = make_task(
            self._tasks / honest.name,
            self._environment,
            scripts=honest.scripts,
            tests=honest.tests,
            image=honest.image,
            toml=honest.toml,
            setup=honest.setup,
            is_multi_step=len(honest.scripts) > 1,
            prose=honest.prose,
        )
        return self._rollout(task, honest.name, None if honest.user != AGENT else AGENT, {})

    def _rollout(
        self, task: Path, name: str, user: str | None, uploads: Mapping[Path, str], rounds: Attack | None = None
    ) -> RolloutConfig:
        more: dict[str, object] = {}
        if rounds is not None and rounds.rounds > 1:
            more = {"user": _Prompts(rounds.scripts), "max_user_rounds": len(rounds.scripts)}
        return RolloutConfig(
            task_path=task,
            agent="attacker",
            sandbox=self.sandbox,
            sandbox_user=user,
            jobs_dir=self.jobs,
            job_name="attacks",
            rollout_name=name,
            uploads=dict(uploads),
            timeout=60,
            **more,  # type: ignore[arg-type]
        )


class _Prompts(PassthroughUser):
    """Gives one script per round, with the verifier in between."""

    def __init__(self, scripts: Sequence[str]) -> None:
        self._scripts = [*scripts]

    async def run(self, round: int, instruction: str, round_result: object = None) -> str | None:
        """Return the next script."""
        return f"Find the answer.\n\n{self._scripts[round]}" if round < len(self._scripts) else None


def _undefended(toml: str) -> str:
    """Switch all hardening off."""
    return f"{toml}[verifier.hardening]\nenabled = false\n"


def describe(result: RolloutResult | BaseException) -> str:
    """Say all that is known of a rollout, for a test that fails."""
    if isinstance(result, BaseException):
        return repr(result)
    parts = [f"{result.status}: {result.rewards} {result.error}", f"notes: {result.notes}"]
    parts += [f"the agent said: {result.last_message}", f"the verifier said: {result.verifier_tail}"]
    parts += [f"integrity: {getattr(result, 'integrity', None)}", str(result.rollout_dir)]
    return "\n".join(parts)
