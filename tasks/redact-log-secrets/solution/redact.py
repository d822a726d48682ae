"""Redact logs: standard input to standard output."""

import re
import sys

CARD = re.compile(rb"(?<![0-9])(?<![0-9][ -])[0-9](?:[ -]?[0-9])*+")
BEARER = re.compile(rb"(?i)\b(bearer +)[a-z0-9._~+/=-]+")
ASSIGNMENT = re.compile(
    rb"""(?ix) (?<![a-z0-9_]) ((?:password|token|secret|api_key) "?+ [ \t]*+ [=:] [ \t]*+)
    (?: "( (?: [^"\\\r\n] | \\[^\r\n] )++ )" | [^\s&,;"]++ )"""
)
# A match can only start where a local part does, so a long line without an address costs linear time.
MAIL = re.compile(rb"(?<![A-Za-z0-9._%+-])([A-Za-z0-9._%+-])[A-Za-z0-9._%+-]*+@((?:[A-Za-z0-9-]++\.)+[A-Za-z]{2,})")


def luhn(digits: bytes) -> bool:
    values = [digit - 48 for digit in reversed(digits)]
    return sum(values[::2] + [sum(divmod(2 * value, 10)) for value in values[1::2]]) % 10 == 0


def card(match: re.Match[bytes]) -> bytes:
    digits = re.sub(rb"[ -]", b"", match[0])
    return b"[card %s]" % digits[-4:] if 13 <= len(digits) <= 19 and luhn(digits) else match[0]


def assignment(match: re.Match[bytes]) -> bytes:
    return match[1] + (b'"[secret]"' if match[2] else b"[secret]")


def redact(line: bytes) -> bytes:
    line = BEARER.sub(rb"\1[secret]", line)
    line = ASSIGNMENT.sub(assignment, line)
    line = CARD.sub(card, line)
    return MAIL.sub(rb"\1***@\2", line)


if __name__ == "__main__":
    for each in sys.stdin.buffer:
        sys.stdout.buffer.write(redact(each))
