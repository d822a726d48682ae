"""Foreign output is shown without what would drive a terminal, and never too much of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.core.text import distinct_names, printable, tail


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\ttext\nnext", "plain\ttext\nnext"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bcreset", "creset"),
        ("a\x08b", "ab"),
        ("bell\x07", "bell"),
        ("line\r\nnext", "line\nnext"),
        ("over\rwrite", "overwrite"),
        ("c1\x9b31mred", "c131mred"),
        ("bidi\u202eevil", "bidievil"),
        ("half\x1b[", "half["),
        ("Größe ✓", "Größe ✓"),
    ],
)
def test_escape_sequences_and_controls_are_dropped(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(st.text(alphabet=st.characters(codec="utf-8", max_codepoint=0x2FFF)))
def test_nothing_that_drives_a_terminal_is_left(text: str) -> None:
    shown = printable(text)
    assert not {char for char in shown if (ord(char) < 32 and char not in "\t\n") or 0x7F <= ord(char) <= 0x9F}


@given(st.text())
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert printable(printable(text)) == printable(text)


def test_a_tail_is_the_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(str(n) for n in range(100)) + "\n")
    assert tail(path, lines=3) == "97\n98\n99"


def test_a_tail_reads_no_more_than_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 100_000)
    assert tail(path, max_bytes=10) == "x" * 10


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_has_no_tail(tmp_path: Path, content: str) -> None:
    path = tmp_path / "log"
    path.write_text(content)
    assert tail(path) is None


def test_a_missing_file_has_no_tail(tmp_path: Path) -> None:
    assert tail(tmp_path / "log") is None


def test_a_tail_is_printable(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x1b[31mred\xff\x1b[0m")
    assert tail(path) == "red�"


def test_names_are_told_apart_by_as_much_of_their_paths_as_it_takes() -> None:
    pairs = [("x", "/t/a/x"), ("y", "/t/a/y"), ("x", "/t/b/x"), ("x", "/t/b/z"), ("y", "/t/a/y"), ("x", "/u/b/x")]
    assert distinct_names(pairs) == {
        ("x", "/t/a/x"): "x (a/x)",
        ("y", "/t/a/y"): "y",
        ("x", "/t/b/x"): "x (t/b/x)",
        ("x", "/t/b/z"): "x (z)",
        ("x", "/u/b/x"): "x (u/b/x)",
    }
    assert distinct_names([("n", "x"), ("n", "a/x")]) == {("n", "x"): "n (x)", ("n", "a/x"): "n (a/x)"}
