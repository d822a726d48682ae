"""Run a small benchmark with real agents for the pictures and the speed of reports; a scripted model answers them.

    python docs/example_job.py JOBS_DIR [--trials N]

Tasks are those of the demo benchmark. What the model says and does is made up of their solutions, right or not quite,
so the numbers say nothing of any agent; the trajectories are what these agents make of it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from model_server import ModelServer, Reply, Run, Say, Together, Write  # noqa: E402
from model_server.scripts import Script  # noqa: E402

#: Agents, the model that each is given and the name that the server knows it by.
AGENTS = {
    "claude-agent-acp": ("claude-scripted", "claude-scripted"),
    "codex-acp": ("codex-scripted", "codex-scripted"),
    "opencode": ("openai/opencode-scripted", "opencode-scripted"),
    "pi-acp": ("openai/pi-scripted", "pi-scripted"),
}
KEYS = {"ANTHROPIC_API_KEY": "example-anthropic-key", "OPENAI_API_KEY": "example-openai-key"}
#: Where the file of each task's solution goes, and how an agent could look at its work.
TASKS = {
    "hello-world": ("hello.txt", "cat hello.txt"),
    "fix-cache-stampede": ("memo.py", "python3 -m py_compile memo.py && echo compiles"),
    "fix-incremental-build": ("forge.py", "python3 -m py_compile forge.py && echo compiles"),
    "flag-rule-language": ("flagrule.py", "python3 -m py_compile flagrule.py && echo compiles"),
    "normalise-dates": ("dates.py", "python3 -m py_compile dates.py && echo compiles"),
    "posix-rotate-logs": ("rotate.sh", "sh -n rotate.sh && echo parses"),
    "repair-relay-config": ("config/relay.toml", "python3 bin/check-config config/relay.toml"),
    "speed-up-matching": ("ledger/matching.py", "python3 -m py_compile ledger/matching.py && echo compiles"),
    "sql-top-customers": ("query.sql", "head -5 query.sql"),
}
#: How many of the tasks, from the first, each model gets right.
SKILL = {"claude-scripted": 8, "codex-scripted": 7, "opencode-scripted": 5, "pi-scripted": 3}


def main() -> None:
    """Run the job that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs_dir", type=Path)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--name", default="nightly")
    options = parser.parse_args()
    sys.exit(run_job(options.jobs_dir, options.name, options.trials))


def run_job(jobs_dir: Path, name: str, trials: int, *more: str) -> int:
    """Run the benchmark; return pytest's exit status."""
    with ModelServer(models=list(SKILL), strict=True, keys=set(KEYS.values())) as server:
        server.scripts += scripts()
        places = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
        words = [
            *[str(ROOT / "tasks" / task) for task in TASKS],
            f"--bf-agent={','.join(AGENTS)}",
            *[f"--bf-model={agent}={model}" for agent, (model, _) in AGENTS.items()],
            *[f"--bf-agent-env={key}={value}" for key, value in places.items()],
            "--bf-sandbox=local",
            "--bf-concurrency=2",
            f"--bf-trials={trials}",
            f"--bf-jobs-dir={jobs_dir.absolute()}",
            f"--bf-job-name={name}",
            f"--bf-json={jobs_dir.absolute() / name}.json",
        ]
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
        return subprocess.run([*command, *words, *more], cwd=ROOT, env={**os.environ, **KEYS}, check=False).returncode


def scripts() -> Iterator[Script]:
    """Yield what each model answers to each task."""
    for place, (task, (file, check)) in enumerate(TASKS.items()):
        prompt = (ROOT / "tasks" / task / "instruction.md").read_text().strip()[:80]
        solution = ROOT / "tasks" / task / "solution" / Path(file).name
        right = solution.read_text() if solution.exists() else "Hello, world!\n"
        for model, skill in SKILL.items():
            yield Script(tuple(replies(task, file, check, right, is_right=place < skill)), prompt=prompt, model=model)


def replies(task: str, file: str, check: str, right: str, *, is_right: bool) -> Iterator[Reply]:
    """Yield how a model goes about a task: look, try, look again, and say what came of it."""
    yield Together(
        (Run(f"ls -la && sed -n 1,60p {file}"),), text="I'll look at what is there before I change anything."
    )
    yield Run("find . -type f -not -path './.git/*' | head -40 | xargs wc -l")
    lines = right.splitlines(keepends=True)
    draft = "".join(lines[: max(1, len(lines) * 2 // 3)])
    yield Together((Write(f"/app/{file}", draft),), text=f"A first version of `{file}`.")
    yield Run(f"{check}; tail -3 {file}")
    if is_right:
        yield Together(
            (Write(f"/app/{file}", right),), text="That leaves out the last part. I'll write the whole of it."
        )
        yield Run(f"chmod +x {file} 2>/dev/null; {check}")
    yield Say(
        f"## What I did\n\nI rewrote `{file}` for **{task}**:\n\n"
        f"- read the old version and what uses it\n- wrote {len(lines)} lines\n- ran `{check}`\n\n"
        + ("Everything the task asks for is there." if is_right else "The hardest cases may still be missing.")
    )


if __name__ == "__main__":
    main()
