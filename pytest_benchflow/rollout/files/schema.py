"""The format of rollout files; its JSON Schema is published for editors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, create_model

from pytest_benchflow.configfile import Table, quoted, rule_error
from pytest_benchflow.core import settings
from pytest_benchflow.core.errors import BadValue, BenchflowError
from pytest_benchflow.core.settings import Setting, settings_of
from pytest_benchflow.rollout.settings import (
    Prompts as PromptsKind,
    RolloutSettings,
    RunSettings,
    UserName as UserNameKind,
)
from pytest_benchflow.rollout.users import parse_loop
from pytest_benchflow.tasks import parse_source

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Env = dict[str, str]


class _Strict(Table):
    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _idle(value: object) -> object:
    return 0 if value == "none" else value


def _user_name(value: str) -> str:
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", value):
        raise rule_error(f"is {quoted(value)}", "use small letters, digits and dashes, or none for root")
    return "none" if value in ("root", "null") else value


def _word(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", value):
        raise rule_error(f"is {quoted(value)}", "use letters, digits, dots and dashes: it becomes part of test ids")
    return value


def _loop(value: str) -> str:
    try:
        return str(parse_loop(value))
    except BadValue as error:
        raise rule_error(f"is wrong: {error.message}", error.advice or "") from None


def _reference(value: str) -> str:
    module, _, name = value.partition(":")
    if not module or not name:
        raise rule_error(f"is {quoted(value)}", "write module:object or file.py:object")
    return value


def _skill_mode(value: object) -> object:
    if value == "self-gen":
        raise rule_error(
            "is self-gen", "write one scene that makes the skill and one that uses it, as docs/scenes.md shows"
        )
    return value


def _tracking(value: object) -> object:
    return "off" if value is False else value  # YAML reads a bare off as false


Tracking = Annotated[Literal["auto", "required", "off"], BeforeValidator(_tracking)]
SkillMode = Annotated[Literal["no-skill", "with-skill"], BeforeValidator(_skill_mode)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_listed, json_schema_input_type=Text | list[Text])]
Prompts = Annotated[tuple[Text | None, ...], BeforeValidator(_listed, json_schema_input_type=Text | list[Text | None])]
Idle = Annotated[
    float, BeforeValidator(_idle, json_schema_input_type=float | Literal["none"]), Field(ge=0, allow_inf_nan=False)
]
UserName = Annotated[str, AfterValidator(_user_name)]
Word = Annotated[str, AfterValidator(_word)]
Loop = Annotated[str, AfterValidator(_loop)]
Reference = Annotated[str, AfterValidator(_reference)]


class RoleTable(_Strict):
    """One agent of a scene."""

    name: Text
    agent: Text | None = Field(None, description="registered agent; left out, the agent of the run")
    model: Text | None = None
    reasoning_effort: Text | None = None
    env: Env = Field(default={}, description="variables; ${NAME} is taken from the environment of the run")
    timeout_sec: Seconds | None = None
    idle_timeout_sec: Seconds | None = None
    skills_dir: Text | None = None
    capabilities: tuple[str, ...] | dict[str, Any] | None = Field(
        None, description="read-only keeps the role from writing to the workspace"
    )


class TurnTable(_Strict):
    """One prompt to one role."""

    role: Text
    prompt: Text | None = Field(None, description="left out or @instruction, the task's own")


def _turn(value: object) -> object:
    return {"role": value} if isinstance(value, str) else value


class SceneTable(_Strict):
    """Roles, and the turns they take one after the other."""

    name: Text = "default"
    roles: tuple[RoleTable, ...]
    turns: tuple[Annotated[TurnTable, BeforeValidator(_turn, json_schema_input_type=TurnTable | Text)], ...] = Field(
        default=(), description="left out, one turn per role"
    )
    skills_dir: Text | None = None
    outbox: bool | Literal["auto"] = Field(
        "auto",
        description="whether roles can leave messages for each other in /app/.outbox; auto: if a prompt of the scene "
        "names .outbox/ and it has several roles",
    )


class UserTable(_Strict):
    """Somebody who talks to the agent in rounds."""

    object: Reference = Field(description="module:object or file.py:object, beside this file or importable")
    max_rounds: Annotated[int, Field(ge=1)] | None = None
    oracle_access: bool = Field(False, description="whether the user is told the solution of the task")


def _user(value: object) -> object:
    return {"object": value} if isinstance(value, str) else value


class RetryTable(_Strict):
    """Retries of what the harness could not do; results of agents are never retried."""

    max_retries: Annotated[int, Field(ge=0)] | None = None
    wait_multiplier: Annotated[float, Field(ge=1)] | None = None
    min_wait_sec: Annotated[float, Field(ge=0)] | None = None
    max_wait_sec: Annotated[float, Field(ge=0)] | None = None
    exclude_categories: tuple[Text, ...] | None = None


def _retry(value: object) -> object:
    return {"max_retries": value} if isinstance(value, int) and not isinstance(value, bool) else value


class SourceTable(_Strict):
    """A git repository to take tasks from."""

    repo: Text
    path: str | None = None
    ref: Text | None = None


def _source(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        spec = parse_source(value)
    except BenchflowError as error:
        raise rule_error(f"is wrong: {error.message}", error.advice or "write org/repo[@ref][:path]") from None
    return {"repo": spec.repo, "path": spec.path or None, "ref": spec.ref}


#: The declared settings that a rollout file can say, with its key for each.
FILE_SETTINGS: tuple[Setting, ...] = tuple(
    declared
    for declaration in (RolloutSettings, RunSettings)
    for declared in settings_of(declaration).values()
    if declared.file is not None and not isinstance(declared.kind, settings.Structure)
)


def _annotation(declared: Setting) -> Any:
    """Return what the value of a key has to be."""
    if declared.name in _FORMS:
        return _FORMS[declared.name]
    match declared.kind:
        case settings.Limit():
            return Idle
        case settings.Number(above=None):
            return Annotated[float, Field(allow_inf_nan=False)]
        case settings.Number():
            return Seconds
        case settings.Count(at_most=most):
            return Annotated[int, Field(ge=1, le=most)]
        case settings.Flag():
            return bool
        case PromptsKind():
            return Prompts
        case settings.Texts():
            return Texts
        case settings.Variables():
            return Env
        case settings.Choice(words=words):
            return Literal[words]
        case UserNameKind():
            return UserName
        case _:
            return Text


_FORMS: dict[str, Any] = {"loop_strategy": Loop, "skill_mode": SkillMode}


def _keys(words: Iterable[tuple[str, Setting]]) -> dict[str, Any]:
    return {word: (_annotation(one) | None, Field(None, description=one.help)) for word, one in words}


if TYPE_CHECKING:

    class SettingKeys(_Strict):
        """The keys of declared settings; which they are, the declaration says."""

    class OlderKeys(Table):
        """Older words for these keys."""
else:
    SettingKeys = create_model("SettingKeys", __base__=_Strict, **_keys((one.file, one) for one in FILE_SETTINGS))
    OlderKeys = create_model(
        "OlderKeys", __base__=Table, **_keys((word, one) for one in FILE_SETTINGS for word in one.older)
    )


class RolloutTable(SettingKeys):
    """A rollout file: who works on a task and how, or a whole job. Paths are relative to the file."""

    model_config = ConfigDict(title="pytest-benchflow rollout file")

    name: Word | None = Field(None, description="its name in test ids and reports; left out, that of the file")
    scenes: tuple[SceneTable, ...] | None = None
    agent: Text | None = Field(None, description="the one agent, or that of all roles which name none")
    model: Text | None = None
    environment: Text | None = Field(None, description="another word for sandbox")
    user: Annotated[UserTable, BeforeValidator(_user, json_schema_input_type=UserTable | str)] | None = None
    retry: Annotated[RetryTable, BeforeValidator(_retry, json_schema_input_type=RetryTable | int)] | None = None
    source: Annotated[SourceTable, BeforeValidator(_source, json_schema_input_type=SourceTable | str)] | None = None
    tasks: Texts | None = Field(None, description="task directories, or folders of them")
    include: Texts | None = Field(None, description="names of tasks to run, with * and ?")
    exclude: Texts | None = Field(None, description="names of tasks to leave out, with * and ?")
    usage_tracking: Tracking | None = None


def rollout_schema() -> dict[str, Any]:
    """Return the JSON Schema of rollout files."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **RolloutTable.model_json_schema()}
