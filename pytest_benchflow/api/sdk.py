"""What the first releases had: one way to run a rollout, and other names for the same things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BadType, InstallError
from pytest_benchflow.jobs import Evaluation, EvaluationConfig, EvaluationResult
from pytest_benchflow.rollout import Rollout, RolloutConfig, RolloutResult, make_config, run_rollout
from pytest_benchflow.sandboxes import ExecResult
from pytest_benchflow.verify import JudgeRubric

if TYPE_CHECKING:
    from pytest_benchflow.rollout import PreAgentHook

#: What things were called in older releases.
Trial, TrialConfig, RunResult = Rollout, RolloutConfig, RolloutResult
Job, JobConfig, JobResult = Evaluation, EvaluationConfig, EvaluationResult
AgentInstallError, SandboxExecResult, RubricConfig = InstallError, ExecResult, JudgeRubric


class SDK:
    """Runs rollouts; it holds nothing, so one serves for all."""

    async def run(
        self,
        task_path: str | Path,
        agent: str = "claude-agent-acp",
        prompts: Sequence[str | None] | str | None = None,
        *,
        model: str | None = None,
        reasoning_effort: str | None = None,
        agent_env: Mapping[str, str] | None = None,
        job_name: str | None = None,
        rollout_name: str | None = None,
        trial_name: str | None = None,
        jobs_dir: str | Path = "jobs",
        environment: str | None = None,
        skills_dir: str | Path | None = None,
        skill_mode: str | None = None,
        sandbox_user: str | None = "agent",
        sandbox_setup_timeout: float | None = None,
        agent_idle_timeout: float | None = None,
        pre_agent_hooks: Sequence[PreAgentHook] | None = None,
        context_root: str | Path | None = None,
        base_image_override: str | None = None,
    ) -> RolloutResult:
        """Run an agent on a task; a prompt of None stands for the task's own."""
        if rollout_name is not None and trial_name is not None:
            raise BadType("run() got rollout_name and trial_name, which are the same", advice="keep rollout_name=")
        config = make_config(
            {
                "task_path": task_path,
                "agent": agent,
                "prompts": prompts,
                "model": model,
                "reasoning_effort": reasoning_effort,
                "agent_env": agent_env,
                "job_name": job_name,
                "rollout_name": rollout_name or trial_name,
                "jobs_dir": jobs_dir,
                "sandbox": environment,
                "skills_dir": skills_dir,
                "skill_mode": skill_mode,
                "sandbox_user": sandbox_user,
                "sandbox_setup_timeout": sandbox_setup_timeout,
                "agent_idle_timeout": agent_idle_timeout,
                "pre_agent_hooks": pre_agent_hooks,
                "context_root": context_root,
                "base_image_override": base_image_override,
            }
        )
        return await run_rollout(config)
