"""A running job as text: one line for logs, a block of a few lines for terminals."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING

from pytest_benchflow.core.text import duration, one_line

if TYPE_CHECKING:
    from pytest_benchflow.jobs import Progress, Running

_SHOWN_ROLLOUTS = 5
_WORDS = (("passed", "passed"), ("failed", "failed"), ("error", "errors"), ("skipped", "skipped"), ("cancelled",) * 2)
_STYLES = {"passed": "green", "failed": "red", "error": "red bold", "skipped": "yellow", "cancelled": "yellow"}


def status_line(progress: Progress, now: float) -> str:
    """Return how far a job is: done, running, outcomes, pass rate, reward, cost, tokens, time."""
    return " · ".join(text for text, _ in _parts(progress, now))


def log_line(progress: Progress, now: float) -> str:
    """Return the same with the rollout that runs longest, for a log where nothing is ever replaced."""
    line = f"benchflow: {status_line(progress, now)}"
    if progress.longest:
        first = progress.longest[0]
        line += f" · longest: {one_line(first.task, 40)} ({_phase(first)}, {duration(_since(first.began, now))})"
    return line


def status_block(
    progress: Progress,
    now: float,
    *,
    width: int,
    height: int,
    last_call: Callable[[Running], str | None] = lambda running: None,
    colors: bool = True,
) -> list[str]:
    """Return the lines of the block, none wider than the terminal: how far the job is, and what runs longest."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    head = Text("benchflow ", style="bold", no_wrap=True, overflow="ellipsis")
    for number, (text, style) in enumerate(_parts(progress, now)):
        head.append(" · " if number else "", style="dim")
        head.append(text, style=style or "not bold")
    rows = Table.grid(padding=(0, 2), expand=False)
    for ratio in (3, 2, 1, 1, 4):
        rows.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
    n_rows = max(0, min(_SHOWN_ROLLOUTS, height // 3 - 1))
    for what, since in sorted(progress.work.items(), key=lambda pair: pair[1])[:n_rows]:
        rows.add_row(f"  {one_line(what, 60)}", "", "", duration(_since(since, now)), "", style="cyan")
    for running in progress.longest[: max(0, n_rows - len(progress.work))]:
        rows.add_row(
            f"  {one_line(running.task, 60)}",
            one_line(running.who, 60),
            _phase(running),
            duration(_since(running.began, now)),
            last_call(running) or "",
            style="dim",
        )
    console = Console(
        file=StringIO(),
        width=max(20, width),
        force_terminal=True,
        color_system="standard" if colors else None,
        no_color=not colors,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(head, overflow="ellipsis", no_wrap=True, crop=True)
        if rows.row_count:
            console.print(rows, overflow="ellipsis", crop=True)
    return capture.get().splitlines()


def _parts(progress: Progress, now: float) -> list[tuple[str, str]]:
    parts = [(f"{progress.n_done} of {progress.total} done", "bold")]
    if progress.running:
        parts.append((f"{len(progress.running)} running", ""))
    parts += [
        (f"{progress.statuses[status]} {word}", _STYLES[status]) for status, word in _WORDS if progress.statuses[status]
    ]
    if progress.n_reused:
        parts.append((f"{progress.n_reused} of an earlier run", ""))
    if progress.n_retries:
        parts.append((f"{progress.n_retries} tried again", "yellow"))
    if progress.pass_rate is not None:
        rate, (low, high) = progress.pass_rate
        parts.append((f"pass rate {rate:.0%} ({low:.0%}–{high:.0%})", ""))
    if progress.mean_reward is not None:
        parts.append((f"reward {progress.mean_reward:.2f}", ""))
    if progress.cost_usd is not None:
        parts.append((f"${progress.cost_usd:.2f}" + (" (partial)" if progress.cost_is_partial else ""), ""))
    if progress.tokens is not None:
        parts.append((f"{progress.tokens:,} tokens", ""))
    if progress.began is not None:
        parts.append((duration(_since(progress.began, now)), ""))
    return parts


def _phase(running: Running) -> str:
    attempt = f" (attempt {running.attempt})" if running.attempt > 1 else ""
    return ("waits to try again" if running.waits else running.phase) + attempt


def _since(began: float, now: float) -> float:
    """Return the seconds since then, none if the clock was set back."""
    return max(0.0, now - began)
