"""Interpret feature flag rules: flagrule.py RULE_FILE, or flagrule.py --batch."""

import json
import operator
import re
import sys
from collections.abc import Callable

TOKEN = re.compile(
    r"""
      (?P<skip>[ \t\r\n]+|\#[^\n]*)
    | (?P<number>[0-9]+(?:\.[0-9]+)?)(?![0-9A-Za-z_.])
    | (?P<string>"(?:[^"\\\n]|\\["\\])*")
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<mark>==|!=|<=|>=|[<>+\-*/()\[\],.])
    """,
    re.VERBOSE,
)
WORDS = {"and", "or", "not", "in", "true", "false", "null"}
CONSTANTS = {"true": True, "false": False, "null": None}
ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
Evaluate = Callable[[dict], object]


class RuleError(Exception):
    """A rule that is wrong by syntax or by type."""


def tokens(text: str) -> list[tuple[str, str]]:
    """Split a rule into (kind, text) pairs; words of the language are their own kind."""
    found, place = [], 0
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise RuleError(f"unexpected {text[place]!r}")
        place = match.end()
        kind, part = match.lastgroup, match.group()
        if kind == "mark" or (kind == "name" and part in WORDS):
            kind = part
        if kind != "skip":
            found.append((kind, part))
    return [*found, ("end", "end of rule")]


class Parser:
    """Recursive descent; every method returns a function from the context to a value."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.place = 0

    @property
    def kind(self) -> str:
        return self.tokens[self.place][0]

    def take(self, *kinds: str) -> str:
        kind, text = self.tokens[self.place]
        if kind not in kinds:
            raise RuleError(f"unexpected {text}")
        self.place += 1
        return text

    def rule(self) -> Evaluate:
        value = self.any_of()
        self.take("end")
        return lambda context: boolean(value(context))

    def any_of(self) -> Evaluate:
        return self.series("or", self.all_of, True)

    def all_of(self) -> Evaluate:
        return self.series("and", self.negation, False)

    def series(self, word: str, part: Callable[[], Evaluate], decides: bool) -> Evaluate:
        parts = [part()]
        while self.kind == word:
            self.take(word)
            parts.append(part())
        if len(parts) == 1:
            return parts[0]

        def evaluate(context: dict) -> bool:
            return decides if any(boolean(each(context)) is decides for each in parts) else not decides

        return evaluate

    def negation(self) -> Evaluate:
        count = 0
        while self.kind == "not":
            self.take("not")
            count += 1
        value = self.comparison()
        if not count:
            return value
        return lambda context: boolean(value(context)) is (count % 2 == 0)

    def comparison(self) -> Evaluate:
        left = self.sum()
        if self.kind not in (*ORDER, "==", "!=", "in", "not"):
            return left
        sign = self.take(self.kind)
        if sign == "not":
            sign = "not " + self.take("in")
        right = self.sum()
        return lambda context: compare(sign, left(context), right(context))

    def sum(self) -> Evaluate:
        return self.chain(("+", "-"), self.product)

    def product(self) -> Evaluate:
        return self.chain(("*", "/"), self.signed)

    def chain(self, signs: tuple[str, ...], part: Callable[[], Evaluate]) -> Evaluate:
        first, rest = part(), []
        while self.kind in signs:
            rest.append((self.take(*signs), part()))
        if not rest:
            return first

        def evaluate(context: dict) -> object:
            value = first(context)
            for sign, each in rest:
                value = calculate(sign, value, each(context))
            return value

        return evaluate

    def signed(self) -> Evaluate:
        count = 0
        while self.kind == "-":
            self.take("-")
            count += 1
        value = self.atom()
        if not count:
            return value
        return lambda context: number(value(context)) * (-1) ** count

    def atom(self) -> Evaluate:
        kind = self.kind
        text = self.take("number", "string", "name", "true", "false", "null", "(", "[")
        if kind == "(":
            inner = self.any_of()
            self.take(")")
            return inner
        if kind == "[":
            items = []
            while self.kind != "]" or items:
                items.append(self.any_of())
                if self.take(",", "]") == "]":
                    break
            else:
                self.take("]")
            return lambda context: [item(context) for item in items]
        if kind == "name":
            path = [text]
            while self.kind == ".":
                self.take(".")
                path.append(self.take("name", *WORDS))
            return lambda context: look_up(context, path)
        if kind == "number":
            constant = float(text) if "." in text else int(text)
        elif kind == "string":
            constant = re.sub(r"\\(.)", r"\1", text[1:-1])
        else:
            constant = CONSTANTS[text]
        return lambda context: constant


def look_up(context: dict, path: list[str]) -> object:
    value: object = context
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise RuleError("a condition is not true or false")
    return value


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: object) -> int | float:
    if not is_number(value):
        raise RuleError("a number was expected")
    return value


def same(left: object, right: object) -> bool:
    if is_number(left) and is_number(right):
        return left == right
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return left == right


def both(kind: type, left: object, right: object) -> bool:
    return isinstance(left, kind) and isinstance(right, kind)


def compare(sign: str, left: object, right: object) -> bool:
    if sign in ("==", "!="):
        return same(left, right) is (sign == "==")
    if sign in ORDER:
        if both(str, left, right) or (is_number(left) and is_number(right)):
            return ORDER[sign](left, right)
        raise RuleError(f"{sign} takes two numbers or two strings")
    if isinstance(right, list):
        found = any(same(left, item) for item in right)
    elif both(str, left, right):
        found = left in right
    else:
        raise RuleError("'in' takes a list or two strings")
    return found is (sign == "in")


def calculate(sign: str, left: object, right: object) -> object:
    if sign == "+" and both(str, left, right):
        return left + right
    left, right = number(left), number(right)
    if sign == "/" and right == 0:
        raise RuleError("division by zero")
    return {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[sign](left, right)


def decide(rule: str, context: dict) -> bool:
    return Parser(rule).rule()(context)


def batch(cases: list[dict]) -> list[bool | str]:
    answers: list[bool | str] = []
    for case in cases:
        try:
            answers.append(decide(case["rule"], case["context"]))
        except RuleError:
            answers.append("error")
    return answers


def main(argument: str) -> None:
    sys.setrecursionlimit(20_000)
    data = json.load(sys.stdin)
    if argument == "--batch":
        print(json.dumps(batch(data)))
        return
    with open(argument, encoding="utf-8") as file:
        rule = file.read()
    try:
        print(json.dumps(decide(rule, data)))
    except RuleError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
