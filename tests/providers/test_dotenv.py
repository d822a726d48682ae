"""`.env` files: what is read from them, and what is said about a line that is none."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.core.errors import CredentialsError
from pytest_benchflow.providers.variables import parse_dotenv, read_dotenv


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\nB=2\n", {"A": "1", "B": "2"}),
        ("export A=1", {"A": "1"}),
        ("  A = 1  ", {"A": "1"}),
        ("A=1 # comment", {"A": "1"}),
        ("A=1#no", {"A": "1#no"}),
        ("# comment\n\n   # another\nA=1\n\n", {"A": "1"}),
        ("A='x # y' # z", {"A": "x # y"}),
        ('A="x \\"q\\" \\n y"', {"A": 'x "q" \n y'}),
        ("A='one\ntwo'\nB=3", {"A": "one\ntwo", "B": "3"}),
        ("A='no \\n escape'", {"A": "no \\n escape"}),
        ("A=\nB=''\n", {"A": "", "B": ""}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=x=y=z", {"A": "x=y=z"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ('A={"a": "b"}', {"A": '{"a": "b"}'}),
        ("A=$B ${C}", {"A": "$B ${C}"}),
        ("", {}),
    ],
)
def test_assignments_are_read(text: str, found: dict[str, str]) -> None:
    assert parse_dotenv(text, ".env") == found


@pytest.mark.parametrize(
    ("text", "line"),
    [("A=1\nsecret-value\n", 2), ("A=1\n\n1B=2", 3), ("A='open", 1), ("A='x' y", 1), ('A="x\nB=1', 1)],
)
def test_a_line_that_is_none_is_named_and_not_shown(text: str, line: int) -> None:
    with pytest.raises(CredentialsError) as error:
        parse_dotenv(text, "dir/.env")
    assert str(error.value) == f"dir/.env:{line}: this line is not an assignment; write NAME=value"


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(CredentialsError):
        parse_dotenv(text, ".env")


@given(st.text(st.characters(exclude_characters="'\\\r", exclude_categories=["Cs"])))
def test_quoted_values_are_kept_as_they_are(value: str) -> None:
    assert parse_dotenv(f"A='{value}'\nB=1", ".env") == {"A": value, "B": "1"}


def test_the_working_directory_has_it_or_not(tmp_path: Path) -> None:
    assert read_dotenv({}, tmp_path) == {}
    (tmp_path / ".env").write_text("\ufeffA=1")
    assert read_dotenv({}, tmp_path) == {"A": "1"}


def test_another_file_can_be_named_and_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("A=2")
    assert read_dotenv({"BF_DOTENV_PATH": str(tmp_path / "other")}, tmp_path) == {"A": "2"}
    with pytest.raises(CredentialsError, match="BF_DOTENV_PATH: there is no file"):
        read_dotenv({"BF_DOTENV_PATH": str(tmp_path / "none")}, tmp_path)


def test_a_file_that_is_no_text_is_one_error(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=\xff\xfe")
    with pytest.raises(CredentialsError, match="cannot be read: it is not text"):
        read_dotenv({}, tmp_path)
