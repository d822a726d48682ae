"""Take the pictures of the documentation: `python docs/screenshots.py [JOB]`, by default of a job that it runs itself.

Needs Chromium, and without JOB the agents of `example_job.py`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent / "tests" / "browser")]

from pytest_benchflow.reporting import read_report, write_html  # noqa: E402

IMAGES = DOCS / "images"
WIDTH, HEIGHT = 1180, 780


def main() -> None:
    """Take them all."""
    with tempfile.TemporaryDirectory() as scratch:
        job = Path(sys.argv[1]) if len(sys.argv) > 1 else example(Path(scratch))
        page = Path(scratch) / "page.html"
        report = read_report(job)
        write_html(report.model_copy(update={"job_dir": f"jobs/{job.name}"}), page, title=job.name)
        failed = next(entry.id for entry in report.rollouts if entry.status == "failed" and entry.result.n_tool_calls)
        edited = (
            entry for entry in report.rollouts if entry.status == "passed" and entry.result.agent.startswith("claude")
        )
        passed = next(entry.id for entry in edited if entry.result.n_tool_calls > 5)
        take(page.as_uri(), failed, passed)


def example(scratch: Path) -> Path:
    """Run the example job."""
    import example_job

    example_job.run_job(scratch / "jobs", "nightly", 2)
    return scratch / "jobs" / "nightly"


def take(url: str, failed: str, passed: str) -> None:
    """Take the pictures of a page."""
    from driver import chromium

    IMAGES.mkdir(exist_ok=True)
    with chromium() as browser:
        browser.open(url, width=WIDTH, height=HEIGHT)
        browser.picture(IMAGES / "overview.png")
        browser.run("document.getElementById('heat').scrollIntoView()")
        browser.picture(IMAGES / "tasks.png")
        browser.open(f"{url}{address(failed)}", width=WIDTH, height=HEIGHT, dark=True)
        browser.picture(IMAGES / "rollout-dark.png")
        browser.open(f"{url}{address(passed)}", width=WIDTH, height=HEIGHT)
        browser.wait(".diff")
        browser.run("document.querySelector('.diff').scrollIntoView({block: 'center'})")
        browser.picture(IMAGES / "trajectory.png")
        browser.open(url, width=390, height=780)
        browser.picture(IMAGES / "phone.png")
    for image in sorted(IMAGES.glob("*.png")):
        print(f"{image.relative_to(DOCS)}: {image.stat().st_size / 1000:.0f} kB")


def address(identity: str) -> str:
    """Return where the page of a rollout is."""
    return f"#/rollout/{quote(identity, safe='')}"


if __name__ == "__main__":
    main()
