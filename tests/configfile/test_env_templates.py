"""Env templates."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from pytest_benchflow.configfile import MissingVariables, missing_variables, resolve_env, resolve_headers
from pytest_benchflow.core.errors import Category

HOST = {"A": "1", "EMPTY": ""}
ROWS = [
    ("plain", "plain"),
    ("${A}", "1"),
    ("${A:-x}", "1"),
    ("${NONE:-x}", "x"),
    ("${NONE:-}", ""),
    ("${NONE:-a}b}", "a}b"),
    ("${EMPTY:-x}", ""),
    ("${EMPTY}", ""),
    ("x-${A}", "x-${A}"),
    ("${A}-x", "${A}-x"),
    ("$A", "$A"),
    ("${1A}", "${1A}"),
    ("${A-x}", "${A-x}"),
    ("", ""),
]


@pytest.mark.parametrize(("value", "result"), ROWS)
def test_only_a_whole_value_is_a_template(value, result):
    assert resolve_env({"K": value}, HOST) == {"K": result}


def test_all_missing_variables_come_in_one_error():
    env = {"K": "${X}", "L": "${Y}", "M": "${X}", "N": "${A}"}
    with pytest.raises(MissingVariables) as caught:
        resolve_env(env, HOST, "hello: [verifier.env]")
    assert str(caught.value) == (
        "hello: [verifier.env] needs the environment variables X, Y; set them, or give a default: ${X:-value}"
    )
    assert caught.value.names == missing_variables(env, HOST) == ("X", "Y")
    assert caught.value.category is Category.CREDENTIALS
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_one_missing_variable():
    with pytest.raises(MissingVariables, match=r"^env needs the environment variable X; set it, or"):
        resolve_env({"K": "${X}"}, {})


def test_headers_expand_inside_a_longer_text():
    assert resolve_headers({"Authorization": "Bearer ${A}, ${Z:-none}"}, HOST) == {"Authorization": "Bearer 1, none"}
    with pytest.raises(MissingVariables, match="variables Y, Z"):
        resolve_headers({"H": "${Y} ${Z}"}, HOST)


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, pytest_benchflow.tasks as t\n"
        "assert 'load_task' in dir(t)\n"
        "assert not {'pydantic', 'yaml', 'tomli', 'filelock', 'pytest'} & set(sys.modules), sys.modules\n"
        "[getattr(t, name) for name in t.__all__]\n"
        "assert 'pytest' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    import pytest_benchflow.tasks as tasks

    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = tasks.nothing
