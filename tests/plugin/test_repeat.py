"""`@pytest.mark.bf_trials(K)` on Python tests."""

from __future__ import annotations

import pytest

TEST = "import pytest\n@pytest.mark.bf_trials({})\ndef test_it({}): pass\n"


@pytest.mark.parametrize(
    ("arguments", "fixtures", "names"),
    [("2", "bf_config", ["test_it[1]", "test_it[2]"]), ("2", "", ["test_it"]), ("'x'", "tmp_path", ["test_it"])],
)
def test_a_test_that_uses_our_fixtures_is_repeated(
    pytester: pytest.Pytester, arguments: str, fixtures: str, names: list[str]
) -> None:
    items, _ = pytester.inline_genitems(pytester.makepyfile(TEST.format(arguments, fixtures)))
    assert [item.name for item in items] == names


def test_a_bad_number_is_one_line(pytester: pytest.Pytester) -> None:
    bad = ("", "0", "-1", "10001", "1.5", "True", "'x'", "1, 2")
    test = "@pytest.mark.bf_trials({})\ndef test_{}(bf_config): pass\n"
    files = {f"test_{number}": f"import pytest\n{test.format(given, number)}" for number, given in enumerate(bad)}
    pytester.makepyfile(**files)
    done = pytester.runpytest_inprocess("--collect-only", "-q")
    assert done.ret == pytest.ExitCode.INTERRUPTED
    lines = [line for line in done.outlines if "takes" in line and not line.startswith("ERROR")]
    told = "bf_trials takes one number from 1 to 10000; write bf_trials(3)"
    assert [line.rpartition("::")[2] for line in lines] == [f"test_{number}: {told}" for number in range(len(bad))]
    assert "pytest_benchflow/" not in done.stdout.str()
