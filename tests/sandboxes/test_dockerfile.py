"""Reading Dockerfiles and what they amount to."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.core.errors import BuildError, UnsupportedError
from pytest_benchflow.sandboxes.build_context import IgnoreRules, matches
from pytest_benchflow.sandboxes.dockerfile import KEYWORDS, Instruction, parse
from pytest_benchflow.sandboxes.local.interpreter import (
    CopyStep,
    RunStep,
    SubstitutionError,
    expand,
    make_plan,
    split_words,
)


def instructions(text: str) -> list[Instruction]:
    """Parse all after a FROM."""
    return list(parse(f"FROM x\n{text}").instructions[1:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RUN echo hi", Instruction(2, "RUN", "echo hi")),
        ("run   echo  hi  ", Instruction(2, "RUN", "echo  hi")),
        ("\tRUN\techo hi", Instruction(2, "RUN", "echo hi")),
        ("\n\n# note\nRUN true", Instruction(5, "RUN", "true")),
        ("RUN a \\\n  && b", Instruction(2, "RUN", "a   && b")),
        ("RUN a \\\n# why\n\n  && b", Instruction(2, "RUN", "a   && b")),
        ("RUN a \\  \n b", Instruction(2, "RUN", "a  b")),
        ("RUN a \\", Instruction(2, "RUN", "a")),
        ("RUN a \\\\", Instruction(2, "RUN", "a \\\\")),
        ('RUN ["a", "b c"]', Instruction(2, "RUN", '["a", "b c"]', {}, ("a", "b c"))),
        ('RUN ["a"] # why', Instruction(2, "RUN", '["a"] # why', {}, ("a",))),
        ("RUN [ -e x ]", Instruction(2, "RUN", "[ -e x ]")),
        ("RUN ['a']", Instruction(2, "RUN", "['a']")),
        ("RUN echo '# no comment'", Instruction(2, "RUN", "echo '# no comment'")),
        ("RUN cat <<< word", Instruction(2, "RUN", "cat <<< word")),
        ("RUN echo $((1<<2))", Instruction(2, "RUN", "echo $((1<<2))")),
        ("COPY --chown=a:b --chmod=755 x y", Instruction(2, "COPY", "x y", {"chown": "a:b", "chmod": "755"})),
        ("ENV A=--x", Instruction(2, "ENV", "A=--x")),
        ("ENV A='x\ty'", Instruction(2, "ENV", "A='x\ty'")),
        ("RUN a \\\r\n b\r\n", Instruction(2, "RUN", "a  b")),
        ("RUN a\x0cb\u2028c", Instruction(2, "RUN", "a\x0cb\u2028c")),
    ],
)
def test_one_instruction_is_read(text: str, expected: Instruction) -> None:
    assert instructions(text) == [expected]


def test_the_escape_directive_is_obeyed() -> None:
    file = parse("# escape=`\nFROM x\nRUN a `\n b\nRUN c \\\nRUN d\n")
    assert [item.text for item in file.instructions[1:]] == ["a  b", "c \\", "d"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Dockerfile:1: no FROM instruction"),
        ("# only a comment\n", "Dockerfile:1: no FROM instruction"),
        ("RUN true\nFROM x\n", "Dockerfile:1: RUN stands before FROM; begin with FROM"),
        ("FROM x\nRUNN true\n", "Dockerfile:2: unknown instruction 'RUNN'; did you mean RUN?"),
        ("FROM x\nRUN\n", "Dockerfile:2: RUN has no arguments"),
        ("FROM x AS\n", "Dockerfile:1: FROM x AS is neither FROM IMAGE nor FROM IMAGE AS NAME"),
        ("FROM x\nENV A\n", "Dockerfile:2: ENV A has no value; write ENV A=value"),
        ("FROM x\nENV A=1 B\n", "Dockerfile:2: ENV B has no value; write B=value"),
        ("FROM x\nENV A='x\n", "Dockerfile:2: ENV A='x: a ' is never closed"),
        ("FROM x\nWORKDIR ${A\n", "Dockerfile:2: WORKDIR ${A: a ${ is never closed"),
        ("FROM x\nSHELL bash\n", 'Dockerfile:2: SHELL takes a list, for example SHELL ["/bin/bash", "-c"]'),
        ("FROM x\nCOPY a\n", "Dockerfile:2: COPY a needs a source and a target"),
        ("FROM x\nCOPY a b /x\n", "Dockerfile:2: COPY of several files needs a directory; write /x/ as its target"),
        ("FROM x\nCOPY --chmod=u+x a b\n", "Dockerfile:2: --chmod=u+x is not an octal number; write for example 755"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str, message: str) -> None:
    with pytest.raises(BuildError) as failure:
        make_plan(parse(text))
    assert str(failure.value) == message


VARIABLES = {"A": "one", "EMPTY": "", "PATH": "/bin"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A", "one"),
        ("${A}s", "ones"),
        ("$AB|$MISSING|", "||"),
        ("${MISSING:-d}${EMPTY:-d}${A:-d}", "ddone"),
        ("${MISSING-d}${EMPTY-d}", "d"),
        ("${MISSING:+d}${EMPTY:+d}${A:+d}", "d"),
        ("${EMPTY+d}", "d"),
        ("${MISSING:-${A}/x}", "one/x"),
        ("${MISSING:-'a b'}", "a b"),
        (r"\$A", "$A"),
        ("'$A'", "$A"),
        ('"$A b"', "one b"),
        ('"a\\"b"', 'a"b'),
        ('"a\\nb"', "a\\nb"),
        ("a\\ b", "a b"),
        ("$", "$"),
        ("a$", "a$"),
        ("$PATH:/x", "/bin:/x"),
        ("$$|$-x", "|x"),
        ("it''s", "its"),
    ],
)
def test_variables_and_quotes_are_read_as_a_shell_would(text: str, expected: str) -> None:
    assert expand(text, VARIABLES) == expected


@pytest.mark.parametrize("text", ["${A", "'a", '"a', "${}", "${A:?x}", "${A%x}"])
def test_what_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(SubstitutionError):
        expand(text, VARIABLES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a b", ["a", "b"]), ("  a  ", ["a"]), ("'a b' c", ["'a b'", "c"]), (r"a\ b c", [r"a\ b", "c"]), ("", [])],
)
def test_words_are_split_outside_quotes(text: str, expected: list[str]) -> None:
    assert split_words(text) == expected


def test_settings_follow_each_other() -> None:
    plan = make_plan(
        parse(
            "ARG TAG=3\nFROM python:$TAG\nARG TAG\nARG X=${TAG}0\nENV A=$X B='two words'\nENV OLD old form $A\n"
            'WORKDIR /a\nWORKDIR b/$A\nUSER ${USER:-me}\nSHELL ["/bin/bash", "-c"]\nRUN x\nLABEL a=b\nCMD c\n'
        )
    )
    assert plan.image.env == {"A": "30", "B": "two words", "OLD": "old form 30"}
    assert plan.image.workdir == "/a/b/30"
    assert plan.image.dirs == ()
    assert plan.image.user == "me"
    assert plan.notes == (
        "FROM python:3 is the host's own system here",
        "CMD, LABEL has no effect in the local sandbox",
    )
    (step,) = plan.steps
    assert isinstance(step, RunStep)
    assert step.image.dirs == ("/a", "/a/b/30")
    assert step.argv == ("/bin/bash", "-c", "x")
    assert step.args == {"TAG": "3", "X": "30"}


def test_an_argument_of_the_outer_scope_must_be_declared_again() -> None:
    assert make_plan(parse("ARG A=1\nFROM x\nENV B=$A\n")).image.env == {"B": ""}


def test_arguments_tell_the_platform_to_stages_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine="aarch64"))
    text = "FROM --platform=$BUILDPLATFORM x\nENV NONE=$TARGETARCH\nARG TARGETARCH\nARG TARGETOS=mine\n"
    plan = make_plan(parse(f"{text}ENV A=$TARGETOS/$TARGETARCH\n"))
    assert plan.image.env == {"NONE": "", "A": "mine/arm64"}


@pytest.mark.parametrize(
    ("rules", "hidden", "kept"),
    [
        ("*.log\n!keep.log", ["a.log"], ["keep.log", "deep/a.log", "a.logs"]),
        ("dir\n!dir/keep", ["dir", "dir/a", "dir/b/c"], ["dir/keep", "dir/keep/x", "other/dir"]),
        ("/top\n./dot\ntrail/", ["top", "dot", "trail", "trail/x"], ["deep/top"]),
        ("**/tmp\n**/*.o", ["tmp", "a/b/tmp/c", "x.o", "a/x.o"], ["tmpx", "a/o"]),
        ("docs/**/x", ["docs/x", "docs/a/b/x"], ["docs/a/y"]),
        ("x[1-3].txt\n[^a]z", ["x2.txt", "bz"], ["x4.txt", "az"]),
        ("x[!1]\n[[]y]", ["x1", "x!", "[y]"], ["x2"]),
        ("a//b\nc/d/..\n!\n", ["a/b", "c"], ["a"]),
        ("\ufefftop", ["top"], []),
        ("\\*star\n[z-a]\nno]\n[open", ["*star", "no]", "[open"], ["a-star", "z"]),
        ("# comment\n\n  lead  \nnot?\n # name", ["lead", "nota", "# name"], ["# comment", "not"]),
    ],
)
def test_ignored_is_what_docker_ignores(tmp_path: Path, rules: str, hidden: list[str], kept: list[str]) -> None:
    (tmp_path / ".dockerignore").write_text(rules)
    ignore = IgnoreRules.read(tmp_path / ".dockerignore")
    assert [name for name in (*hidden, *kept) if ignore.hides(name)] == hidden


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.txt", ["a.txt", ".txt"], ["a.txt.gz"]),
        ("**", ["a", ".b"], []),
        ("[^a]?", ["bc"], ["ab", "b"]),
        ("[!a]", ["a", "!"], ["b"]),
        ("[a-c\\]]", ["b", "]"], ["d", "\\"]),
        ("a[[]b", ["a[b"], ["ab"]),
        ("a\\*", ["a*"], ["ab"]),
        ("[", ["["], ["a"]),
    ],
)
def test_a_pattern_of_copy_fits_what_it_does_in_docker(pattern: str, fits: list[str], does_not: list[str]) -> None:
    assert [name for name in (*fits, *does_not) if matches(name, pattern)] == fits


def test_path_is_added_to_the_one_of_the_base() -> None:
    plan = make_plan(parse("FROM x\nENV PATH=/mine:$PATH\nENV PATH=/more:$PATH\n"), "/usr/bin:/bin")
    assert plan.image.env == {"PATH": "/more:/mine:/usr/bin:/bin"}


def test_env_wins_over_arg() -> None:
    assert make_plan(parse("FROM x\nENV A=env\nARG A=arg\nENV B=$A\n")).image.env["B"] == "env"


@pytest.mark.parametrize(
    ("line", "sources", "target"),
    [
        ("COPY a b", ("a",), "/w/b"),
        ("COPY a .", ("a",), "/w/"),
        ("COPY a ./", ("a",), "/w/"),
        ("COPY a /x/", ("a",), "/x/"),
        ("COPY a b /x/", ("a", "b"), "/x/"),
        ("COPY a b .", ("a", "b"), "/w/"),
        ('COPY ["a b", "/x y"]', ("a b",), "/x y"),
        ("COPY 'a b' $D/", ("a b",), "/d/"),
        ("ADD a /", ("a",), "/"),
    ],
)
def test_copy_knows_sources_and_target(line: str, sources: tuple[str, ...], target: str) -> None:
    (step,) = make_plan(parse(f"FROM x\nENV D=/d\nWORKDIR /w\n{line}\n")).steps
    assert isinstance(step, CopyStep)
    assert (step.sources, step.target) == (sources, target)
    assert step.unpack == line.startswith("ADD")


WORDS = st.text(alphabet="aB$ {}:-+\"'\\`\n\t#[]<=/.,()é\0", max_size=12)
LINES = st.lists(st.tuples(st.sampled_from([*sorted(KEYWORDS), "", "#", "# escape=`"]), WORDS), max_size=8)


def plan_or_error(text: str) -> BuildError | UnsupportedError | None:
    """Interpret a Dockerfile; only errors of our own may come out."""
    try:
        make_plan(parse(text))
    except (BuildError, UnsupportedError) as error:
        return error
    return None


@given(LINES)
def test_no_instruction_makes_the_parser_crash(lines: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{keyword} {words}" for keyword, words in lines)
    for candidate in (text, f"FROM x\n{text}"):
        error = plan_or_error(candidate)
        assert error is None or str(error).startswith("Dockerfile:")


@given(st.text())
def test_no_text_makes_the_parser_crash(text: str) -> None:
    error = plan_or_error(text)
    assert error is None or str(error).startswith("Dockerfile:")


@given(st.text(alphabet="aA${}:-+'\"\\ "))
def test_no_word_makes_substitution_crash(text: str) -> None:
    with contextlib.suppress(SubstitutionError):
        assert isinstance(expand(text, VARIABLES), str)
        assert all(split_words(text))
