"""Messages are found in whatever an agent prints."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from pytest_benchflow.agents.acp.connection import Framer, Message, Noise, decode, well_formed

A = {"jsonrpc": "2.0", "method": "a"}
B = {"jsonrpc": "2.0", "id": 1, "result": {"text": "ü\n"}}
A_LINE, B_LINE = json.dumps(A).encode(), json.dumps(B, ensure_ascii=False).encode()


def frames(*pieces: bytes, limit: int = 10_000) -> list[Message | Noise]:
    framer = Framer(limit)
    return [*(item for piece in pieces for item in framer.feed(piece)), *framer.end()]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (A_LINE, [A]),
        (B_LINE, [B]),
        (b"  " + A_LINE + b" \r", [A]),
        (b"\xef\xbb\xbf" + A_LINE, [A]),
        (A_LINE + B_LINE, [A, B]),
        (A_LINE + b" " + B_LINE + b",", [A, B]),
        (b"[12:00] sent " + A_LINE, [A]),
        (b"\x1b[0m" + A_LINE, [A]),
        (b"{" + A_LINE, [A]),
        (b"[" + A_LINE + b"," + B_LINE + b"]", [A, B]),
        (b"[1," + A_LINE + b"]", [A]),
        (b'{"jsonrpc":"2.0","method":"a","x":NaN}', [{**A, "x": None}]),
        (b'{"jsonrpc":"2.0","method":"a","x":-Infinity}', [{**A, "x": None}]),
        (b'{"jsonrpc":"2.0","method":"a","x":"\xff"}', [{**A, "x": "�"}]),
        (b'{"jsonrpc":"2.0","method":"a","x":"\\ud800"}', [{**A, "x": "\ud800"}]),
        (b"", []),
        (b"\r", []),
        (b"\x00", []),
    ],
)
def test_messages_of_a_line(line: bytes, found: list[Message]) -> None:
    assert [*decode(line)] == found


@pytest.mark.parametrize(
    "line",
    [
        b"42",
        b"null",
        b"true",
        b'"jsonrpc"',
        b"[1]",
        b"{}",
        b'{"level":"info"}',
        b'{"id":1,"result":{}}',
        b"{" * 1000,
        b"[" * 100_000,
        b'{"jsonrpc":"2.0"',
        b"\xff\xfe",
        b"Loading...",
    ],
)
def test_everything_else_is_noise_and_kept(line: bytes) -> None:
    assert [*decode(line)] == [Noise(line + b"\n")]


def test_a_line_full_of_beginnings_takes_no_time() -> None:
    line = b'{"jsonrpc":' * 50_000
    assert [*decode(line)] == [Noise(line + b"\n")]


def test_a_line_over_the_limit_is_counted_and_skipped() -> None:
    assert frames(b"x" * 60, b"x" * 60, b"\n" + A_LINE + b"\n", limit=100) == [
        Noise(b"[a line of 120 bytes was skipped, the limit is 100]\n"),
        A,
    ]


def test_a_line_of_exactly_the_limit_counts() -> None:
    assert frames(A_LINE + b"\n", limit=len(A_LINE)) == [A]


def test_the_last_line_needs_no_end() -> None:
    assert frames(A_LINE + b"\n" + B_LINE) == [A, B]
    assert frames(b"bye") == [Noise(b"bye")]


LINES = st.lists(
    st.one_of(
        st.sampled_from([A_LINE, B_LINE, A_LINE + B_LINE, b"log", b"", b"\r", b"42", b"x" * 200, b"{", b"\xff"]),
        st.binary(max_size=30),
    ),
    max_size=8,
)


@given(LINES, st.lists(st.integers(0, 400), max_size=12))
@example([A_LINE, B_LINE], [1, 2, 3])
def test_how_the_stream_is_split_makes_no_difference(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"\n".join(lines)
    at = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(at)]
    assert frames(*pieces, limit=150) == frames(stream, limit=150)


@given(st.binary(max_size=300))
def test_no_byte_stream_breaks_it(stream: bytes) -> None:
    kept = [item for item in frames(stream) if isinstance(item, Noise)]
    assert sum(len(item.data) for item in kept) <= len(stream)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"method": "a"}, True),
        ({"method": "a", "id": 1}, True),
        ({"method": "a", "id": "x"}, True),
        ({"method": "a", "id": None}, True),
        ({"method": "a", "id": [1]}, None),
        ({"method": "a", "id": {}}, None),
        ({"method": 5}, None),
        ({"method": None, "id": 1}, None),
        ({"method": "session/prompt", "id": 1}, None),
        ({"id": 1, "result": {}}, {"id": 1, "result": {}}),
        ({"id": "7", "result": {}}, {"id": 7, "result": {}}),
        ({"id": 1}, {"id": 1, "result": None}),
        ({"id": 1, "result": {}, "error": None}, {"id": 1, "result": {}}),
        ({"id": True, "result": {}}, None),
        ({"id": "x", "result": {}}, None),
        ({"id": None, "error": {}}, None),
        ({"result": {}}, None),
        ({"id": 1, "error": "no"}, {"id": 1, "error": {"code": -32603, "message": "no", "data": None}}),
        ({"id": 1, "error": [1]}, {"id": 1, "error": {"code": -32603, "message": "[1]", "data": None}}),
        ({"id": 1, "error": {"code": "x"}}, {"id": 1, "error": {"code": -32603, "message": "null", "data": None}}),
        ({"id": 1, "error": {"code": 4, "message": "m", "data": 5}},) * 2,
    ],
)
def test_only_sane_messages_reach_the_connection(message: Message, expected: Message | bool | None) -> None:
    message = {"jsonrpc": "2.0", **message}
    if isinstance(expected, dict):
        expected = {"jsonrpc": "2.0", **expected}
    assert well_formed(message) == (message if expected is True else expected)
