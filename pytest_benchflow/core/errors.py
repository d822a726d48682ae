"""Every failure of the harness, with its category, its phase and advice."""

from __future__ import annotations

from enum import StrEnum


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
    DEADLINE = "deadline"
    UNSUPPORTED = "unsupported"
    INTERNAL = "internal"


#: Failures that another attempt may cure; the rest would only cost the same again.
TRANSIENT = frozenset({Category.SANDBOX, Category.INSTALL, Category.HANDSHAKE, Category.DEADLINE})


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
        self.retryable = self.category in TRANSIENT if retryable is None else retryable

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


class CannotRunHere(Exception):
    """The rollout makes no sense here by design; the item is skipped with this reason."""
