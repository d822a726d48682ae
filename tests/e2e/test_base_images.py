"""Small tasks in the shapes that public benchmarks have: what their base images promise holds without images too."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from project import Project

Rewards = Mapping[str, float | None]

CHECK = "{ %s; } && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt"
HEREDOCS = """FROM debian:bookworm-slim
WORKDIR /app
RUN cat << 'EOF' > /app/greet.sh
#!/bin/sh
# not an instruction
echo "hello $1"
EOF
RUN <<EOF
chmod +x greet.sh
echo $((1 << 3)) > /app/eight
EOF
"""
SERVE = """
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n' > /app/token
cd /app && nohup python3 -m http.server 8437 --bind 127.0.0.1 >/dev/null 2>&1 &
for _ in $(seq 50); do python3 -c "import socket; socket.create_connection(('127.0.0.1', 8437))" 2>/dev/null && break
sleep 0.1; done
"""
SERVED = """python3 -c "import urllib.request as u
assert u.urlopen('http://127.0.0.1:8437/token').read() == open('/app/token', 'rb').read() != b''" """
ENTRYPOINT = r"""FROM debian:bookworm-slim
WORKDIR /app
RUN printf '#!/bin/bash\necho "$GREETING" >/etc/greeting\npython3 -m http.server 8438 >/dev/null 2>&1 &\n' >/enter && \
    printf 'until (: </dev/tcp/127.0.0.1/8438) 2>/dev/null; do sleep 0.1; done\nexec "$@"\n' >>/enter && chmod +x /enter
ENV GREETING=hello
ENTRYPOINT ["/enter"]
CMD ["false"]
"""
PYTHON = """FROM python:3.12-slim
RUN python --version && python3 --version && pip --version
COPY tiny-1.0-py3-none-any.whl /tmp/
RUN pip install --no-cache-dir --no-index /tmp/tiny-1.0-py3-none-any.whl
WORKDIR /app
"""
SSH = """FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends openssh-server openssh-client sshpass sgml-data
RUN useradd -m -s /bin/bash worker && echo worker:first | chpasswd && mkdir -p /run/sshd
WORKDIR /app
"""
LOGIN = "sshpass -p second ssh -p 2297 -o StrictHostKeyChecking=no worker@127.0.0.1 id -un | grep -q worker"
UV = """FROM python:3.12-slim
COPY --from=images.example/astral-sh/uv:0.8.14 /uv /uvx /usr/local/bin/
RUN uv pip install --system six
WORKDIR /app
"""


def write_wheel(directory: Path) -> None:
    """Write the smallest package that pip can install."""
    with zipfile.ZipFile(directory / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "WORD = 'tiny'\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")


def read_rewards(report: Path) -> Rewards:
    """Return the reward of each task and agent."""
    rollouts = json.loads(report.read_text())["rollouts"]
    return {re.sub("/.*::", "::", entry["id"]): entry["result"]["reward"] for entry in rollouts}


def rewards(project: Project, sandbox: str, **env: str) -> Rewards:
    """Run nop and oracle on every task."""
    report = project.root / "report.json"
    project.run("--bf-selftest", "--bf-sandbox", sandbox, "--bf-json", str(report), env=env, timeout_sec=500)
    return read_rewards(report)


def expected(*tasks: str) -> Rewards:
    """Return what a sound task gives: nothing to idleness, all to its solution."""
    return {f"{task}::{agent}": reward for task in tasks for agent, reward in (("nop", 0.0), ("oracle", 1.0))}


@pytest.fixture(scope="module")
def plain(new_project: Callable[..., Project]) -> Project:
    """Give tasks that only need the system's own programs."""
    project = new_project()
    project.task(
        "heredocs",
        dockerfile=HEREDOCS,
        solve="./greet.sh you > said",
        test=CHECK % ('grep -qx "hello you" /app/said && [ "$(cat /app/eight)" = 8 ]'),
    )
    project.task("server", solve=SERVE, test=CHECK % SERVED)
    ask = "import urllib.request as u; u.urlretrieve('http://127.0.0.1:8438/', '/tmp/page')"
    project.task(
        "entrypoint",
        dockerfile=ENTRYPOINT,
        solve="cp /etc/greeting said",
        test=CHECK % f'[ "$(cat /app/said)" = hello ] && python3 -c "{ask}"',
    )
    return project


def test_servers_entrypoints_and_here_documents_work(plain: Project) -> None:
    assert rewards(plain, "local") == expected("heredocs", "server", "entrypoint")


@pytest.mark.docker
def test_docker_gives_them_the_same_rewards(plain: Project) -> None:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    seen = rewards(plain, "docker", DOCKER_HOST=address)
    if subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode:
        # Without it Docker itself cannot read here-documents.
        seen = {**seen, **expected("heredocs")}
    assert seen == expected("heredocs", "server", "entrypoint")


def test_languages_are_those_of_the_host_or_refused_before_anything_starts(new_project: Callable[..., Project]) -> None:
    project = new_project()
    uses = "python -c 'import tiny, sys; print(tiny.WORD, sys.prefix)'"
    python = project.task(
        "python",
        dockerfile=PYTHON,
        solve=f"{uses} > done",
        test=CHECK % (f'[ "$({uses})" = "tiny /usr/local" ] && [ "$(cat /app/done)" = "tiny /usr/local" ]'),
    )
    write_wheel(python / "environment")
    project.task("other", dockerfile="FROM example.org/nobody/knows:1\n")
    project.task("broken", dockerfile="FROM python:3.12\nRUN echo the end; exit 3\n")
    sound = ["python"]
    if shutil.which("node", path="/usr/bin:/usr/local/bin"):
        node = "FROM node:20-slim\nRUN node --version && npm --version && npx --version\nWORKDIR /app\n"
        solve = "echo 'console.log(6 * 7)' > answer.js"
        project.task("node", dockerfile=node, solve=solve, test=CHECK % '[ "$(node /app/answer.js)" = 42 ]')
        sound.append("node")
    project.task("golang", dockerfile="FROM golang:99.1\n")
    done = project.run("--bf-agent", "nop,oracle", "--bf-json", "report.json", "--bf-retries", "0", timeout_sec=300)
    rollouts = json.loads((project.root / "report.json").read_text())["rollouts"]
    text = done.stdout.str()
    for name, reward in expected(*sound).items():
        assert read_rewards(project.root / "report.json")[name] == reward, text
    for refusal in (
        "Dockerfile:1: FROM example.org/nobody/knows:1: nothing on this host stands in for this image; use --bf-sandb",
        "Dockerfile:1: FROM golang:99.1: ",
    ):
        assert refusal in text
    # Also where the build fails, and once however many rollouts there are.
    notes = [line for line in done.outlines if line.startswith("note: FROM python:3.12 has Python 3.")]
    assert len(notes) == 1
    assert notes[0].endswith("(2 rollouts)")
    broken = next(entry["result"] for entry in rollouts if "broken" in entry["id"])
    assert any(note.startswith("FROM python:3.12 has") for note in broken["notes"])


@pytest.mark.registries
def test_packages_ssh_and_uv_work(new_project: Callable[..., Project]) -> None:
    project = new_project()
    start = "echo worker:second | chpasswd && /usr/sbin/sshd -p 2297"
    project.task("ssh", dockerfile=SSH, solve=start, test=CHECK % LOGIN)
    six = "import six; print(six.__name__)"
    project.task(
        "uv",
        dockerfile=UV,
        solve=f'uv run --no-project python -c "{six}" > done',
        test=CHECK % (f'grep -qx six /app/done && [ "$(python -c "{six}")" = six ] && uvx --version | grep -q 0.8.14'),
    )
    assert rewards(project, "local") == expected("ssh", "uv")
