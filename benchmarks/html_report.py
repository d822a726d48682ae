"""What pages of a large job cost: to write one, to open it and filter it in a browser, to serve it live."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import measure

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "tests" / "browser")]

ROLLOUTS = 1000
EVENTS = 200
AGENTS = 4
_QUICK_AGENTS = ("codex-acp", "pi-acp")
_WORD = re.compile(r"[A-Za-z_]{4,}")
_FILTER = """
const [text] = arguments, search = document.getElementById('search'), began = performance.now();
search.value = text;
search.dispatchEvent(new Event('input'));
document.body.getBoundingClientRect();
return performance.now() - began;
"""


def report(scratch: Path) -> None:
    """Print what a page of 1,000 rollouts with 200 events each takes to write, open, filter and serve."""
    job, page = scratch / "jobs/large", scratch / "large.html"
    size = write_large_job(job, real_rollouts(scratch))
    print(f"{ROLLOUTS} rollouts with {EVENTS} events each: {size / 1e6:.0f} MB of trajectories")
    bf = str(Path(sys.executable).with_name("bf"))
    cost = measure.run([bf, "report", str(job), "-o", str(page)], scratch)
    print(
        f"bf report: {cost.wall:.1f} s, {cost.cpu:.1f} s of CPU (bar 10), {cost.rss_mb:.0f} MB of memory (bar 300),"
        f" the page has {page.stat().st_size / 1e6:.1f} MB (bar 30)"
    )
    in_browser(page)
    served(bf, job.parent)


def in_browser(page: Path) -> None:
    """Print how long the page takes to open, to filter, and to show a rollout."""
    from driver import chromium

    with chromium() as browser:
        began = time.perf_counter()
        browser.driver.get(page.as_uri())
        browser.wait("table.rollouts a")
        opened = time.perf_counter() - began
        times = [float(str(browser.run(_FILTER, text))) for text in ("sql", "sql 7", "", "no such task", "fix", "")]
        shown = time.perf_counter()
        browser.wait("table.rollouts a").click()
        browser.wait(".event")
        shown = time.perf_counter() - shown
    print(f"in Chromium: opens in {opened:.2f} s (bar 2), filters in {max(times):.0f} ms at most (bar 100),")
    print(f"             shows a trajectory in {shown:.2f} s")


def served(bf: str, jobs: Path) -> None:
    """Print how soon `bf view` answers, from its start and when it runs already."""
    began = time.perf_counter()
    viewer = subprocess.Popen([bf, "view", str(jobs), "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert viewer.stdout is not None
        url = viewer.stdout.readline().split()[0]
        started = time.perf_counter() - began
        times = {}
        for name in ("", "overview.json", "job/large/", "job/large/overview.json"):
            began = time.perf_counter()
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url + name).read()
            times[name] = time.perf_counter() - began
    finally:
        viewer.terminate()
        viewer.wait()
    jobs_page, job_page = (times[name] + times[f"{name}overview.json"] for name in ("", "job/large/"))
    print(
        f"bf view: ready in {started:.2f} s; first page with its data {jobs_page:.2f} s (bar 1), a job {job_page:.2f} s"
    )


def real_rollouts(scratch: Path) -> list[Path]:
    """Return the directories of a few rollouts of real agents."""
    import example_job

    example_job.AGENTS = {name: example_job.AGENTS[name] for name in _QUICK_AGENTS}
    example_job.run_job(scratch, "real", 1, "--bf-report-only")
    directories = [path.parent for path in sorted(scratch.glob("real/*/result.json"))]
    if not directories:
        raise SystemExit(f"no rollout; bf agents install {' '.join(_QUICK_AGENTS)}")
    return directories


def write_large_job(job: Path, sources: list[Path]) -> int:
    """Write many rollouts made of real ones, with other words in them; return the size of their trajectories."""
    chance = random.Random(7)
    trajectories = [path / "trajectory/acp_trajectory.jsonl" for path in sources]
    lines = [trajectory.read_text().splitlines() for trajectory in trajectories]
    words = sorted({word for each in lines for line in each for word in _WORD.findall(line)})
    size = 0
    for number in range(ROLLOUTS):
        source = number % len(sources)
        directory = job / f"task-{number // AGENTS}__{number:08x}"
        (directory / "trajectory").mkdir(parents=True)
        result = json.loads((sources[source] / "result.json").read_text())
        task = f"{result['task_name']}-{number // AGENTS}"
        result |= {
            "task_name": task,
            "task_path": f"/tasks/{task}",
            "key": f"tasks/{task}/task.toml::agent-{number % AGENTS}",
            "rollout_name": directory.name,
            "agent": f"agent-{number % AGENTS}",
            "reward": chance.choice((0.0, 0.25, 0.5, 1.0, 1.0)),
            "cost_usd": chance.uniform(0.01, 0.4),
            "rollout_dir": str(directory),
        }
        (directory / "result.json").write_text(json.dumps(result))
        for name in ("config.json", "verifier/test-stdout.txt"):
            (directory / name).parent.mkdir(exist_ok=True)
            shutil.copy(sources[source] / name, directory / name)
        text = "".join(_varied(lines[source], words, chance))
        (directory / "trajectory/acp_trajectory.jsonl").write_text(text)
        size += len(text)
    return size


def _varied(lines: list[str], words: list[str], chance: random.Random) -> Iterator[str]:
    """Yield events of a real trajectory again and again, each time with one word in eight another one."""
    for number in range(EVENTS):
        event = json.loads(lines[number % len(lines)])
        event |= {"seq": number, "ts": event["ts"] + number}
        if "tool_call_id" in event:
            event["tool_call_id"] = f"{event['tool_call_id']}-{number // len(lines)}"
        yield json.dumps(_reworded(event, words, chance)) + "\n"


def _reworded(value: object, words: list[str], chance: random.Random, key: str = "") -> object:
    if isinstance(value, dict):
        return {name: _reworded(each, words, chance, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_reworded(each, words, chance, key) for each in value]
    if not isinstance(value, str) or key in ("type", "tool_call_id", "kind", "status", "path"):
        return value
    return _WORD.sub(lambda match: chance.choice(words) if chance.random() < 0.125 else match[0], value)
