"""Every failure of the harness, with its category, its phase and advice."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple


class Category(StrEnum):
    """Who or what failed; reports group errors by this word."""

    TASK = "task"
    CONFIG = "config"
    CREDENTIALS = "credentials"
    SANDBOX = "sandbox"
    BUILD = "build"
    HEALTHCHECK = "healthcheck"
    INSTALL = "install"
    HANDSHAKE = "handshake"
    AGENT = "agent"
    PROVIDER = "provider"
    VERIFIER = "verifier"
    REWARD = "reward"
    JUDGE = "judge"
    DEADLINE = "deadline"
    UNSUPPORTED = "unsupported"
    INTERNAL = "internal"


class Failure(NamedTuple):
    """What a category of failures means to users."""

    what: str
    phases: str
    """Where it usually happens."""
    is_transient: bool
    """Whether another attempt may cure it, unless the error itself knows better."""
    but: str
    """When the error knows better."""
    advice: str
    """What to do, where the error itself has no advice."""


_NEVER = ""
FAILURES: dict[Category, Failure] = {
    Category.TASK: Failure(
        "the task's files are wrong", "collection, setup", False, _NEVER, "correct the task; `bf tasks check` reads it"
    ),
    Category.CONFIG: Failure(
        "settings contradict each other or name what does not exist", "create, setup", False, _NEVER,
        "change the setting that the message names",
    ),
    Category.CREDENTIALS: Failure(
        "a key or login is missing or was refused", "create, connect", False, _NEVER,
        "give the agent its credentials; `bf agents` says what it lacks",
    ),
    Category.SANDBOX: Failure(
        "the sandbox did not start, died or lost its connection", "start, install_agent, execute, verify", True,
        "a command or path of the task's that cannot work, a limit that was reached: never",
        "look at the sandbox's own logs, and at memory and disk of this machine",
    ),
    Category.BUILD: Failure(
        "the environment could not be built", "start", False, "a registry or network that did not answer: yes",
        "build it by hand; the last lines of the build say which instruction failed",
    ),
    Category.HEALTHCHECK: Failure(
        "the environment or a service did not become healthy in time", "start", False, _NEVER,
        "open the environment with `bf shell` and run the check there",
    ),
    Category.INSTALL: Failure(
        "an agent could not be installed", "install_agent", True, "a cache that others can write to: never",
        "read agent/install-stdout.txt, or install it ahead with `bf agents install`",
    ),
    Category.HANDSHAKE: Failure(
        "an agent did not start, or did not speak the protocol", "connect", True,
        "a program that is missing, a request that was refused: never",
        "read the agent's log in agent/, or start it by hand in `bf shell`",
    ),
    Category.AGENT: Failure(
        "an agent ended before its model answered even once", "execute", False, _NEVER, "read the agent's log in agent/"
    ),
    Category.PROVIDER: Failure(
        "the model never answered", "execute", False, "a provider that is overloaded or limits the rate: yes",
        "check model name, quota and the provider's status",
    ),
    Category.VERIFIER: Failure(
        "the verifier crashed, hung or could not be started", "verify", False, _NEVER,
        "read verifier/test-stdout.txt; with a saved workspace `bf regrade` verifies again without the agent",
    ),
    Category.REWARD: Failure(
        "the verifier left no reward, or one that is not a number", "verify", False, _NEVER,
        "let the tests write a number to /logs/verifier/reward.txt",
    ),
    Category.JUDGE: Failure(
        "a judge could not be asked, or gave no verdict that can be read", "verify", False,
        "a provider that is overloaded, limits the rate or does not answer in time: yes",
        "read verifier/judge-calls.jsonl; check the judge's model, its key and its rubric",
    ),
    Category.DEADLINE: Failure(
        "the rollout as a whole took too long, although each of its parts has a limit", "any", True, _NEVER,
        "look at timing.json for the phase that took the time",
    ),
    Category.UNSUPPORTED: Failure(
        "the task declares what the sandbox cannot give", "setup", False, _NEVER,
        "choose another sandbox, for example docker",
    ),
    Category.INTERNAL: Failure(
        "anything nobody expected: a bug in the harness, or a full disk", "any", False, _NEVER,
        "report it with exception.txt from the rollout's directory",
    ),
}  # fmt: skip


class BenchflowError(Exception):
    """A failure of the harness, never of the agent; `message` says what and where, `advice` what to do."""

    category: Category = Category.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        advice: str | None = None,
        category: Category | None = None,
        phase: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        if category is not None:
            self.category = category
        self.phase = phase
        self.retryable = FAILURES[self.category].is_transient if retryable is None else retryable

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}" if self.advice else self.message


class UsageError(BenchflowError):
    """The caller asked for something that does not exist or contradicts itself."""

    category = Category.CONFIG


class BadValue(UsageError, ValueError):
    """A value that cannot be used, for callers who catch ValueError too."""


class BadType(UsageError, TypeError):
    """A value of the wrong kind, or arguments that do not go together, for callers who catch TypeError too."""


class SandboxError(BenchflowError):
    """The sandbox could not start, died, or lost its connection."""

    category = Category.SANDBOX


class BuildError(BenchflowError):
    """The environment of a task could not be built."""

    category = Category.BUILD


class UnsupportedError(BenchflowError):
    """The task declares something that the chosen sandbox cannot give."""

    category = Category.UNSUPPORTED


class SandboxSnapshotNotSupported(UnsupportedError):
    """The sandbox cannot keep its files as an image."""


class CredentialsError(BenchflowError):
    """Something that an agent needs to reach its model is missing."""

    category = Category.CREDENTIALS


class InstallError(BenchflowError):
    """An agent could not be installed."""

    category = Category.INSTALL


class ACPError(BenchflowError):
    """An agent failed at the Agent Client Protocol: a HandshakeError or an AgentError."""


class HandshakeError(ACPError):
    """An agent did not start, or did not speak the protocol."""

    category = Category.HANDSHAKE


class ProviderError(BenchflowError):
    """An agent never got an answer from its model."""

    category = Category.PROVIDER


class AgentError(ACPError):
    """An agent ended before its model answered even once."""

    category = Category.AGENT


class VerifierError(BenchflowError):
    """The verifier crashed, hung, or could not be started."""

    category = Category.VERIFIER


class RewardError(BenchflowError):
    """The verifier left no reward, or one that is not a number."""

    category = Category.REWARD


class JudgeError(VerifierError):
    """A judge gave no verdict: it could not be asked, refused, or said nothing that can be read."""

    category = Category.JUDGE


class JudgeScoringError(JudgeError, RuntimeError):
    """A judge that could be asked gave no verdict."""


class JudgeEnvironmentError(JudgeError, RuntimeError):
    """A judge cannot be asked: its SDK, its key or its model is missing."""


class CannotRunHere(Exception):
    """The rollout makes no sense here by design; the item is skipped with this reason."""


class HeldBack(CannotRunHere):
    """The rollout could run, and the run no longer wants it: its gates are decided, or the money is spent."""

    def __init__(self, reason: str, kind: Literal["decided", "budget"]) -> None:
        super().__init__(reason)
        self.kind: Literal["decided", "budget"] = kind
