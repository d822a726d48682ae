"""Redact hidden lines."""

import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import CLEAN_ENV, check, equal, finish, succeed


def redacts(cases):
    text = "".join(line + "\n" for line in cases)
    got = succeed("python3", "/app/redact.py", stdin=text).split("\n")
    equal(len(got), len(cases) + 1, "number of lines")
    for (line, want), value in zip(cases.items(), got):
        equal(value, want, f"{line!r}")


def keeps(*lines):
    redacts({line: line for line in lines})


@check
def bearer_tokens():
    redacts(
        {
            "Authorization: Bearer abc.DEF-_~+/=": "Authorization: Bearer [secret]",
            "bearer   x1 next": "bearer   [secret] next",
            'h="BEARER abc"': 'h="BEARER [secret]"',
        }
    )
    keeps("Bearer", "Bearer: none", "Bearer  ")


@check
def assignments():
    redacts(
        {
            "password=hunter2": "password=[secret]",
            "x&Token=a%20b&y=1": "x&Token=[secret]&y=1",
            "PASSWORD : s3cret, next": "PASSWORD : [secret], next",
            'api_key = "two words" end': 'api_key = "[secret]" end',
            r'secret="a\"b" c': 'secret="[secret]" c',
            '{"token": "abc", "n": 1}': '{"token": "[secret]", "n": 1}',
            '{"API_KEY":"abc"}': '{"API_KEY":"[secret]"}',
            "token:abc;secret=def": "token:[secret];secret=[secret]",
            "-token=abc": "-token=[secret]",
            "password\t=\tx": "password\t=\t[secret]",
        }
    )


@check
def what_is_no_assignment():
    keeps(
        "password",
        "my_token=abc",
        "xsecret=1",
        "tokens=12",
        "token abc",
        "password=",
        'secret=""',
        "api-key=1",
        "token=&next=1",
    )


@check
def card_numbers():
    redacts(
        {
            "card 5500005555555559.": "card [card 5559].",
            "378282246310005": "[card 0005]",
            "3782 822463 10005,": "[card 0005],",
            "4111-1111-1111-1111": "[card 1111]",
            "4111 1111-1111 1111": "[card 1111]",
            "a4222222222222z": "a[card 2222]z",
            "6304000000000000000 x": "[card 0000] x",
            "id=4111111111111111;5500005555555559": "id=[card 1111];[card 5559]",
        }
    )


@check
def numbers_that_are_no_cards():
    keeps(
        "4111111111111112",
        "order 1234567890123456",
        "411111111111",
        "41111111111111114111111",
        "4111  1111 1111 1111",
        "7 4111111111111111",
        "4111111111111111-9",
        "1714555555 2024-05-02",
        "9 4111 1111 1111 1111",
        "4111.1111.1111.1111",
    )


@check
def mail_addresses():
    redacts(
        {
            "to ida.berg@example.org now": "to i***@example.org now",
            "<x@a-b.co.uk>": "<x***@a-b.co.uk>",
            "A_b%c+d-1@host1.example.com,": "A***@host1.example.com,",
            "a@b.cc;d@e.ff": "a***@b.cc;d***@e.ff",
            "mail:i@example.org.": "mail:i***@example.org.",
        }
    )
    keeps("user@localhost", "@example.org", "a@b.c", "a @example.org", "x@1.2.3.4", "i***@example.org")


@check
def rules_work_together():
    redacts(
        {
            "token=ida@example.org": "token=[secret]",
            "ida@example.org password=4111111111111111": "i***@example.org password=[secret]",
            'token: "4111 1111 1111 1111"': 'token: "[secret]"',
            "token: Bearer abc": "token: [secret] [secret]",
            "note for bo@example.org: card 4111111111111111": "note for b***@example.org: card [card 1111]",
        }
    )


@check
def second_run_changes_nothing():
    lines = [
        "card=4111111111111111 token=abc",
        "Authorization: Bearer a.b",
        'password: "x y"',
        "ida@example.org",
        '{"secret":"q"}',
    ]
    once = succeed("python3", "/app/redact.py", stdin="\n".join(lines))
    equal(succeed("python3", "/app/redact.py", stdin=once), once, "second run")


@check
def bytes_and_line_ends_survive():
    source = b"caf\xe9 \xff\x00 token=abc\r\n\r\nGr\xc3\xbc\xc3\x9fe ida@example.org\n\x0b\x0c\x85 end"
    want = b"caf\xe9 \xff\x00 token=[secret]\r\n\r\nGr\xc3\xbc\xc3\x9fe i***@example.org\n\x0b\x0c\x85 end"
    got = subprocess.run(["python3", "/app/redact.py"], input=source, capture_output=True, env=CLEAN_ENV, timeout=10)
    equal(got.stdout, want, "output")


@check
def long_lines_are_quick():
    for line in (
        "a." * 50_000,
        "a" * 100_000 + "@",
        "1 " * 50_000,
        "4" * 100_000,
        'token="' + "\\" * 100_000,
        "a@" + "b." * 50_000,
    ):
        equal(
            succeed("python3", "/app/redact.py", stdin=line, timeout=3),
            line,
            f"a long line that begins with {line[:8]!r}; output",
        )


finish()
