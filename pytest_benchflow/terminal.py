"""What the user sees when the items are known; only where pytest was started."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchflow.this_run import Run


def header(run: Run, n_items: int) -> list[str]:
    """Return one line, and what else is to know: who runs, where and why there, how many, and where the results go."""
    played = ((cell.agent, cell.model) for cell in run.cells(1))
    agents = ", ".join(dict.fromkeys("/".join(part for part in pair if part) for pair in played))
    what = f"{n_items} rollout" + ("" if n_items == 1 else "s")
    place = run.settings.jobs_dir / run.job_name
    line = (
        f"benchflow: {what} · agent {agents} · sandbox {run.sandbox_name} ({run.sandbox_reason}) · "
        f"{run.in_flight} at a time · results in {run.shown(str(place))}"
    )
    return [line, *(f"note: {note}" for note in run.notes)]
