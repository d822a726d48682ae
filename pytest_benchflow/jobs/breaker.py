"""The circuit breaker: what has never worked in a run, and fails for the same reason again and again, is not tried on.

A rule of the job. It learns from the ledger, so that all processes of a run come to the same decision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pytest_benchflow.core.errors import BenchflowError, Category
from pytest_benchflow.jobs.model_limits import OBJECTION

if TYPE_CHECKING:
    from pytest_benchflow.jobs.ledger import JobEvent
    from pytest_benchflow.rollout import RolloutConfig

DEFAULT_BREAKER = 5

_OF_AGENT = frozenset(
    {
        Category.INSTALL,
        Category.HANDSHAKE,
        Category.AGENT,
        Category.PROVIDER,
        Category.CREDENTIALS,
        Category.JUDGE,  # which would be paid for nothing, and the agent with it
        Category.INTERNAL,
    }
)
_OF_SANDBOX = frozenset({Category.SANDBOX, Category.BUILD})
_VARYING = re.compile(r"(?:/[^\s/:;,]+)+|[\w.-]+__[0-9a-f]{8}\S*|\b[0-9a-f]{6,}\b|\d+")
"""What differs from rollout to rollout in messages of one cause: paths, names, ids and numbers."""

Scope: TypeAlias = "tuple[str | None, ...]"
"""What may turn out to be broken: an agent with its model and scene, or a sandbox; on all tasks or on a single one."""
Cause: TypeAlias = "tuple[str, str | None, str]"


@dataclass(slots=True)
class _Record:
    """What has become of the rollouts of a scope."""

    works: bool = False
    objected: float = 0.0
    """When a rate limit was last counted as a death."""
    deaths: dict[Cause, set[str]] = field(default_factory=dict)
    """What died of each cause: tasks, or the rollouts of a single task."""
    error: BenchflowError | None = None


class CircuitBreaker:
    """A `StartRule`: once the first rollouts of an agent or a sandbox have died of one cause, no more of them start.

    A scope is one task, where `limit` of its rollouts have to die, or all tasks, where those of `limit` different tasks
    have to: a single task that is broken says nothing of the others. One rollout that was scored ends the suspicion.
    Rollouts that a provider's rate limit ended while they ran side by side are one death: fewer will run next time.
    """

    def __init__(self, limit: int = DEFAULT_BREAKER) -> None:
        self.limit = limit
        self._records: dict[Scope, _Record] = {}
        self._scopes: dict[str, tuple[Scope, Scope]] = {}
        """The agent and the sandbox of each rollout, in the words of its configuration."""
        self._started: dict[str, float] = {}

    def learn(self, event: JobEvent) -> None:
        """Take an event of the job's ledger."""
        if event.kind == "begin":
            self._records.clear()
        elif event.kind == "start":
            agent: Scope = ("agent", event.agent, event.model, event.scene)
            self._scopes[event.key] = agent, ("sandbox", event.sandbox)
            self._started[event.key] = event.ts
        elif event.kind == "end" and not event.reused and not event.refused and event.key in self._scopes:
            agent, sandbox = self._scopes.pop(event.key)
            started = self._started.pop(event.key)
            category = None if event.category is None else Category(event.category)
            if event.status in ("passed", "failed"):
                self._clear(event, agent, sandbox)
            elif event.status == "error" and category in _OF_AGENT:
                self._clear(event, sandbox)
                self._blame(event, agent, category, started)
            elif event.status == "error" and category in _OF_SANDBOX:
                self._blame(event, sandbox, category, started)

    def refusal(self, config: RolloutConfig) -> BenchflowError | None:
        """Return the error of a rollout that would only die as those before it."""
        task = str(config.task_path)
        agent: Scope = ("agent", config.primary_agent, config.primary_model, config.scene)
        sandbox: Scope = ("sandbox", config.sandbox)
        scopes = (agent, (*agent, task), sandbox, (*sandbox, task))
        records = (self._records.get(scope) for scope in scopes)
        return next((record.error for record in records if record is not None and record.error is not None), None)

    def _clear(self, event: JobEvent, *scopes: Scope) -> None:
        for scope in scopes:
            for each in (scope, (*scope, event.task_path)):
                self._records.setdefault(each, _Record()).works = True

    def _blame(self, event: JobEvent, scope: Scope, category: Category, started: float) -> None:
        for each, victim in ((scope, event.task_path), ((*scope, event.task_path), event.key)):
            record = self._records.setdefault(each, _Record())
            if OBJECTION.search(event.message or ""):
                if started < record.objected:
                    continue
                record.objected = event.ts
            victims = record.deaths.setdefault(_cause(event), set())
            victims.add(str(victim))
            if len(victims) >= self.limit and not record.works and record.error is None:
                record.error = self._error(event, scope, category, one_task=each is not scope)

    def _error(self, event: JobEvent, scope: Scope, category: Category, *, one_task: bool) -> BenchflowError:
        whose = "/".join(part for part in scope[1:] if part)
        where = f"{self.limit} rollouts of {event.task}" if one_task else f"rollouts of {self.limit} tasks"
        return BenchflowError(
            f"not started: the first {where} with {scope[0]} {whose} all died of the same {category} error in"
            f" {event.phase}: {event.message}",
            advice="correct that and continue with --bf-resume; --bf-breaker off starts them all the same",
            category=category,
            retryable=False,
        )


def _cause(event: JobEvent) -> Cause:
    text = event.message or ""
    for name in filter(None, (event.rollout, event.task)):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", text)
    return str(event.category), event.phase, _VARYING.sub("…", text)[:200]
