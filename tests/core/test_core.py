"""What everything stands on: bounded output, files that are replaced whole, and when a process started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.core.capture import Capture, Tail
from pytest_benchflow.core.files import is_abandoned, temporary_name, write_atomically
from pytest_benchflow.core.process import start_time


@given(st.lists(st.binary(max_size=12)), st.integers(1, 20))
def test_a_tail_is_the_last_bytes_and_a_count(pieces: list[bytes], limit: int) -> None:
    tail, whole = Tail(limit), b"".join(pieces)
    for piece in pieces:
        tail.add(piece)
    assert tail.content() == whole[-limit:]
    assert tail.dropped == max(0, len(whole) - limit)


@given(st.text(max_size=40), st.integers(1, 9), st.integers(0, 20), st.integers(1, 20))
def test_a_capture_is_the_start_and_the_end(text: str, size: int, head: int, tail: int) -> None:
    capture, data = Capture(head, tail), text.encode()
    for start in range(0, len(data), size):
        capture.add(data[start : start + size])
    if len(data) <= head + tail:
        assert capture.text() == text
    else:
        first, last = (part.decode(errors="replace") for part in (data[:head], data[-tail:]))
        assert capture.text() == f"{first}\n[... {len(data) - head - tail} bytes left out ...]\n{last}"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "one")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "two\udcff")
    assert path.read_text() == "one"
    write_atomically(path, "two\udcff", errors="surrogateescape")
    assert path.read_bytes() == b"two\xff"
    assert os.listdir(tmp_path) == ["file"]


def test_a_process_that_ended_has_no_start_time() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert start_time(process.pid) == start_time(str(process.pid)) != ""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert start_time(process.pid) == "", "a zombie"
    process.communicate()
    assert start_time(process.pid) == ""


def test_a_temporary_name_tells_whether_its_maker_is_gone() -> None:
    name = temporary_name()
    assert not is_abandoned(name)
    assert is_abandoned(name.replace(f"-{start_time(os.getpid())}-", "-1-"))
    assert not is_abandoned("layers")
