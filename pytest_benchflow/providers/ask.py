"""One call to a model through its provider's official SDK, for whoever is no agent: judges and reviewers.

    endpoint = find_endpoint("claude-sonnet-4-6", Sources.here({}), name="judge")
    async with Asker(endpoint) as asker:
        reply = await asker.ask(Question("You are brief.", ("What is 2 + 2?",)), timeout_sec=60)

Nobody else's model answers in its place, and nothing is asked twice once it was answered.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self

from pytest_benchflow.core.errors import CredentialsError, ProviderError
from pytest_benchflow.core.text import one_line
from pytest_benchflow.providers.credentials import find_credential
from pytest_benchflow.providers.model_client import CredentialOption, GenericVariables, Login
from pytest_benchflow.providers.providers import WireProtocol, provider_of_bare
from pytest_benchflow.providers.routes import find_route

if TYPE_CHECKING:
    from pytest_benchflow.providers.prices import Prices
    from pytest_benchflow.providers.variables import Sources

MAX_ATTEMPTS = 3
_FIRST_WAIT_SEC = 1.0
_MAX_WAIT_SEC = 30.0
_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})

Option = Literal["temperature", "schema"]
#: Words in a refusal of a request, and the option that the model or its server does not take.
_REFUSED: Mapping[Option, re.Pattern[str]] = {
    "temperature": re.compile(r"temperature|sampling", re.IGNORECASE),
    "schema": re.compile(
        r"response_?format|json_?schema|output_?(?:config|format)|response_?(?:mime|json)|structured|schema",
        re.IGNORECASE,
    ),
}


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked: a system text, and turns of user and model in turn, the user's first and last."""

    system: str
    turns: tuple[str, ...]
    schema: Mapping[str, object] | None = None
    """JSON Schema that the answer has to fit, where the provider can hold the model to one."""
    temperature: float | None = 0.0
    max_tokens: int = 8192


@dataclass(frozen=True, slots=True)
class TokenUse:
    """Tokens of one call; `cached` are part of `input`."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered."""

    text: str
    model: str | None
    """As it calls itself."""
    tokens: TokenUse = TokenUse()
    ending: Literal["complete", "cut", "refused"] = "complete"
    detail: str | None = None
    """Why it refused, if it says so."""


class AskError(ProviderError):
    """A model could not be asked, or gave no answer."""


class MissingSdk(AskError):
    """The package that speaks with the provider is not installed."""


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """Where a model is asked, and as whom."""

    asked: str
    """The model as the user wrote it."""
    model: str
    """The model as the provider calls it."""
    protocol: WireProtocol
    provider: str
    base_url: str
    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _SdkClient:
    """What providers have to know of the one who asks."""

    name: str
    provider: str | None = None
    protocols: Mapping[WireProtocol, object] = field(
        default_factory=lambda: dict.fromkeys(("anthropic-messages", "openai-completions", "gemini"))
    )
    key_env: str | None = None
    credentials: tuple[CredentialOption, ...] = ()
    login: Login | None = None
    generic: GenericVariables = field(default_factory=GenericVariables)
    requires_env: tuple[str, ...] = ()


def find_endpoint(model: str, sources: Sources, *, name: str, option: str = "--bf-verifier-env") -> ModelEndpoint:
    """Return how a model is reached, with the best credential there is.

    `name` is who asks and `option` what gives it variables, for messages.
    """
    client = _SdkClient(name)
    # BenchFlow's rubrics and LiteLLM's names say google/ for what is gemini/ here.
    asked = f"gemini/{model.removeprefix('google/')}" if model.startswith("google/") else model
    route = find_route(client, asked, sources)
    try:
        key = find_credential(client, route, sources).api_key
    except CredentialsError:
        key = None
    if not key or route.model is None:
        variable = route.provider.key or "a key"
        raise CredentialsError(
            f"{variable} required for model {model!r} of the {name} but not set",
            advice=f"set it in the environment, in .env or with {option} {variable}=VALUE",
        )
    return ModelEndpoint(model, route.model, route.protocol, route.provider.name, route.base_url, key)


class Connection(Protocol):
    """One provider's SDK."""

    async def send(self, question: Question, options: frozenset[Option], timeout_sec: float) -> ModelReply:
        """Ask once; the SDK neither retries nor gives up by itself."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class Asker:
    """Asks one model as often as it is wanted; what the model's server does not take is left out from then on."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self.endpoint = endpoint
        self.options: frozenset[Option] = frozenset({"temperature", "schema"})
        """What may be asked for: narrower once the server refused one of them."""
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    async def ask(self, question: Question, *, timeout_sec: float) -> ModelReply:
        """Return the answer; passing trouble is tried again, within the limit."""
        try:
            async with asyncio.timeout(timeout_sec):
                return await self._ask(question, timeout_sec)
        except TimeoutError:
            raise AskError(f"{self.endpoint.asked} did not answer within {timeout_sec:g} s", retryable=True) from None

    async def _ask(self, question: Question, timeout_sec: float) -> ModelReply:
        connection = await self._connect()
        attempt = 1
        while True:
            options = self.options
            try:
                reply = await connection.send(question, options, timeout_sec)
            except Exception as error:  # every SDK has its own
                trouble = _Trouble.of(error)
                if self._drop_refused(trouble, options):
                    continue
                if not trouble.is_transient or attempt == MAX_ATTEMPTS:
                    raise AskError(f"{self.endpoint.asked}: {trouble.text}", retryable=trouble.is_transient) from None
                await asyncio.sleep(trouble.wait_sec(attempt))
                attempt += 1
                continue
            self._require_model(reply.model)
            return reply

    async def _connect(self) -> Connection:
        async with self._opening:
            if self._connection is None:
                # Importing an SDK takes a second, and its certificates some more: not on the loop's thread.
                self._connection = await asyncio.to_thread(_open, self.endpoint)
        return self._connection

    def _drop_refused(self, trouble: _Trouble, options: frozenset[Option]) -> bool:
        """Leave an option out that the server does not take; return whether there is something else to try."""
        if trouble.status not in (400, 422):
            return False
        for option, words in _REFUSED.items():
            if option in options and words.search(trouble.text):
                self.options -= {option}
                return True
        return False

    def _require_model(self, answered: str | None) -> None:
        if answered is not None and not is_same_model(self.endpoint.model, answered):
            raise AskError(
                f"{self.endpoint.asked} was asked, and {one_line(answered)} answered",
                advice="name the model that is to answer",
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()


def _open(endpoint: ModelEndpoint) -> Connection:
    from pytest_benchflow.providers.sdks import open_connection

    return open_connection(endpoint)


def require_sdk(endpoint: ModelEndpoint) -> None:
    """Raise if the package that an endpoint is asked with is not installed."""
    from pytest_benchflow.providers.sdks import require_package

    require_package(endpoint.protocol)


class UnusableAnswer(Exception):
    """A server answered with something that is no answer of a model."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why there was no answer."""

    text: str
    status: int | None
    is_transient: bool
    retry_after: float | None = None

    @classmethod
    def of(cls, error: Exception) -> _Trouble:
        """Classify what an SDK raised: by its HTTP status, else everything about the connection passes."""
        if isinstance(error, AskError):
            return cls(error.message, None, error.retryable)
        codes = (getattr(error, "status_code", None), getattr(error, "code", None))
        status = next((code for code in codes if isinstance(code, int)), None)
        text = one_line(_said(error), 300) or type(error).__name__
        if status is None:
            cause = f" ({one_line(str(error.__cause__))})" if error.__cause__ is not None else ""
            return cls(f"{text}{cause}", None, not isinstance(error, TypeError | AttributeError))
        return cls(f"HTTP {status}: {text}", status, status in _TRANSIENT, _retry_after(error))

    def wait_sec(self, attempt: int) -> float:
        """Return how long to wait before the next attempt: what the server says, else ever longer."""
        if self.retry_after is not None:
            return min(self.retry_after, _MAX_WAIT_SEC)
        return _FIRST_WAIT_SEC * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries


def _said(error: Exception) -> str:
    """Return what the server says, without the SDK's words around it."""
    body: object = getattr(error, "body", None)
    for part in (body.get("error", body), body) if isinstance(body, dict) else ():
        if isinstance(part, dict) and isinstance(message := part.get("message"), str):
            return message
    return str(getattr(error, "message", None) or error)


def _retry_after(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except (ValueError, TypeError, AttributeError):
        return None


#: What providers add to the name of a model to say which edition of it answered.
_EDITION = re.compile(
    r"(?:-preview)?[-@:](?:20\d{6}|20\d\d-\d\d-\d\d|\d\d-\d\d(?:-20\d\d)?|\d{3,4}|v\d+(?::\d+)?)|-preview"
)


def is_same_model(asked: str, answered: str) -> bool:
    """Return whether the name in an answer is the model that was asked, perhaps with its vendor or its edition."""
    wanted, told = _plain(asked), _plain(answered)
    if wanted == told or wanted.rpartition("/")[2] == told or told.rpartition("/")[2] == wanted:
        return True
    wanted, told = wanted.rpartition("/")[2], told.rpartition("/")[2]
    if wanted.endswith("-latest"):
        # The provider chooses the edition, sometimes the version too.
        words = wanted.removesuffix("-latest").split("-")
        return [word for word in told.split("-") if word in words] == words
    return told.startswith(wanted) and _EDITION.fullmatch(told, len(wanted)) is not None


def _plain(name: str) -> str:
    return name.strip().lower().removeprefix("models/")


def price_of(
    endpoint: ModelEndpoint, model: str | None, tokens: TokenUse, prices: Prices | None = None
) -> float | None:
    """Return what a call cost by the user's prices, else by the list; None if neither has the model."""
    names = (model, endpoint.asked, endpoint.model)
    if prices is not None:
        own = prices.named_cost(names, tokens.input, tokens.output, tokens.cached)
        if own is not None:
            return own
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    usage = Usage(input_tokens=tokens.input, output_tokens=tokens.output, cache_read_tokens=tokens.cached)
    likely = provider_of_bare(endpoint.model)
    for name in dict.fromkeys((model, endpoint.model)):
        for provider in dict.fromkeys((endpoint.provider, likely.name if likely else None)):
            try:
                known = {"gemini": "google"}.get(provider or "", provider)
                price: float = float(calc_price(usage, name or "", provider_id=known).total_price)
            except (LookupError, ValueError):
                continue
            return price
    return None
