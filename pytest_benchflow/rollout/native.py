"""The scenes and prompts that a native `task.md` brings with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.rollout.scenes import PromptFor, Role, Scene, Turn

if TYPE_CHECKING:
    from pytest_benchflow.tasks import Document, RoleConfig, SceneConfig


def document_scenes(
    document: Document, *, agent: str, model: str | None = None, reasoning_effort: str | None = None
) -> tuple[Scene, ...]:
    """Return the scenes of a document, none if it leaves them to the caller; roles without an agent get the one given.

    `oracle` and `nop` stand in for the whole cast, so that checking a task never pays for an agent.
    """
    config = document.config
    if agent in FREE_AGENTS or not (config.scenes or config.agents.roles):
        return ()

    def role(name: str) -> Role:
        given = config.agents.roles.get(name)
        if given is None or given.agent is None:
            default = Role(name, agent, model, reasoning_effort)
            return default if given is None else _role(name, given, default)
        return _role(name, given, Role(name, given.agent))

    if not config.scenes:
        return (Scene(roles=[role(name) for name in config.agents.roles]),)
    return tuple(
        Scene(
            scene.name,
            [role(name) for name in _cast(scene, config.agents.roles)],
            [Turn(turn.role, turn.prompt) for turn in scene.turns],
            scene.skills_dir,
        )
        for scene in config.scenes
    )


def document_prompts(document: Document) -> PromptFor:
    """Return how a document composes what a turn says from its own text, the scene's, the role's and the task's."""
    prompts, policy = document.prompts, document.config.benchflow.prompt

    def prompt_for(scene: Scene, role: Role, turn: Turn) -> str | None:
        parts = {
            "base": prompts.base,
            "role": prompts.roles.get(role.name, ""),
            "scene": prompts.scenes.get(scene.name, ""),
            "turn": turn.prompt or "",
        }
        if policy is not None and policy.composition == "append":
            return "\n\n".join(text for part in policy.order if (text := parts[part].strip())) or None
        return next((text for part in ("turn", "scene", "role") if (text := parts[part]).strip()), None)

    return prompt_for


def _role(name: str, given: RoleConfig, default: Role) -> Role:
    return Role(
        name,
        default.agent,
        given.model or default.model,
        given.reasoning_effort or default.reasoning_effort,
        given.env,
        given.timeout_sec,
        given.idle_timeout_sec,
        given.skills_dir,
        given.capabilities or None,
    )


def _cast(scene: SceneConfig, known: dict[str, RoleConfig]) -> list[str]:
    return list(scene.roles or dict.fromkeys(turn.role for turn in scene.turns) or known)
