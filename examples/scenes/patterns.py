"""The same patterns in Python. Run one with `python patterns.py self_review TASK AGENT`."""

import asyncio
import sys

from tutor import Tutor

import pytest_benchflow as bf

REVIEW = (
    "Somebody has worked on the task in /instruction.md. Review what is in the workspace. Do not change it. "
    'Write what is missing or wrong to /app/.outbox/coder.json as {"to": "coder", "content": "..."}.'
)
REWORK = "You have worked on the task in /instruction.md before. Put right what the review says."


def single_turn(task: str, agent: str) -> bf.RolloutConfig:
    """One agent, one prompt: the task's own."""
    return bf.RolloutConfig(task_path=task, agent=agent)


def self_review(task: str, agent: str) -> bf.RolloutConfig:
    """One agent, two prompts, one session; None stands for the task's own prompt."""
    return bf.RolloutConfig(task_path=task, agent=agent, prompts=[None, "Check your work and correct what is wrong."])


def coder_reviewer(task: str, agent: str, other: str | None = None) -> bf.RolloutConfig:
    """Two roles in turn; the reviewer cannot write to the workspace."""
    scene = bf.Scene(
        "review",
        roles=[bf.Role("coder", agent), bf.Role("reviewer", other or agent, capabilities=["read-only"])],
        turns=[bf.Turn("coder"), bf.Turn("reviewer", REVIEW), bf.Turn("coder", REWORK)],
    )
    return bf.RolloutConfig(task_path=task, scenes=[scene])


def cross_model_review(task: str, agent: str = "gemini", other: str = "claude-agent-acp") -> bf.RolloutConfig:
    """What one agent overlooks the other may see."""
    return coder_reviewer(task, agent, other)


def tutored(task: str, agent: str) -> bf.RolloutConfig:
    """A user who knows the solution."""
    return bf.RolloutConfig(task_path=task, agent=agent, user=Tutor(), max_user_rounds=4, oracle_access=True)


def skill_then_solve(task: str, agent: str) -> bf.RolloutConfig:
    """Two scenes: the second starts with a fresh agent and finds what the first has written."""
    write = bf.Scene(
        "write-skill",
        [bf.Role("author", agent)],
        [bf.Turn("author", "Read /instruction.md. Do not solve it. Write how to do it to /app/generated-skill.md.")],
    )
    solve = bf.Scene(
        "solve",
        [bf.Role("solver", agent)],
        [bf.Turn("solver", "Read /app/generated-skill.md, then delete it."), bf.Turn("solver")],
    )
    return bf.RolloutConfig(task_path=task, scenes=[write, solve])


def verify_retry(task: str, agent: str) -> bf.RolloutConfig:
    """The hidden tests send the agent back, up to three times."""
    return bf.RolloutConfig(task_path=task, agent=agent, loop_strategy="verify-retry:k=3,feedback=names")


if __name__ == "__main__":
    pattern, *arguments = sys.argv[1:]
    result = asyncio.run(bf.run(globals()[pattern](*arguments)))
    print(result.status, result.reward, result.rollout_dir)
