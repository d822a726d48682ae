"""Real npm and pip on packages of our own: the agent has its own node or Python, what it starts has the image's."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pytest_benchflow.agents.bundles.bundle import Bundle, BundleSpec
from pytest_benchflow.agents.bundles.store import BundleStore
from pytest_benchflow.sandboxes import Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bundles are made on Linux")
#: Tells which node runs it, then calls a program by name, another one in node_modules, and a shell.
AGENT_JS = """#!/usr/bin/env node
const { execFileSync } = require("child_process");
const { join } = require("path");
const own = join(__dirname, "..", ".bin", "agent-helper");
console.log(JSON.stringify({
  node: process.execPath,
  arguments: process.argv.slice(2),
  byName: execFileSync("agent-helper").toString(),
  byPath: execFileSync(own).toString(),
  shell: execFileSync("sh", ["-c", "command -v node || echo none"]).toString(),
}));
"""
HELPER_JS = '#!/usr/bin/env node\nprocess.stdout.write(process.execPath + " " + typeof require);\n'
AGENT_PY = """
import json, os, ssl, sqlite3, subprocess, sys, zlib
import agent_library

def main():
    shell = subprocess.check_output(["sh", "-c", "env"], text=True)
    script = "import agent_library; print(agent_library.__file__)"
    own = subprocess.check_output([sys.executable, "-c", script], text=True)
    print(json.dumps({
        "python": sys.executable, "prefix": sys.prefix, "library": agent_library.__file__, "own": own.strip(),
        "cached": os.path.exists(agent_library.__cached__), "arguments": sys.argv[1:],
        "leaked": [line for line in shell.splitlines() if line.startswith(("PYTHON", "LD_"))],
    }))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> BundleStore:
    """Give a store that has the machine's own node as a runtime, so that none is downloaded."""
    store = BundleStore(tmp_path_factory.mktemp("store") / "agents")
    if node := shutil.which("node"):
        home = store.path / "runtimes" / f"node-0.0.1-{os.uname().machine}" / "bin"
        home.mkdir(parents=True)
        shutil.copy2(os.path.realpath(node), home / "node")
    return store


@pytest.fixture
async def node_agent(shared: BundleStore, tmp_path: Path) -> Bundle:
    """Install a package of two programs from a directory."""
    if not shutil.which("npm"):
        pytest.skip("there is no npm here")
    package = tmp_path / "package"
    package.mkdir()
    facts = {"name": "agent", "version": "1.0.0", "bin": {"agent": "agent.js", "agent-helper": "helper.js"}}
    (package / "package.json").write_text(json.dumps(facts))
    (package / "agent.js").write_text(AGENT_JS)
    (package / "helper.js").write_text(HELPER_JS)
    spec = BundleSpec("agent", "1.0", node="0.0.1", npm=(str(package),), programs=("agent", "agent-helper"))
    return await shared.provide(spec)


@pytest.fixture(scope="module")
def python_agent(shared: BundleStore, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Install a wheel made by hand, with the interpreter of this run as its own."""
    wheel = tmp_path_factory.mktemp("wheel") / "agent-1.0-py3-none-any.whl"
    files = {
        "agent_library.py": "",
        "agent_main.py": AGENT_PY,
        "agent-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: agent\nVersion: 1.0\n",
        "agent-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "agent-1.0.dist-info/entry_points.txt": "[console_scripts]\nagent = agent_main:main\n",
        "agent-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    spec = BundleSpec("agent", "1.0", python=version, pip=(str(wheel),), programs=("agent",))
    return asyncio.run(shared.provide(spec))


@pytest.fixture
async def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalBackend]:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path / "cache"))
    backend = LocalBackend()
    yield backend
    await backend.aclose()


async def started(backend: LocalBackend, bundle: Bundle) -> Sandbox:
    sandbox = backend.create(SandboxSpec("agent", mounts=(bundle.mount(),)))
    await sandbox.start()
    return sandbox


async def test_programs_of_npm_run_with_the_bundles_node_and_shells_do_not(
    backend: LocalBackend, node_agent: Bundle
) -> None:
    sandbox = await started(backend, node_agent)
    prefix = await node_agent.deploy(sandbox)
    done = await sandbox.exec(f"env -i PATH=/usr/bin:/bin {prefix}/bin/agent one 'two words'")
    seen = json.loads(done.stdout)
    own = f"{node_agent.target}/runtime/node"
    assert prefix == node_agent.target
    assert (seen["node"], seen["arguments"]) == (own, ["one", "two words"])
    assert seen["byName"] == seen["byPath"] == f"{own} function"
    assert not seen["shell"].startswith(node_agent.target)
    assert (await sandbox.exec(f"ls {prefix}/bin")).stdout.split() == ["agent", "agent-helper"]


async def test_programs_of_pip_run_with_the_bundles_python_and_nothing_leaks(
    backend: LocalBackend, python_agent: Bundle
) -> None:
    sandbox = await started(backend, python_agent)
    prefix = await python_agent.deploy(sandbox)
    done = await sandbox.exec(f"{prefix}/bin/agent one", env={"PYTHONPATH": "/app"}, cwd="/app")
    seen = json.loads(done.stdout)
    assert seen["python"].startswith(f"{prefix}/python/bin/")
    assert seen["prefix"] == f"{prefix}/python"
    assert seen["library"] == seen["own"]
    assert seen["library"].startswith(f"{prefix}/python/")
    assert (seen["cached"], seen["arguments"], seen["leaked"]) == (True, ["one"], ["PYTHONPATH=/app"])


def test_a_bundle_of_python_needs_no_library_of_the_host_but_the_c_library(python_agent: Bundle) -> None:
    home = python_agent.path / "python"
    script = "import ssl, sqlite3, ctypes, bz2, lzma\nprint(open('/proc/self/maps').read())"
    maps = subprocess.run([home / "bin" / "python", "-I", "-c", script], capture_output=True, check=True, text=True)
    libraries = {line.split()[-1] for line in maps.stdout.splitlines() if ".so" in line}
    foreign = {os.path.basename(path).split(".so")[0] for path in libraries if not path.startswith(str(home))}
    assert foreign <= {"libc", "libm", "libdl", "libpthread", "libutil", "librt", "ld-linux-x86-64", "ld-linux-aarch64"}
