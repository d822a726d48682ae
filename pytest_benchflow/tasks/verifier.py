"""The `[verifier]` table: how the workspace is scored."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from .environment import EnvironmentConfig, check_hosts
from .values import Env, Host, NonEmpty, Number, PhaseNetworkMode, Seconds, Table, User, quoted, refuse


class CollectHook(Table):
    """A command run in the agent's environment just before artifacts are taken; best effort."""

    command: NonEmpty
    service: NonEmpty = "main"
    timeout_sec: Seconds = 60.0
    user: User | None = None


class Judge(Table):
    """A language model that scores against a rubric."""

    model: NonEmpty = "claude-sonnet-4-6"
    rubric_path: NonEmpty = "tests/rubric.toml"
    input_dir: NonEmpty = "/app"
    input_type: NonEmpty = "deliverables"
    context: str = ""


class Hardening(Table):
    """Protections a task may opt out of."""

    cleanup_conftests: StrictBool = True


class Memory(Table):
    """Skills the agent is expected to have used."""

    expected_skills: tuple[str, ...] = ()


def _range(value: object) -> object:
    bounds = [v for v in value if type(v) in (int, float)] if isinstance(value, list | tuple) else []
    if not isinstance(value, list | tuple) or len(bounds) != 2 or len(value) != 2:
        raise refuse(f"is {quoted(value)}", "give the lowest and the highest reward, for example [0, 10]")
    if not bounds[0] <= 0 or not bounds[1] >= 1:
        raise refuse(f"is [{bounds[0]}, {bounds[1]}]", "it may only widen [0, 1]")
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
            raise refuse('is "shared" although the verifier has its own environment', fix, "environment_mode")
        return self

    def says_mode(self) -> bool:
        """Say whether the table decides between shared and separate at all."""
        return self.environment_mode is not None or self.environment is not None

    @property
    def mode(self) -> Literal["shared", "separate"]:
        """Whether the verifier runs beside the agent's leftovers or in an environment of its own."""
        return self.environment_mode or ("separate" if self.environment is not None else "shared")
