"""Named entries that packages, hooks and users add to, and what to say about a name that nobody has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.text import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(MutableMapping[str, T]):
    """A mapping from names to entries; `find` raises an error that names the nearest entry."""

    def __init__(
        self, noun: str, entries: MutableMapping[str, T] | None = None, *, error: type[UsageError] = UsageError
    ) -> None:
        """Hold `entries` themselves, not a copy; `noun` is what messages call an entry."""
        self._noun = noun
        self._entries: MutableMapping[str, T] = {} if entries is None else entries
        self._error = error

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __setitem__(self, name: str, entry: T) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str) -> T:
        """Return the entry called `name`."""
        if name not in self._entries:
            raise self.unknown_error(name)
        return self._entries[name]

    def unknown_error(self, name: str, *, other_names: Iterable[str] = ()) -> UsageError:
        """Return the error for a name without an entry; `other_names` are words that would do as well."""
        return self._error(f"unknown {self._noun} {name!r}", advice=did_you_mean(name, [*self, *other_names]))


def installed_entries(group: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield name and maker of what installed packages add to a registry; only calling the maker loads the package.

    Each entry point of the group names a callable without arguments that returns the entry.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=group):
        yield point.name, partial(_make, point)


def _make(point: EntryPoint) -> object:
    return point.load()()
