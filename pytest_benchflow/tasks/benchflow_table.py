"""The `benchflow` table: how pytest treats the task, and the document settings of the native layout."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from .values import Count, Number, Seconds, Table, Trials, VersionText, quoted, refuse


def _reason(value: object) -> object:
    if isinstance(value, bool):
        return "as the task file says" if value else None
    if not isinstance(value, str) or not value.strip():
        raise refuse(f"is {quoted(value)}", "give the reason as a string, or true")
    return value


Reason = Annotated[str | None, BeforeValidator(_reason)]


class PromptPolicy(Table):
    """How base, role, scene and turn prompts are joined."""

    composition: Literal["append", "replace"] | None = None
    order: tuple[Literal["base", "role", "scene", "turn"], ...] = ("base", "role", "scene", "turn")


class Nudges(Table):
    """A simulated user that answers the agent."""

    mode: str | None = None
    nudge_budget: Count | None = None
    branchable: bool = False
    branch_execution: str | None = None
    confirmation_policy: str | dict[str, object] | None = None


class Handoff(Table):
    """What one role of a team sees of another's work."""

    mode: str = "sequential"
    workspace_visibility: str = "shared"
    trajectory_visibility: str = "none"


class Team(Table):
    """Roles that work together."""

    roles: tuple[str, ...] = ()
    handoff: Handoff = Field(default_factory=Handoff)


class BenchflowConfig(Table):
    """Run hints first; the rest is the native document's, and what is not implemented is refused when run."""

    threshold: Number | None = None
    trials: Trials | None = None
    timeout_sec: Seconds | None = None
    quarantine: bool = False
    skip: Reason = None
    xfail: Reason = None
    document_version: VersionText | None = None
    prompt: PromptPolicy | None = None
    nudges: Nudges | None = None
    teams: dict[str, Team] = Field(default_factory=dict)
    environment: dict[str, object] = Field(default_factory=dict)
    verifier: dict[str, object] = Field(default_factory=dict)
    compatibility: dict[str, object] = Field(default_factory=dict)
    compat: dict[str, object] = Field(default_factory=dict)
    evidence: dict[str, object] = Field(default_factory=dict)
    provenance: dict[str, object] = Field(default_factory=dict)
    assets: dict[str, object] | tuple[object, ...] = Field(default_factory=dict)
    secrets: dict[str, object] | tuple[object, ...] = Field(default_factory=dict)
    agent_policy: dict[str, object] = Field(default_factory=dict)
    runtime_policy: dict[str, object] = Field(default_factory=dict)
