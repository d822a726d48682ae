"""Questions for names as they travel, and the answers to them."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

A, PTR, AAAA = 1, 12, 28
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME, REFUSED = 0, 2, 3, 5
_INTERNET = 1
_ONE_QUESTION = 1
_IS_ANSWER, _RECURSION_WANTED, _RECURSION_AVAILABLE = 0x8000, 0x0100, 0x0080
_HEADER = struct.Struct("!6H")
#: Points to the name in the question, which follows the header.
_SAME_NAME = 0xC000 | _HEADER.size
_SECONDS_TO_LIVE = 60
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Question:
    """One question: a name, and what is asked of it."""

    name: str
    kind: int
    message: bytes
    """As it came."""
    end: int
    """Where in the message the question ends."""


def parse(message: bytes) -> Question:
    """Read a message that asks one question; ValueError if it is anything else."""
    try:
        _, flags, questions, *_ = _HEADER.unpack_from(message)
        labels, position = [], _HEADER.size
        while length := message[position]:
            if length > 63:
                raise ValueError("a label is longer than 63 bytes")
            labels.append(message[position + 1 : position + 1 + length].decode("ascii"))
            position += 1 + length
        kind, family = struct.unpack_from("!HH", message, position + 1)
    except (struct.error, IndexError) as error:
        raise ValueError("the message ends too soon") from error
    name = ".".join(labels)
    if flags & _IS_ANSWER or questions != _ONE_QUESTION or family != _INTERNET or len(name) > _LONGEST_NAME:
        raise ValueError("not one question of the internet")
    return Question(name, kind, message, position + 5)


def answer(question: Question, code: int = NO_ERROR, *, address: str | None = None, name: str | None = None) -> bytes:
    """Answer with an address, with a name, or with nothing but a code."""
    record = socket.inet_aton(address) if address else _encode(name) if name else b""
    number, flags = struct.unpack_from("!HH", question.message)
    flags = _IS_ANSWER | flags & _RECURSION_WANTED | _RECURSION_AVAILABLE | code
    data = _HEADER.pack(number, flags, _ONE_QUESTION, 1 if record else 0, 0, 0)
    data += question.message[_HEADER.size : question.end]
    if record:
        data += struct.pack("!HHHIH", _SAME_NAME, question.kind, _INTERNET, _SECONDS_TO_LIVE, len(record)) + record
    return data


def _encode(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in name.encode().split(b".")) + b"\0"


def name_servers() -> list[str]:
    """Return the addresses of the servers that this machine asks."""
    try:
        with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
