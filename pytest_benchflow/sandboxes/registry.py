"""Which sandboxes exist, by the word users choose them with, and the options that users give them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points

from pytest_benchflow.core.errors import BenchflowError, UsageError
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.sandboxes.base import Backend

Factory = Callable[[], Backend]

AUTO = "auto"
ENTRY_POINTS = "pytest_benchflow.sandboxes"
#: What every backend has to have; those of other packages may have been written for an earlier release.
_MEMBERS = sorted(name for name in vars(Backend) if not name.startswith("_"))


def _local() -> Backend:
    if sys.platform != "linux":
        raise UsageError("the sandbox 'local' needs Linux", advice="use --bf-sandbox docker")
    from pytest_benchflow.sandboxes.local.backend import LocalBackend

    return LocalBackend()


def _docker() -> Backend:
    from pytest_benchflow.sandboxes.docker.backend import DockerBackend

    return DockerBackend()


def _best() -> tuple[str, str]:
    from pytest_benchflow.sandboxes.docker.client import daemon_answers

    if daemon_answers():
        return "docker", "its daemon answers"
    return "local", "embedded, no Docker daemon answers"


class SandboxRegistry:
    """Knows the backends of this package, of installed packages, and those registered by hand."""

    def __init__(self, options: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Give backends the values of their options, by backend and option: `{"docker": {"network": "host"}}`."""
        self._factories: dict[str, Factory] = {"docker": _docker, "local": _local}
        self._options = {name: dict(values) for name, values in (options or {}).items()}
        self._searched = False

    def register(self, name: str, factory: Factory) -> None:
        """Add a backend, or replace the one of that name."""
        if name == AUTO or not name.replace("-", "").replace("_", "").isalnum():
            raise UsageError(f"{name!r} cannot name a sandbox", advice="use letters, digits and dashes")
        self._factories[name] = factory

    def add_options(self, options: Mapping[str, Mapping[str, str]]) -> None:
        """Give backends more values of their options; these win over those given before."""
        for name, values in options.items():
            self._options.setdefault(name, {}).update(values)

    def names(self) -> list[str]:
        """List every word that `create` takes."""
        self._search()
        return sorted(self._factories)

    def create(self, name: str) -> Backend:
        """Make the backend called `name` with its options; UsageError if there is no such backend or option."""
        chosen = self.resolve(name)[0]
        if unknown := [other for other in self._options if other not in self.names()]:
            raise UsageError(self._unknown_backend(unknown[0]))
        backend = self._make(chosen)
        configure_backend(backend, self._options.get(chosen, {}), name=chosen)
        return backend

    def _make(self, name: str) -> Backend:
        backend = self._factories[name]()
        if missing := [member for member in _MEMBERS if not hasattr(backend, member)]:
            advice = "give it every member of the protocol Backend in pytest_benchflow.sandboxes"
            raise UsageError(f"the sandbox {name!r} has no {', '.join(missing)}", advice=advice)
        return backend

    def resolve(self, name: str) -> tuple[str, str]:
        """Return the backend that a user's word means here, and why; UsageError if there is none."""
        if name == AUTO:
            return _best()
        self._search()
        if name not in self._factories:
            raise UsageError(f"unknown sandbox {name!r}", advice=did_you_mean(name, [*self._factories, AUTO]))
        return name, "chosen"

    def option_problems(self, options: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        """Yield what is wrong with the values of options: no such backend, no such option, a value it cannot have."""
        for name, values in options.items():
            if name not in self.names():
                yield self._unknown_backend(name)
                continue
            try:
                backend = self._make(name)
            except BenchflowError as error:
                yield str(error)
            else:
                yield from _problems(backend, values, name)

    def _unknown_backend(self, name: str) -> str:
        return f"options for an unknown sandbox {name!r}; {did_you_mean(name, self.names())}"

    def _search(self) -> None:
        """Add installed packages' backends, once; a name taken by hand keeps its factory."""
        if not self._searched:
            self._searched = True
            for point in entry_points(group=ENTRY_POINTS):
                self._factories.setdefault(point.name, _factory(point))


def _factory(point: EntryPoint) -> Factory:
    def make() -> Backend:
        try:
            loaded: Factory = point.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(f"the sandbox {point.name!r} cannot be loaded from {point.value}: {error}") from error
        return loaded()

    return make


def parse_backend_options(texts: Sequence[str], registry: SandboxRegistry) -> dict[str, dict[str, str]]:
    """Read options as users write them, `BACKEND.NAME=VALUE`; one UsageError for all problems.

    Of an option that is given twice the last value counts. The backends that are named are made, which starts nothing.

        registry.add_options(parse_backend_options(["docker.network=host"], registry))
    """
    options: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for text in texts:
        target, equals, value = text.partition("=")
        backend, _, name = target.strip().partition(".")
        if equals and backend and name:
            options.setdefault(backend, {})[name] = value
        else:
            # Without the value, which may be a secret.
            shown = f"{target}=…" if equals else target
            problems.append(f"{shown!r} is not an option of a sandbox; write BACKEND.NAME=VALUE")
    if problems := [*problems, *registry.option_problems(options)]:
        raise UsageError(" · ".join(problems))
    return options


def configure_backend(backend: Backend, values: Mapping[str, str], *, name: str) -> None:
    """Check the values of a backend's options and hand them over with its defaults; one UsageError for all problems."""
    if problems := list(_problems(backend, values, name)):
        raise UsageError(" · ".join(problems))
    defaults = {option.name: option.default for option in backend.options if option.default is not None}
    if backend.options:
        backend.configure({**defaults, **values})


def _problems(backend: Backend, values: Mapping[str, str], name: str) -> Iterator[str]:
    known = {option.name: option for option in backend.options}
    for key, value in values.items():
        if key not in known:
            hint = did_you_mean(key, known) if known else "it has none"
            yield f"unknown option {key!r} of the sandbox {name}; {hint}"
        elif problem := known[key].problem(value):
            yield f"option {name}.{key} is {value!r}; {problem}"
