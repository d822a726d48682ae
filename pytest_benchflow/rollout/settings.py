"""Every setting, declared once: those of one rollout and those of a whole run.

Loaded at every start of pytest for its options: it imports nothing but how settings are declared, and leaves it to
`config.py` to make dataclasses of the two classes, which costs more than all the rest.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pytest_benchflow.core.settings import (
    Choice,
    Count,
    CountOrAuto,
    CountOrOff,
    Flag,
    Kind,
    Limit,
    Lines,
    Number,
    PathTo,
    Probability,
    Source,
    Structure,
    Text,
    Texts,
    Variables,
    setting,
    usage_error,
)

if TYPE_CHECKING:
    import os
    from dataclasses import dataclass as declaration

    from pytest_benchflow.rollout.scenes import Scene
    from pytest_benchflow.rollout.users import BaseUser
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.services import ServiceConfig
    from pytest_benchflow.tasks import SourceSpec

    class PathField:
        """A field that takes a path or its text and then is a Path; `RolloutConfig` converts it."""

        def __get__(self, instance: object, owner: type | None = None) -> Path: ...

        def __set__(self, instance: object, value: str | os.PathLike[str]) -> None: ...

    class OptionalPathField:
        """A `PathField` that may be None."""

        def __get__(self, instance: object, owner: type | None = None) -> Path | None: ...

        def __set__(self, instance: object, value: str | os.PathLike[str] | None) -> None: ...
else:
    from pytest_benchflow.core.settings import declaration


KeepSandbox = Literal["never", "failed", "always"]
IntegrityPolicy = Literal["report", "fail"]
SkillMode = Literal["no-skill", "with-skill"]
Order = Literal["longest", "given"]
MissingCredentials = Literal["error", "skip"]
Progress = Literal["auto", "block", "lines", "off"]
PreAgentHook = Callable[["Sandbox"], Awaitable[None]]

NO_PATH = cast("OptionalPathField", None)
MAX_TRIALS = 10_000
"""A larger number is probably a typing error, and its items would fill the memory before the first one starts."""
INSTRUCTION = "@instruction"
"""Stands for the task's own prompt among others."""
_LONGEST_JOB_NAME = 200
"""Bytes of a job's name: file systems take 255, and a number may follow it."""


class Prompts(Texts):
    """One prompt per turn; `@instruction` stands for the task's own, which is None."""

    def read(self, value: Any, source: Source) -> tuple[str | None, ...] | None:
        """Return the prompts, None if there are none."""
        return tuple(None if text == INSTRUCTION else text for text in super().read(value, source) or ()) or None


class UserName(Kind):
    """A user of the sandbox; none is root."""

    def read(self, value: Any, source: Source) -> str | None:
        """Return the name, None for root."""
        if value in ("none", "root", None):
            return None
        if not isinstance(value, str) or not re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", value):
            raise self.error(value, source, "use small letters, digits and dashes, or none for root")
        return value


class JobName(Kind):
    """The name of a job, which is that of its directory."""

    def read(self, value: Any, source: Source) -> str:
        """Return the name."""
        text: str = super().read(value, source)
        if len(text.encode("utf-8", "surrogateescape")) > _LONGEST_JOB_NAME:
            raise usage_error(f"{source.name} has {len(text)} characters", f"use at most {_LONGEST_JOB_NAME}")
        if not re.fullmatch(r"[\w.+=-]+", text.lstrip(".") or "/"):
            raise usage_error(f"{source.name} {text!r} is not a plain directory name", "use letters, digits, . _ -")
        return text


class EarlierJob(Kind):
    """An earlier job: its name, its directory, or nothing for the newest one."""

    takes = "maybe"

    def read(self, value: Any, source: Source) -> str:
        """Return the name or path, empty for the newest job."""
        return "" if value in ("", True) else str(super().read(value, source)).rstrip("/")


class Shard(Kind):
    """One of several slices."""

    def read(self, value: Any, source: Source) -> tuple[int, int]:
        """Return its number and how many there are."""
        match = re.fullmatch(r"(\d+)/(\d+)", str(value))
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise usage_error(f"{source.name} {value!r} is not a slice", "write I/N with 1 ≤ I ≤ N, for example 1/4")
        return int(match[1]), int(match[2])


class Sources(Texts):
    """Git repositories with tasks."""

    def read(self, value: Any, source: Source) -> tuple[SourceSpec, ...]:
        """Return what each names."""
        from pytest_benchflow.tasks import parse_source

        return tuple(parse_source(text, source.base) for text in super().read(value, source) or ())


@declaration(frozen=True, kw_only=True)
class RolloutSettings:
    """The settings of one rollout; `RolloutConfig` has them all."""

    reasoning_effort: str | None = setting(
        None, Text(), "reasoning effort, where the agent offers it", option="--bf-effort", metavar="LEVEL"
    )
    prompts: Sequence[str | None] | str | None = setting(
        None,
        Prompts(),
        "prompt instead of the task's own, which =@instruction stands for; each is one turn, repeatable",
        option="--bf-prompt",
        metavar="TEXT",
        shown="task's",
    )
    """One turn per entry; None stands for the task's own prompt."""
    scenes: Sequence[Scene] = setting((), Structure(), "roles and turns")
    """Roles and turns; without any, `agent` takes all `prompts`."""
    sandbox: str = setting(
        "auto",
        Text(),
        "where rollouts run: local, docker, or any registered backend",
        option="--bf-sandbox",
        metavar="NAME",
        older=("environment",),
    )
    threshold: float = setting(
        1.0,
        Number(above=None),
        "reward needed to pass; a task or a marker may set its own",
        option="--bf-threshold",
        metavar="X",
        task="threshold",
        task_beats_ini="its author knows which reward is good on it, a whole project does not",
        marker="bf_threshold",
    )
    timeout: float | None = setting(
        None,
        Number(),
        "seconds for the agent, instead of the task's",
        option="--bf-agent-timeout",
        metavar="S",
        shown="task's",
        task="timeout_sec",
        marker="bf_timeout",
    )
    """Seconds for the agent; None leaves the task's own limit, which may be none at all."""
    agent_idle_timeout: float | None = setting(
        600.0,
        Limit(),
        "seconds without a sign of life after which the agent is stopped",
        option="--bf-agent-idle-timeout",
        metavar="S|none",
        shown="600",
        file="idle_timeout",
        older=("agent_idle_timeout", "agent_idle_timeout_sec"),
    )
    """Seconds without a sign of life after which a prompt is stopped; None or 0 for no limit."""
    timeout_multiplier: float = setting(
        1.0, Number(), "factor for every time limit", option="--bf-timeout-multiplier", metavar="X"
    )
    agent_env: Mapping[str, str] = setting(
        {}, Variables(), "extra environment of the agent; repeatable", option="--bf-agent-env", metavar="K=V"
    )
    verifier_env: Mapping[str, str] = setting(
        {}, Variables(), "extra environment of the verifier; repeatable", option="--bf-verifier-env", metavar="K=V"
    )
    sandbox_user: str | None = setting(
        "agent",
        UserName(),
        "user that agents run as in the sandbox; none is root",
        option="--bf-sandbox-user",
        metavar="NAME|none",
    )
    """User that agents run as in the sandbox; None for root."""
    sandbox_setup_timeout: float = setting(
        120.0,
        Number(),
        "seconds that creating that user may take",
        option="--bf-sandbox-setup-timeout",
        metavar="S",
        shown="120",
        decides=False,
    )
    user: BaseUser | None = setting(None, Structure(), "simulated user that talks to the agent in rounds")
    """Speaks to the agent round by round, instead of prompts."""
    max_user_rounds: int = setting(5, Structure(), "rounds that the user may have", file=False)
    oracle_access: bool = setting(False, Structure(), "whether the user is told the solution", file=False)
    """Whether the user is told the task's solution."""
    loop_strategy: str | None = setting(None, Text(), "single-shot, verify-retry:k=3,feedback=names or self-review:k=3")
    """A ready user, for example `verify-retry:k=3`."""
    services: Sequence[str | ServiceConfig] = setting((), Texts(), "services beside the agent")
    skills_dir: OptionalPathField = setting(NO_PATH, PathTo(), "skills that every role is given")
    """Skills that every role is given; needs `skill_mode="with-skill"`."""
    skill_mode: SkillMode = setting("no-skill", Choice("no-skill", "with-skill"), "whether roles are given skills")
    missing_credentials: MissingCredentials = setting(
        "error",
        Choice("error", "skip"),
        "whether an agent that cannot reach its model ends the run or is skipped",
        option="--bf-missing-credentials",
        metavar="error|skip",
        decides=False,
    )
    """Whether an agent that cannot reach its model is an error or a reason to skip."""
    force_build: bool = setting(
        False, Flag(), "rebuild environments without the cache", option="--bf-force-build", decides=False
    )
    price: Sequence[str] = setting(
        (),
        Texts(),
        "price of a model or an agent in dollars per million tokens, IN/OUT or IN/OUT/CACHED, or auto for a list; "
        "for rollouts whose agent reports tokens but no cost; repeatable",
        option="--bf-price",
        metavar="MODEL=IN/OUT|auto",
        decides=False,
    )
    base_image_override: str | None = setting(
        None,
        Text(),
        "base image for Dockerfiles, instead of the one in their FROM",
        option="--bf-base-image-override",
        metavar="IMAGE",
    )
    """Image that the task's Dockerfile stands on instead of its own."""
    context_root: OptionalPathField = setting(
        NO_PATH,
        PathTo("directory"),
        "directory of files that a Dockerfile copies and environment/ does not have",
        option="--bf-context-root",
        metavar="DIR",
    )
    """Where files come from that the Dockerfile copies and its directory does not have."""
    keep_sandbox: KeepSandbox = setting(
        "never",
        Choice("never", "failed", "always"),
        "leave sandboxes for inspection, and print how to enter and remove them",
        option="--bf-keep-sandbox",
        metavar="never|failed|always",
        decides=False,
    )
    """When to leave the sandbox for inspection; an interrupted rollout leaves none."""
    integrity: IntegrityPolicy = setting(
        "report",
        Choice("report", "fail"),
        "whether a rollout that tripped a defence of its verifier is only reported, or fails",
        option="--bf-integrity",
        metavar="report|fail",
    )
    """Whether a rollout that tripped a defence fails whatever its reward."""
    frame: bool = setting(
        False, Flag(), "report what the agent changed outside the task's workspace", option="--bf-frame"
    )
    """Whether to list what the agent changed or deleted outside the workspace."""

    save_workspace: bool = setting(
        False,
        Flag(),
        "keep what agents leave in their workspace, so that bf regrade can verify it again",
        option="--bf-save-workspace",
        decides=False,
    )
    """Whether to keep the workspace after the agent as `workspace.tar.gz` in the rollout's directory."""


@declaration(frozen=True, kw_only=True)
class RunSettings:
    """The settings of a whole run: which rollouts there are, where their results go, and what the run is for."""

    agent: Sequence[str] = setting(
        (),
        Texts(),
        "agent to run, or several with commas; repeatable",
        option="--bf-agent",
        metavar="NAME[,NAME…]",
        shown="oracle",
        file=False,
    )
    model: Sequence[str] = setting(
        (),
        Texts(),
        "model for every agent, or agent=model for one; repeatable",
        option="--bf-model",
        metavar="ID",
        shown="agent's own",
        file=False,
    )
    scene: Sequence[str] = setting(
        (),
        Texts(),
        "rollout file with roles and turns, or its name in scenes/; repeatable",
        option="--bf-scene",
        metavar="FILE|NAME",
        file=False,
    )
    config: Path | None = setting(
        None,
        PathTo("file"),
        "job file with tasks, agents and all other settings",
        option="--bf-config",
        metavar="FILE",
        ini=False,
        file=False,
    )
    trials: int = setting(
        1,
        Count(at_most=MAX_TRIALS),
        "repetitions of every combination",
        option="--bf-trials",
        metavar="K",
        task="trials",
        task_beats_ini="its author knows how much its rewards vary, a whole project does not",
        marker="bf_trials",
    )
    concurrency: int | None = setting(
        None,
        CountOrAuto(),
        "rollouts in flight in one process",
        option="--bf-concurrency",
        metavar="N|auto",
        shown="auto",
    )
    order: Order = setting(
        "longest",
        Choice("longest", "given"),
        "what starts first: what took longest in earlier runs, or what pytest collected first",
        option="--bf-order",
        metavar="longest|given",
        file=False,
    )
    max_per_model: int | None = setting(
        None,
        Count(),
        "rollouts that may use one model at the same time, across all processes of the run",
        option="--bf-max-per-model",
        metavar="N",
        shown="no limit",
        file=False,
    )
    jobs_dir: Path = setting(
        Path("jobs"),
        PathTo(),
        "directory for job directories; a relative path starts where pytest was started",
        option="--bf-jobs-dir",
        metavar="DIR",
    )
    job_name: str | None = setting(
        None,
        JobName(),
        "name of this run's job directory",
        option="--bf-job-name",
        metavar="NAME",
        shown="timestamp",
        ini=False,
    )
    resume: str | None = setting(
        None,
        EarlierJob(),
        "continue a job, by default the one of --bf-job-name or the newest: only what has no score yet runs",
        option="--bf-resume",
        metavar="JOB",
        shown="off",
        ini=False,
        file=False,
    )
    """The name or directory of the job to continue, empty for the newest; None for a new job."""
    resume_anyway: bool = setting(
        False,
        Flag(),
        "continue it even if agents, models, tasks or settings have changed since, and keep its scores",
        option="--bf-resume-anyway",
        ini=False,
        file=False,
    )
    retries: int | None = setting(
        None,
        Count(at_least=0),
        "how often a rollout is tried again after a failure of the harness",
        option="--bf-retries",
        metavar="N",
        shown="1",
        file=False,
    )
    breaker: int | None = setting(
        5,
        CountOrOff(),
        "start no more rollouts with an agent or a sandbox that never worked and failed alike on this many tasks",
        option="--bf-breaker",
        metavar="N|off",
        file=False,
    )
    """How many have to die of one cause before no more of the kind start; None for no such limit."""
    progress: Progress = setting(
        "auto",
        Choice("auto", "block", "lines", "off"),
        "how a running job is shown: as a status block on a terminal, as a line now and then elsewhere",
        option="--bf-progress",
        metavar="auto|block|lines|off",
        file=False,
    )
    json: Path | None = setting(
        None, PathTo(), "write all results to one JSON file", option="--bf-json", metavar="FILE", file=False
    )
    html: Path | None = setting(
        None,
        PathTo(),
        "write the report as one HTML page that needs no other file",
        option="--bf-html",
        metavar="FILE",
        file=False,
    )
    markdown: Path | None = setting(
        None,
        PathTo(),
        "write a summary as Markdown, for a comment on a pull request",
        option="--bf-markdown",
        metavar="FILE",
        file=False,
    )
    atif: Path | None = setting(
        None,
        PathTo(),
        "write trajectories in the Agent Trajectory Interchange Format",
        option="--bf-atif",
        metavar="DIR",
        file=False,
    )
    source: Sequence[SourceSpec] = setting(
        (),
        Sources(),
        "git repository to take tasks from; repeatable",
        option="--bf-source",
        metavar="ORG/REPO[@REF][:PATH]",
        file=False,
    )
    shard: tuple[int, int] | None = setting(
        None,
        Shard(),
        "run the I-th of N slices of the rollouts",
        option="--bf-shard",
        metavar="I/N",
        ini=False,
        file=False,
    )
    selftest: bool = setting(
        False,
        Flag(),
        "check the tasks themselves: nop must not pass and oracle must",
        option="--bf-selftest",
        file=False,
    )
    dry_run: bool = setting(
        False,
        Flag(),
        "list the rollouts and what each lacks, start nothing",
        option="--bf-dry-run",
        ini=False,
        file=False,
    )
    gate: Sequence[str] = setting(
        (),
        Lines(),
        "condition that the whole run must meet, for example 'pass_rate >= 0.8'; then gates, not single items, decide "
        "the exit status; repeatable",
        option="--bf-gate",
        metavar="EXPR",
    )
    max_cost: float | None = setting(
        None,
        Number(),
        "dollars that the run may spend; what is left of them has to cover a rollout, or it does not start",
        option="--bf-max-cost",
        metavar="USD",
    )
    stop_when_decided: bool = setting(
        False,
        Flag(),
        "start no more rollouts once no outcome of the rest can change the verdict of a gate",
        option="--bf-stop-when-decided",
    )
    confidence: float | None = setting(
        None,
        Probability(),
        "stop earlier, once the verdict is certain to this level by a sequential test; shuffles the rollouts",
        option="--bf-confidence",
        metavar="P",
    )
    baseline: Path | None = setting(
        None,
        PathTo(),
        "earlier --bf-json report to compare with",
        option="--bf-baseline",
        metavar="FILE",
        file=False,
    )
    max_regression: float | None = setting(
        None,
        Number(above=None),
        "gate: how far the pass rate may fall below the baseline's",
        option="--bf-max-regression",
        metavar="X",
        file=False,
    )
    update_baseline: bool = setting(
        False,
        Flag(),
        "write the report of a complete run to the file of --bf-baseline",
        option="--bf-update-baseline",
        ini=False,
        file=False,
    )
    report_only: bool = setting(
        False,
        Flag(),
        "low rewards do not fail the run; a broken harness still does",
        option="--bf-report-only",
        file=False,
    )
    strict: bool = setting(
        False, Flag(), "treat unknown keys in task files as errors", option="--bf-strict", file=False
    )
    sandbox_option: Sequence[str] = setting(
        (),
        Texts(),
        "option of a sandbox, for example docker.network=host; repeatable",
        option="--bf-sandbox-option",
        metavar="SANDBOX.NAME=VALUE",
        file=False,
    )
    docker_network: str | None = setting(
        None,
        Text(),
        "short for --bf-sandbox-option docker.network=…",
        option="--bf-docker-network",
        metavar="host|bridge|NAME",
        shown="engine's",
        file=False,
    )
