"""`task.toml` as a typed model: every key of Harbor's schema 1.4 and BenchFlow's additions to it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from .benchflow_table import BenchflowConfig
from .environment import EnvironmentConfig, Healthcheck, check_hosts
from .names import is_package_name
from .values import (
    DirectoryName,
    Env,
    Host,
    NonEmpty,
    PhaseNetworkMode,
    Seconds,
    Table,
    User,
    VersionText,
    folded,
    quoted,
    refuse,
)
from .verifier import VerifierConfig

if TYPE_CHECKING:
    from .document import DocumentConfig


def package_name(value: str) -> str:
    """Return a name of the form organisation/name, or refuse it."""
    if not is_package_name(value):
        raise refuse(f"is {quoted(value)}", "give organisation/name, for example acme/hello-world")
    return value


class Author(Table):
    """Who wrote the task."""

    name: str
    email: str | None = None


class PackageInfo(Table):
    """`[task]`: identity of the task as a package."""

    name: Annotated[str, AfterValidator(package_name)]
    version: Annotated[VersionText, Field(min_length=1)] | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


class AgentConfig(Table):
    """`[agent]`: limits of the agent phase; an absent timeout is no limit."""

    timeout_sec: Seconds | None = None
    user: User | None = None
    network_mode: PhaseNetworkMode | None = None
    allowed_hosts: tuple[Host, ...] | None = None
    prompt_prefix: str | None = None

    @model_validator(mode="after")
    def _hosts_match_mode(self) -> Self:
        check_hosts(self.network_mode, self.allowed_hosts)
        return self


class SolutionConfig(Table):
    """`[solution]`: how the oracle runs."""

    env: Env = Field(default_factory=dict)
    timeout_sec: Seconds | None = None


class Artifact(Table):
    """A path to keep from the sandbox."""

    source: NonEmpty
    destination: str | None = None
    exclude: tuple[str, ...] = ()
    service: NonEmpty = "main"

    @field_validator("source")
    @classmethod
    def _source_stays(cls, value: str) -> str:
        if ".." in PurePosixPath(value).parts:
            raise refuse(f"is {quoted(value)}", "write the path without ..")
        return value

    @field_validator("destination")
    @classmethod
    def _destination_stays(cls, value: str | None) -> str | None:
        if value is None:
            return None
        path = PurePosixPath(value)
        if not value or path.is_absolute() or ".." in path.parts or "\\" in value or re.match(r"[A-Za-z]:", value):
            raise refuse(f"is {quoted(value)}", "give a path relative to artifacts/, without .. or backslash")
        if str(path) == "manifest.json":
            raise refuse('is "manifest.json"', "choose another name, this file is written by the runner")
        return value

    @model_validator(mode="after")
    def _sidecar_source_is_absolute(self) -> Self:
        if self.service != "main" and not self.source.startswith("/"):
            fix = f"a path in the service {self.service} must be absolute"
            raise refuse(f"is {quoted(self.source)}", fix, "source")
        return self


def _artifact(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


Artifacts = tuple[Annotated[Artifact, BeforeValidator(_artifact)], ...]


def _minimum(value: object) -> object:
    numbers = value.values() if isinstance(value, dict) else [value]
    if any(isinstance(n, bool) or not isinstance(n, int | float) or n != n for n in numbers):
        raise refuse(f"is {quoted(value)}", "give a number, or a table of numbers by reward key")
    return value


class StepConfig(Table):
    """One of `[[steps]]`, as written; `Stage` is the same with inheritance applied."""

    name: DirectoryName
    agent: AgentConfig = Field(default_factory=AgentConfig)
    verifier: VerifierConfig = Field(default_factory=VerifierConfig)
    min_reward: Annotated[float | dict[str, float], BeforeValidator(_minimum)] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: Artifacts = ()


class TaskConfig(Table):
    """The whole of `task.toml`."""

    schema_version: VersionText = "1.4"
    task: PackageInfo | None = None
    metadata: dict[str, object] = Field(default_factory=dict)
    verifier: VerifierConfig = Field(default_factory=VerifierConfig)
    agent: AgentConfig = Field(default_factory=AgentConfig)
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig)
    solution: SolutionConfig = Field(default_factory=SolutionConfig)
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: tuple[StepConfig, ...] = ()
    artifacts: Artifacts = ()
    reward: dict[str, object] = Field(default_factory=dict)
    benchflow: BenchflowConfig = Field(default_factory=BenchflowConfig)

    def as_document(self) -> DocumentConfig | None:
        """Return it as the front matter of a `task.md`, if that is what it is."""
        return None

    @field_validator("steps")
    @classmethod
    def _names_differ(cls, steps: tuple[StepConfig, ...]) -> tuple[StepConfig, ...]:
        seen: dict[str, str] = {}
        for step in steps:
            other = seen.setdefault(folded(step.name), step.name)
            if other is not step.name:
                same = quoted(step.name) if other == step.name else f"{quoted(other)} and {quoted(step.name)}"
                raise refuse(f"has two steps named {same}", "each step is a directory, give each its own name")
        return steps
