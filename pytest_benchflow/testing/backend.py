"""The backend itself: its name, its options, and what it finds of killed runs."""

from __future__ import annotations

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.sandboxes import Backend, Sandbox, configure_backend
from pytest_benchflow.testing.base import SandboxSuite


class BackendTests(SandboxSuite):
    """What a backend says about itself, before and while sandboxes run."""

    async def test_backend_has_a_name_users_can_type(self, backend: Backend) -> None:
        assert backend.name.replace("-", "").isalnum()

    async def test_options_have_names_users_can_type_and_a_help(self, backend: Backend) -> None:
        names = [option.name for option in backend.options]
        assert len(set(names)) == len(names)
        for option in backend.options:
            assert option.name.replace("-", "").replace("_", "").isalnum(), option.name
            assert len(option.help.splitlines()) == 1, f"{option.name} needs one line of help"

    async def test_defaults_and_choices_of_options_can_be_given(self) -> None:
        for option in self.make_backend().options:
            values = [*option.choices, *([option.default] if option.default is not None else [])]
            for value in values:
                configure_backend(self.make_backend(), {option.name: value}, name="backend")

    async def test_option_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no-such-option"):
            configure_backend(self.make_backend(), {"no-such-option": "x"}, name="backend")

    async def test_leftovers_are_found_without_preflight(self, sandbox: Sandbox) -> None:
        # `bf cleanup` asks a backend of its own in another process; none of the two may disturb a sandbox that runs.
        for place in self.make_backend().leftovers():
            assert place.title
            assert not place.is_cache, f"{place.title}: caches are listed only with a time"
            async with place as opened:
                leftovers = await opened.find()
                assert await opened.remove([]) == []
            ids = [(item.kind, item.id) for item in leftovers]
            assert len(set(ids)) == len(ids), f"{place.title} lists something twice"
            assert all(item.run for item in leftovers) or not place.has_runs
            abandoned = [item for item in leftovers if item.abandoned]
            assert not [item for item in abandoned if sandbox.id in (item.id, item.name)], "a running sandbox is listed"
        assert (await sandbox.exec("echo on")).stdout == "on\n"

    async def test_caches_are_listed_with_a_time(self) -> None:
        backend = self.make_backend()
        places = backend.leftovers(unused_for_sec=1e9)
        assert [place.title for place in places if not place.is_cache] == [place.title for place in backend.leftovers()]
        for place in places:
            if place.is_cache:
                async with place as opened:
                    assert await opened.find() == [], "nothing is unused for thirty years"
