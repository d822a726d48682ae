"""Scenes: which agents work on a task, in which order, and what each of them is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_benchflow.agents import FREE_AGENTS
from pytest_benchflow.core.errors import BadValue
from pytest_benchflow.core.text import closest, did_you_mean

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.tasks import Document, RoleConfig, SceneConfig, Task


#: As a whole prompt, stands for the task's own.
INSTRUCTION = "@instruction"
FALLBACK_PROMPT = "Solve the task that is described in /instruction.md."
READ_ONLY = "read-only"
_OUTBOX = ".outbox/"

Capabilities: TypeAlias = "Mapping[str, object] | Sequence[str]"


@dataclass(frozen=True)
class Role:
    """One agent of a scene, under the name that turns call it by."""

    name: str
    agent: str
    model: str | None = None
    reasoning_effort: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables of this role, over those of the rollout."""
    timeout_sec: float | None = None
    idle_timeout_sec: float | None = None
    skills_dir: str | Path | None = None
    capabilities: Capabilities | None = field(default=None, hash=False)
    """What the role declares about itself; `read-only` keeps it from writing to the workspace."""

    @property
    def is_read_only(self) -> bool:
        """Whether the role may look at the workspace and not change it."""
        given = self.capabilities or ()
        return given.get("workspace") == READ_ONLY if isinstance(given, Mapping) else READ_ONLY in given


@dataclass(frozen=True)
class Turn:
    """One prompt to one role; None means the scene's, the role's or the task's own."""

    role: str
    prompt: str | None = None


@dataclass(frozen=True)
class Scene:
    """Roles, and the turns they take one after the other."""

    name: str = "default"
    roles: Sequence[Role] = ()
    turns: Sequence[Turn] = ()
    """None at all means one turn per role."""
    skills_dir: str | Path | None = None
    outbox: bool | Literal["auto"] = "auto"
    """Whether roles can leave messages for each other in `/app/.outbox`; `auto` if a prompt tells them to."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "roles", tuple(self.roles))
        object.__setattr__(self, "turns", tuple(self.turns))

    @classmethod
    def single(
        cls,
        *,
        agent: str,
        model: str | None = None,
        reasoning_effort: str | None = None,
        prompts: Sequence[str | None] | None = None,
        role_name: str = "agent",
        skills_dir: str | Path | None = None,
    ) -> Scene:
        """Return the scene of one agent that gets one prompt after the other, the task's own if there are none."""
        texts = (prompts,) if isinstance(prompts, str) else (None,) if prompts is None else prompts
        role = Role(role_name, agent, model, reasoning_effort)
        return cls(roles=(role,), turns=tuple(Turn(role_name, text) for text in texts), skills_dir=skills_dir)

    @property
    def effective_turns(self) -> tuple[Turn, ...]:
        """The turns as they are taken."""
        return tuple(self.turns) or tuple(Turn(role.name) for role in self.roles)

    def role(self, name: str) -> Role:
        """Return the role of that name."""
        for role in self.roles:
            if role.name == name:
                return role
        known = did_you_mean(name, [role.name for role in self.roles])
        raise BadValue(f"scene {self.name!r} has a turn of the unknown role {name!r}", advice=known)


@dataclass(frozen=True, slots=True)
class Step:
    """One turn as plain data."""

    id: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """One turn with everything that decides it."""

    scene_index: int
    scene: Scene
    role: Role
    turn_index: int
    prompt: str
    has_outbox: bool = False

    @property
    def id(self) -> str:
        """Name the turn within its rollout."""
        return f"scene-{self.scene_index}-turn-{self.turn_index}-{self.role.name}"

    @property
    def skills_dir(self) -> str | Path | None:
        """The role's skills, else the scene's."""
        return self.role.skills_dir if self.role.skills_dir is not None else self.scene.skills_dir


PromptFor: TypeAlias = Callable[[Scene, Role, Turn], str | None]
"""Return what a turn says, None to leave it to the turn and the task."""


def plan_turns(
    scenes: Iterable[Scene], *, base_prompt: str, prompt_for: PromptFor | None = None
) -> tuple[PlannedTurn, ...]:
    """Check the scenes and return all their turns in order, each with its prompt: turn → scene → role → task."""
    scenes = check_scenes(scenes)
    base = base_prompt if base_prompt.strip() else FALLBACK_PROMPT

    def planned() -> Iterator[PlannedTurn]:
        for scene_index, scene in enumerate(scenes):
            roles = [scene.role(turn.role) for turn in scene.effective_turns]
            prompts = [
                _prompt(scene, role, turn, base, prompt_for)
                for role, turn in zip(roles, scene.effective_turns, strict=True)
            ]
            has_outbox = _has_outbox(scene, [prompt for prompt in prompts if prompt is not base])
            for turn_index, (role, prompt) in enumerate(zip(roles, prompts, strict=True)):
                yield PlannedTurn(scene_index, scene, role, turn_index, prompt, has_outbox)

    return tuple(planned())


def session_key(turn: PlannedTurn) -> tuple[int, str]:
    """Return what two turns in a row must have in common to share a session, and with it the agent's context."""
    return turn.scene_index, turn.role.name


def compile_scenes_to_steps(scenes: Iterable[Scene], default_prompt: str = "") -> list[Step]:
    """Return the turns of the scenes as plain data."""
    return [
        Step(
            turn.id,
            {
                "type": "scene_turn",
                "scene": turn.scene.name,
                "scene_index": turn.scene_index,
                "turn_index": turn.turn_index,
                "role": turn.role.name,
                "prompt": turn.prompt,
                "skills_dir": turn.scene.skills_dir,
                "role_skills_dir": turn.role.skills_dir,
            },
        )
        for turn in plan_turns(scenes, base_prompt=default_prompt)
    ]


def check_scenes(scenes: Iterable[Scene]) -> tuple[Scene, ...]:
    """Return the scenes, or raise BadValue with the first thing that keeps them from being played."""
    scenes = tuple(scenes)
    if not scenes:
        raise BadValue("there is no scene", advice="give at least one, for example Scene.single(agent=...)")
    if name := _twice(scene.name for scene in scenes):
        raise BadValue(f"two scenes are called {name!r}", advice="give each scene a name of its own")
    for scene in scenes:
        _check(scene)
    return scenes


def _check(scene: Scene) -> None:
    where = f"scene {scene.name!r}"
    if not scene.name:
        raise BadValue("a scene has an empty name", advice="give it one")
    if not scene.roles:
        raise BadValue(f"{where} has no roles", advice="add at least one Role(name, agent)")
    if name := _twice(role.name for role in scene.roles):
        raise BadValue(f"{where} has two roles called {name!r}", advice="give each role a name of its own")
    for role in scene.roles:
        _check_role(where, role)
    for turn in scene.turns:
        scene.role(turn.role)
    if scene.outbox not in (True, False, "auto"):
        raise BadValue(f"outbox of {where} is {scene.outbox!r}", advice="give auto, true or false")


def _check_role(where: str, role: Role) -> None:
    if not role.name or "/" in role.name:
        raise BadValue(f"{where} has a role called {role.name!r}", advice="use a word without slashes")
    if not role.agent:
        raise BadValue(f"role {role.name!r} of {where} has no agent", advice="name one, for example gemini")
    for key in ("timeout_sec", "idle_timeout_sec"):
        seconds: float | None = getattr(role, key)
        if seconds is not None and seconds <= 0:
            raise BadValue(
                f"{key} of role {role.name!r} is {seconds:g}", advice="give seconds above 0, or leave it out"
            )
    given = role.capabilities or ()
    words = given.values() if isinstance(given, Mapping) else given
    for word in words:
        # A slip here would silently give the right to write.
        if isinstance(word, str) and word != READ_ONLY and closest(word, [READ_ONLY]):
            raise BadValue(f"role {role.name!r} has the capability {word!r}", advice=f"did you mean {READ_ONLY}?")


def _prompt(scene: Scene, role: Role, turn: Turn, base: str, prompt_for: PromptFor | None) -> str:
    if turn.prompt == INSTRUCTION:
        return base
    composed = prompt_for(scene, role, turn) if prompt_for is not None else None
    if composed is not None:
        return composed
    return base if turn.prompt is None else turn.prompt


def _has_outbox(scene: Scene, prompts: Iterable[str]) -> bool:
    """Return whether a scene has an outbox; its own prompts decide, for a task may have files of that name."""
    if scene.outbox == "auto":
        return len(scene.roles) > 1 and any(_OUTBOX in prompt for prompt in prompts)
    return scene.outbox


def _twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


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
            [role(name) for name in _role_agents(scene, config.agents.roles)],
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


def _role_agents(scene: SceneConfig, known: dict[str, RoleConfig]) -> list[str]:
    return list(scene.roles or dict.fromkeys(turn.role for turn in scene.turns) or known)


def scenes_of(config: RolloutConfig, task: Task) -> tuple[Scene, ...]:
    """Return the scenes to run: those of the configuration, else of the task, else one for its agent."""
    if not config.scenes and config.prompts is None and task.document is not None:
        own = document_scenes(
            task.document, agent=config.agent, model=config.model, reasoning_effort=config.reasoning_effort
        )
        if own:
            return own
    return config.effective_scenes
