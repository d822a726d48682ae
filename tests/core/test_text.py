"""Foreign output is shown without what would drive a terminal, and never too much of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.core.text import (
    distinct_names,
    exit_status,
    last_line,
    printable,
    tail,
    with_cause,
    without_progress,
)


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
        ("marks\u200e\u200f\u061c", "marks"),
        ("not for XML\ufffe\uffff", "not for XML"),
        ("half\x1b[", "half["),
        ("Größe ✓", "Größe ✓"),
        ("a ##vso[task.setvariable]x", "a # #vso[task.setvariable]x"),
        ("##teamcity[buildStop]", "# #teamcity[buildStop]"),
        ("\x85\u2028::error::x", ": :error::x"),
        ("half a name \udcff", "half a name \\udcff"),
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


def test_a_tail_has_meters_as_a_terminal_leaves_them(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"start\r\n(Reading ... 5%\r(Reading ... 100%\r(Reading ... 7 files.)\n\nend\r\n")
    assert tail(path) == "start\n(Reading ... 7 files.)\n\nend"


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


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "exited with 1"),
        (127, "exited with 127"),
        (128, "exited with 128"),
        (255, "exited with 255"),
        (137, "was killed by SIGKILL"),
        (143, "was killed by SIGTERM"),
        (-9, "was killed by SIGKILL"),
    ],
)
def test_an_exit_status_is_told_as_what_it_means(code: int, words: str) -> None:
    assert exit_status(code) == words


@pytest.mark.parametrize(
    "line",
    [
        "     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 12.3/12.3 MB 9.1 MB/s eta 0:00:00",
        "######################################################################## 100.0%",
        "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current",
        "                                 Dload  Upload   Total   Spent    Left  Speed",
        "  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0",
        " 45%",
        "50%\r 99%\r100%",
        "Compressing 10%\r",
    ],
)
def test_bars_and_meters_are_left_out(line: str) -> None:
    assert without_progress(f"before\n{line}\nafter: 50% of 1 2 3 files\n") in (
        ["before", "after: 50% of 1 2 3 files"],
        ["before", "Compressing 10%", "after: 50% of 1 2 3 files"],
    )


def test_the_last_line_is_what_a_terminal_would_show_last() -> None:
    assert last_line("first\nloading\rdone\n 100%\n\n") == "done"
    assert last_line(" 100%\n") is None


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (
            "Collecting nope\nERROR: Could not find a version that satisfies the requirement nope\n"
            "ERROR: No matching distribution found for nope\n[notice] A new release of pip is available",
            "ERROR: Could not find a version that satisfies the requirement nope",
        ),
        (
            "debconf: unable to initialize frontend: Dialog\nReading state information...\n"
            "E: Unable to locate package nope",
            "E: Unable to locate package nope",
        ),
        (
            "npm error code E404\nnpm error 404 Not Found - GET https://r/nope\nnpm error 404 Note that you can\n"
            "npm error A complete log of this run can be found in: /x",
            "npm error 404 Not Found - GET https://r/nope",
        ),
        (
            "gcc -c a.c\na.c:1:10: fatal error: missing.h: No such file or directory\nmake: *** [all] Error 1",
            "a.c:1:10: fatal error: missing.h: No such file or directory",
        ),
        (
            "  error: subprocess-exited-with-error\n  × Building wheel\n  error: command 'gcc' failed: No such file",
            "error: command 'gcc' failed: No such file",
        ),
        (
            "WARNING: Retrying after Failed to establish a connection\nTraceback (most recent call last):\n"
            "ModuleNotFoundError: No module named 'x'",
            "ModuleNotFoundError: No module named 'x'",
        ),
        (
            "Some packages could not be installed. This may mean that you have\nrequested an impossible situation\n"
            " one : Depends: two (= 1) but 2 is to be installed\nE: Unable to correct problems, you have held broken",
            "one : Depends: two (= 1) but 2 is to be installed",
        ),
        ("#8 0.312 /bin/sh: 1: uvx: not found", "/bin/sh: 1: uvx: not found"),
        ("one\ntwo", "two"),
    ],
)
def test_the_cause_of_a_failure_stands_behind_what_failed(output: str, cause: str) -> None:
    first, *rest = with_cause("Dockerfile:3: RUN x: exit status 1\n" + output).split("\n")
    assert first == f"Dockerfile:3: RUN x: exit status 1: {cause}"
    assert len(rest) == len(output.split("\n")) - 1


def test_a_failure_without_output_stays_as_it_is() -> None:
    assert with_cause("Dockerfile:3: COPY x: is missing") == "Dockerfile:3: COPY x: is missing"
