"""`TaskHead`, the little that collection needs of a task: plain data, no pydantic, no YAML."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .problems import Problem


@dataclass(frozen=True, slots=True)
class RunHints:
    """What a task file asks of pytest; None means nothing was said."""

    threshold: float | None = None
    trials: int | None = None
    timeout_sec: float | None = None
    quarantine: bool = False
    skip: str | None = None
    xfail: str | None = None


@dataclass(frozen=True, slots=True)
class TaskHead:
    """A task as collection sees it."""

    file: str
    name: str
    layout: str
    os: str
    difficulty: str | None
    category: str | None
    tags: tuple[str, ...]
    run: RunHints
    n_steps: int
    has_solution: bool
    warnings: tuple[Problem, ...]

    def solved(self, has_solution: bool) -> TaskHead:
        """Return the head with another answer to whether the oracle can run."""
        return replace(self, has_solution=has_solution)

    def to_json(self) -> list[object]:
        """Return the head as JSON data."""
        run = self.run
        return [
            self.file, self.name, self.layout, self.os, self.difficulty, self.category, self.tags,
            [run.threshold, run.trials, run.timeout_sec, run.quarantine, run.skip, run.xfail],
            self.n_steps, self.has_solution,
            [[p.file, p.line, p.key, p.reason, p.fix, p.severity] for p in self.warnings],
        ]  # fmt: skip

    @classmethod
    def from_json(cls, values: list[object]) -> TaskHead:
        """Return the head that `to_json` wrote; whatever does not fit raises an ordinary exception."""
        file, name, layout, os_, difficulty, category, tags, run, n_steps, has_solution, warnings = values
        return cls(
            file, name, layout, os_, difficulty, category,  # type: ignore[arg-type]
            tuple(tags), RunHints(*run), n_steps, has_solution,  # type: ignore[arg-type, misc]
            tuple(Problem(*problem) for problem in warnings),  # type: ignore[attr-defined]
        )  # fmt: skip

