"""The log of what an agent prints: bounded, and without secrets."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.agents.log import AgentLog, log_name

SECRET = "sk-secret-0123"


def written(path: Path, pieces: list[bytes], **limits: int) -> bytes:
    path.unlink(missing_ok=True)
    log = AgentLog(path, [SECRET, "short"], **limits)
    for piece in pieces:
        log.write(piece)
    log.close()
    log.close()
    log.write(b"after the end")
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude-agent-acp", "claude_agent_acp.txt"),
        ("gemini", "gemini.txt"),
        ("acpx/gemini", "acpx_gemini.txt"),
        ("cmd: /bin/x --acp", "cmd_bin_x_acp.txt"),
    ],
)
def test_a_log_is_named_after_its_agent(agent: str, name: str) -> None:
    assert log_name(agent) == name


def test_nothing_printed_leaves_an_empty_file_in_whose_place_no_other_stands(tmp_path: Path) -> None:
    assert written(tmp_path / "log", []) == b""
    assert (tmp_path / "log").read_bytes() == b""


def test_a_secret_is_masked_also_as_json_writes_it(tmp_path: Path) -> None:
    log = AgentLog(tmp_path / "log", ['quote"secret'])
    log.write(b'plain quote"secret and {"k": "quote\\"secret"} short\n')
    log.close()
    assert (tmp_path / "log").read_bytes() == b'plain [secret] and {"k": "[secret]"} short\n'


@given(cuts=st.lists(st.integers(0, 60)), before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_a_secret_in_pieces_is_masked(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], before: bytes, after: bytes
) -> None:
    text = before + SECRET.encode() + after
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    assert written(tmp_path_factory.getbasetemp() / "log", pieces) == before + b"[secret]" + after


def test_what_is_printed_is_on_disk_at_once(tmp_path: Path) -> None:
    log = AgentLog(tmp_path / "log", [SECRET])
    log.write(b"hello\n")
    assert (tmp_path / "log").read_bytes() == b"hello\n"
    log.close()


def test_a_flood_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    pieces = [b"%06d\n" % number for number in range(10_000)]
    text = written(tmp_path / "log", pieces, head=700, tail=70)
    assert text.startswith(b"000000\n000001\n")
    assert text.endswith(b"009998\n009999\n")
    assert b"\n[... 69230 bytes left out ...]\n" in text
    assert len(text) < 900


def test_a_second_session_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for word in (b"one\n", b"two\n"):
        log = AgentLog(tmp_path / "log")
        log.write(word)
        log.close()
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
