"""`task.toml` as typed models: every key of Harbor's schema 1.4 and BenchFlow's additions to it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, field_validator, model_validator

from pytest_benchflow.configfile import (
    Count,
    Cpus,
    DirectoryName,
    Env,
    Host,
    Megabytes,
    NonEmpty,
    Number,
    PhaseNetworkMode,
    Seconds,
    Table,
    Trials,
    User,
    VersionText,
    folded,
    quoted,
    rule_error,
)
from pytest_benchflow.core.network import Network, NetworkMode
from pytest_benchflow.tasks.layout import is_package_name

if TYPE_CHECKING:
    from pytest_benchflow.tasks.document import DocumentConfig


class Healthcheck(Table):
    """A command that must succeed before the agent starts."""

    command: NonEmpty
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: Count = 3


def _topology(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"\d+(x\d+)+", value):
        raise rule_error(f"is {quoted(value)}", "give the chips per dimension, for example 2x4")
    return value


class Tpu(Table):
    """An accelerator slice."""

    type: NonEmpty
    topology: Annotated[str, BeforeValidator(_topology)]


def _transport(value: object) -> object:
    return "streamable-http" if value == "http" else value


_CREDENTIAL = re.compile(r"auth|token|secret|api-?_?key|password|cookie|credential", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}")


class McpServer(Table):
    """A server the agent is told about; nothing here starts it."""

    name: NonEmpty
    transport: Annotated[Literal["sse", "stdio", "streamable-http"], BeforeValidator(_transport)] = "sse"
    url: NonEmpty | None = None
    command: NonEmpty | None = None
    args: tuple[str, ...] = ()
    cwd: str | None = None
    env: Env = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    include_tags: tuple[str, ...] | None = None
    exclude_tags: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.transport == "stdio" and self.command is None:
            raise rule_error("is missing", "a stdio server needs the command that starts it", "command")
        if self.transport != "stdio" and self.url is None:
            raise rule_error("is missing", f"a server with transport {self.transport} needs its url", "url")
        for name, value in self.headers.items():
            if _CREDENTIAL.search(name) and not _REFERENCE.search(value):
                fix = f'name a variable of the host instead, for example {name} = "${{MY_TOKEN}}"'
                raise rule_error(f"holds a literal credential in {name}", fix, "headers")
        return self


class SetupCommand(Table):
    """A command that prepares the sandbox once it is up."""

    command: NonEmpty
    timeout_sec: Seconds = 600.0
    cwd: str | None = None
    env: Env = Field(default_factory=dict)
    user: User | None = None
    service: NonEmpty = "main"
    host_lock: str | None = None
    capture_dir: str | None = None


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class EnvironmentConfig(Table):
    """Where agent and verifier run; None everywhere means the backend's own default, usually no limit."""

    network_mode: NetworkMode = "public"
    allowed_hosts: tuple[Host, ...] | None = None
    blocked_hosts: tuple[Host, ...] | None = None
    blocked_urls: tuple[str, ...] | None = None
    build_timeout_sec: Seconds = 600.0
    docker_image: NonEmpty | None = None
    os: Annotated[Literal["linux", "windows"], BeforeValidator(_lower)] = "linux"
    cpus: Cpus | None = None
    memory_mb: Megabytes | None = None
    storage_mb: Megabytes | None = None
    gpus: Count | None = None
    gpu_types: tuple[str, ...] | None = None
    tpu: Tpu | None = None
    mcp_servers: tuple[McpServer, ...] = ()
    env: Env = Field(default_factory=dict)
    skills_dir: NonEmpty | None = None
    healthcheck: Healthcheck | None = None
    workdir: NonEmpty | None = None
    setup_commands: tuple[SetupCommand, ...] = ()

    @property
    def network(self) -> Network:
        """What may be reached from there."""
        return Network(self.network_mode, self.allowed_hosts or (), self.blocked_hosts or (), self.blocked_urls or ())

    @model_validator(mode="after")
    def _hosts_match_mode(self) -> Self:
        check_hosts(self.network_mode, self.allowed_hosts)
        for key in ("blocked_hosts", "blocked_urls"):
            if getattr(self, key) is not None and self.network_mode != "denylist":
                raise rule_error("needs a deny list", 'add network_mode = "denylist" or remove it', key)
        return self


def check_hosts(mode: str | None, hosts: tuple[str, ...] | None) -> None:
    """Refuse hosts that the network mode would ignore."""
    if hosts is not None and mode != "allowlist":
        raise rule_error("needs an allow list", 'add network_mode = "allowlist" or remove it', "allowed_hosts")


class CollectHook(Table):
    """A command run in the agent's environment just before artifacts are taken; best effort."""

    command: NonEmpty
    service: NonEmpty = "main"
    timeout_sec: Seconds = 60.0
    user: User | None = None


class Judge(Table):
    """A language model that scores against a rubric, on the runner's machine."""

    model: NonEmpty = "claude-sonnet-4-6"
    rubric_path: NonEmpty = "tests/rubric.toml"
    input_dir: NonEmpty = "/app"
    input_type: Literal["deliverables", "final-message", "trajectory"] = "deliverables"
    """What is judged: files, or what the agent said last, or everything it said and did."""
    context: str = ""


class Hardening(Table):
    """Protections a task may opt out of."""

    enabled: StrictBool = True
    """All of them at once."""
    cleanup_conftests: StrictBool = True
    kill_processes: StrictBool = True
    restore_config: StrictBool = True
    remove_links: StrictBool = True
    remove_shadows: StrictBool = True
    clean_caches: StrictBool = True
    clean_git: StrictBool = True
    pin_environment: StrictBool = True
    restore_system: StrictBool = True
    protect_logs: StrictBool = True

    @property
    def opt_outs(self) -> list[str]:
        """The keys that are false."""
        return [key for key in type(self).model_fields if not getattr(self, key)]

    def does(self, key: str) -> bool:
        """Return whether a protection is on."""
        return self.enabled and bool(getattr(self, key))


class Memory(Table):
    """Skills the agent is expected to have used."""

    expected_skills: tuple[str, ...] = ()


def _range(value: object) -> object:
    bounds = [v for v in value if type(v) in (int, float)] if isinstance(value, list | tuple) else []
    if not isinstance(value, list | tuple) or len(bounds) != 2 or len(value) != 2:
        raise rule_error(f"is {quoted(value)}", "give the lowest and the highest reward, for example [0, 10]")
    if not bounds[0] <= 0 or not bounds[1] >= 1:
        raise rule_error(f"is [{bounds[0]}, {bounds[1]}]", "it may only widen [0, 1]")
    return value


class VerifierConfig(Table):
    """Everything `[verifier]` may say, at task level or for one step."""

    type: Literal["test-script", "llm-judge"] = "test-script"
    timeout_sec: Seconds = 600.0
    env: Env = Field(default_factory=dict)
    user: User | None = None
    network_mode: PhaseNetworkMode | None = None
    allowed_hosts: tuple[Host, ...] | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentConfig | None = None
    collect: tuple[CollectHook, ...] = ()
    service: NonEmpty = "main"
    pytest_plugins: tuple[str, ...] = ()
    reward_range: Annotated[tuple[Number, Number], BeforeValidator(_range)] | None = None
    judge: Judge | None = None
    memory: Memory | None = None
    hardening: Hardening = Field(default_factory=Hardening)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_hosts(self.network_mode, self.allowed_hosts)
        if self.environment is not None and self.environment_mode == "shared":
            fix = 'set environment_mode = "separate" or remove the environment table of the verifier'
            raise rule_error('is "shared" although the verifier has its own environment', fix, "environment_mode")
        return self

    def says_mode(self) -> bool:
        """Return whether the table decides between shared and separate at all."""
        return self.environment_mode is not None or self.environment is not None

    @property
    def mode(self) -> Literal["shared", "separate"]:
        """Whether the verifier runs beside the agent's leftovers or in an environment of its own."""
        return self.environment_mode or ("separate" if self.environment is not None else "shared")


def _reason(value: object) -> object:
    if isinstance(value, bool):
        return "as the task file says" if value else None
    if not isinstance(value, str) or not value.strip():
        raise rule_error(f"is {quoted(value)}", "give the reason as a string, or true")
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


def package_name(value: str) -> str:
    """Return a name of the form organisation/name, or refuse it."""
    if not is_package_name(value):
        raise rule_error(f"is {quoted(value)}", "give organisation/name, for example acme/hello-world")
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
    """`[agent]`: limits of the agent phase; without a timeout there is no limit."""

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
            raise rule_error(f"is {quoted(value)}", "write the path without ..")
        return value

    @field_validator("destination")
    @classmethod
    def _destination_stays(cls, value: str | None) -> str | None:
        if value is None:
            return None
        path = PurePosixPath(value)
        if not value or path.is_absolute() or ".." in path.parts or "\\" in value or re.match(r"[A-Za-z]:", value):
            raise rule_error(f"is {quoted(value)}", "give a path relative to artifacts/, without .. or backslash")
        if str(path) == "manifest.json":
            raise rule_error('is "manifest.json"', "choose another name, this file is written by the runner")
        return value

    @model_validator(mode="after")
    def _sidecar_source_is_absolute(self) -> Self:
        if self.service != "main" and not self.source.startswith("/"):
            fix = f"a path in the service {self.service} must be absolute"
            raise rule_error(f"is {quoted(self.source)}", fix, "source")
        return self


def _artifact(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


Artifacts = tuple[Annotated[Artifact, BeforeValidator(_artifact)], ...]


def _minimum(value: object) -> object:
    numbers = value.values() if isinstance(value, dict) else [value]
    if any(isinstance(n, bool) or not isinstance(n, int | float) or n != n for n in numbers):
        raise rule_error(f"is {quoted(value)}", "give a number, or a table of numbers by reward key")
    return value


class StepConfig(Table):
    """One of `[[steps]]`, as written; `TaskStep` is the same with inheritance applied."""

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
                raise rule_error(f"has two steps named {same}", "each step is a directory, give each its own name")
        return steps
