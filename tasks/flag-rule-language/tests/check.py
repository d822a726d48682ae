"""Evaluate hidden rules in batches, and a few through the command line."""

import json
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, run, succeed

CONTEXT = {
    "plan": "pro",
    "age": 41,
    "ratio": 2.5,
    "beta": True,
    "gone": None,
    "tags": ["a", "b", 3],
    "user": {"name": "Ana", "address": {"country": "PT"}, "in_": 1, "_x9": 9},
    "notable": False,
    "order": 7,
}


def batch(*rules):
    cases = [{"rule": rule, "context": CONTEXT} for rule in rules]
    return json.loads(succeed("python3", "/app/flagrule.py", "--batch", stdin=json.dumps(cases)))


def expect(**groups):
    """Compare the answers for groups of rules: yes, no and wrong."""
    answers = {"yes": True, "no": False, "wrong": "error"}
    cases = [(rule, answers[group]) for group, rules in groups.items() for rule in rules]
    got = batch(*(rule for rule, _ in cases))
    equal(len(got), len(cases), "number of answers")
    for (rule, want), value in zip(cases, got):
        if type(value) is not type(want) or value != want:
            raise AssertionError(f"{rule!r:.120}: expected {want!r}, got {value!r}")


@check
def names_are_looked_up():
    expect(
        yes=[
            'user.address.country == "PT"',
            "user.nobody.at.all == null",
            "plan.length == null",
            "gone == null",
            "user . name == user.name",
            "user._x9 == 9 and user.in_ == 1",
            "order == 7 and not notable",
            "nothing == null",
        ],
        no=["gone.member != null", "tags.append != null"],
    )


@check
def precedence_and_grouping():
    expect(
        yes=[
            "true or true and false",
            "not false and true",
            "not 1 == 2",
            "1 + 2 * 3 == 7",
            "(1 + 2) * 3 == 9",
            "10 - 4 - 3 == 3",
            "16 / 4 / 2 == 2",
            "- 2 * -3 == 6",
            "--age == 41",
            "2 - -1 == 3",
            "age-1 == 40",
            "not not beta",
            "1 < 2 and 2 < 3",
        ],
        no=["(true or true) and false", "not (1 == 1 or false)", "not true or false"],
    )


@check
def types_are_kept_apart():
    expect(
        yes=[
            "1 == 1.0",
            '"1" != 1',
            "true != 1",
            "null != false",
            "[1, [2.0]] == [1.0, [2]]",
            "[] == []",
            "[1] != [1, 2]",
        ],
        no=["true == 1", '1 == "1"', "[true] == [1]", "null == 0", "[] == null", "user == 1", "[0] == [false]"],
    )


@check
def ordering_takes_numbers_or_strings():
    expect(
        yes=["2.50 <= ratio", '"Z" < "a"', '"a" <= "a"', "-3 > -4", '"" < "a"', '"é" > "z"'],
        no=["age > 41", '"10" > "9"'],
        wrong=['1 < "2"', "true < false", "null < 1", "[1] < [2]", "gone >= gone", "user > user"],
    )


@check
def membership():
    expect(
        yes=[
            'plan in ["pro", "team"]',
            '"b" in tags',
            "4 not in tags",
            '"ro" in plan',
            '"" in ""',
            "1 in [1.0]",
            "[1] in [[1]]",
        ],
        no=[
            "1 in [true]",
            '"x" in plan',
            "1 in []",
            '"3" in tags',
            "true in [1]",
            "not plan in [plan]",
            "3 not in tags",
        ],
        wrong=["1 in plan", '"a" in user', "1 in null", "null in plan", "1 in 1"],
    )


@check
def conditions_must_be_boolean():
    expect(
        wrong=[
            "1",
            "plan",
            "null",
            "1 and true",
            "true and 1",
            "not 0",
            "not null",
            '"" or true',
            "false or null",
            "[]",
            "gone or true",
        ],
        yes=["true or 1 / 0 == 1", "true or 1", "not (false and gone)"],
        no=["false and 1 / 0 == 1", "false and plan"],
    )


@check
def arithmetic_takes_numbers():
    expect(
        yes=['"a" + "b" == "ab"', "1 / 4 == 0.25", "0.5 + 0.5 == 1", "2 * ratio == 5"],
        wrong=[
            '1 + "a" == "1a"',
            "true + 1 == 2",
            '"a" * 2 == "aa"',
            '-"a" == "a"',
            "1 / 0 == 1",
            "-true == -1",
            "[1] + [2] == [1, 2]",
            "null + 1 == 1",
            "1 / (1 - 1.0) == 0",
            '"a" - "a" == ""',
        ],
    )


@check
def strings_and_their_escapes():
    expect(
        yes=[r'"\"" + "\\" == "\"\\"', '"#" != ""', '"or" == "o" + "r"', '"ü" in "Müller"'],
        wrong=[r'"\n" == "x"', '"open', "'a' == 'a'", '"a\nb" == "a"', r'"\"'],
    )


@check
def comments_and_layout():
    expect(
        yes=[
            "true # yes",
            "# first\n\n  beta\n  and\t\n age > 40 # last",
            "\r\n true\r\n",
            '"a#b" == "a#" + "b"',
            "(true)#",
        ],
        wrong=["# only a comment", "", "   "],
    )


@check
def syntax_errors_are_found():
    expect(
        wrong=[
            "true true", "1 < 2 < 3", "1 == 1 == true", "(true", "true)", "[1, ] == [1]", "[1 2] == [1]", "and true",
            "true and", "not", "1 = 1", "true && false", "a..b == 1", ".a == 1", "a. == 1", "1. == 1", ".5 == 0.5",
            "1e3 == 1000", "a[0] == 1", "f(1) == 1", "true or (", "x not == 1", "1 not 2", "user.9 == 1", "12a == 12",
            "é == 1", "true if beta else false", "1 // 1 == 1", "2 ** 2 == 4", "7 % 2 == 1", "a := 1", "beta is true",
            "True", "+1 == 1", "a.true..b == 1", "1 == not true", "false and (1 +", "0x10 == 16", "1_000 == 1000",
            "true,", "\\", "true;", "3 in not tags", "!beta", "in == 1",
        ]
    )  # fmt: skip


@check
def python_cannot_be_reached():
    expect(
        wrong=[
            '__import__("os") == 1',
            "plan.__class__() == 1",
            "[x for x in tags] == []",
            "lambda: true",
            'f"{plan}" == "pro"',
        ],
        yes=[
            "plan.__class__ == null",
            "__builtins__ == null",
            "user.__dict__ == null",
            "print == null",
            "None == null",
        ],
    )


@check
def long_rules_work():
    expect(
        yes=[
            "(" * 300 + "true" + ")" * 300,
            " or ".join(["age == 0"] * 2000 + ["beta"]),
            "not " * 300 + "true",
            "[" * 200 + "]" * 200 + " == " + "[" * 200 + "]" * 200,
            "+".join(["1"] * 2000) + " == 2000",
            "-" * 300 + "1 == 1",
        ]
    )


@check
def command_line_follows_the_rules():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a rule"
        for rule, want in (("age > 40", "true"), ('plan == "frée"', "false")):
            path.write_text(rule, encoding="utf-8")
            equal(succeed("python3", "/app/flagrule.py", str(path), stdin=json.dumps(CONTEXT)).strip(), want, rule)
        for rule in ("age >", "age"):
            path.write_text(rule, encoding="utf-8")
            done = run("python3", "/app/flagrule.py", str(path), stdin=json.dumps(CONTEXT))
            equal((done.returncode, done.stdout), (1, ""), f"status and output for {rule!r}")
            lines = done.stderr.splitlines()
            assert len(lines) == 1 and lines[0].startswith("error:"), (
                f"standard error for {rule!r}: {done.stderr!r:.200}"
            )


finish()
