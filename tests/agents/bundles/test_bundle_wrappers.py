"""Wrappers start programs with the bundle's own runtime and change nothing else for them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_benchflow.agents.bundles.npm import reason_of_npm
from pytest_benchflow.agents.bundles.python import reason_of_pip
from pytest_benchflow.agents.bundles.wrappers import command_of, write_wrapper

NODE = "$top/runtime/node"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("cli.js", b"#!/usr/bin/env node\nmain()", [NODE, "$top/cli.js"]),
        ("cli", b"#!/usr/bin/env node\r\nmain()", [NODE, "$top/cli"]),
        ("cli", b"#!/usr/bin/env -S node --no-warnings -x\nmain()", [NODE, "--no-warnings", "-x", "$top/cli"]),
        ("cli", b"#! /usr/local/bin/node\nmain()", [NODE, "$top/cli"]),
        ("cli.mjs", b"main()", [NODE, "$top/cli.mjs"]),
        ("cli.cjs", b"", [NODE, "$top/cli.cjs"]),
        ("cli.js", b"#!/bin/sh\nexec node x", ["$top/cli.js"]),
        ("cli", b"#!/usr/bin/env bash\ntrue", ["$top/cli"]),
        ("nodejs", b"#!/usr/bin/nodelike\n", ["$top/nodejs"]),
        ("cli", b"\x7fELF\x02\x01", ["$top/cli"]),
        ("README", b"text", None),
    ],
)
def test_what_runs_a_file(tmp_path: Path, name: str, content: bytes, words: list[str] | None) -> None:
    (tmp_path / name).write_bytes(content)
    assert command_of(tmp_path, tmp_path / name) == words


def environment(program: Path, path: str) -> dict[str, str]:
    shown = subprocess.run(["/usr/bin/env", "-i", f"PATH={path}", program], capture_output=True, check=True, text=True)
    return dict(line.split("=", 1) for line in shown.stdout.splitlines())


def test_nothing_but_the_programs_own_directory_gets_into_the_environment(tmp_path: Path) -> None:
    write_wrapper(tmp_path, tmp_path / "bin" / "show", ["/usr/bin/env"])
    first = environment(tmp_path / "bin" / "show", "/usr/bin:/bin")
    assert {key: value for key, value in first.items() if key not in ("_", "PWD", "SHLVL", "OLDPWD")} == {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin"
    }
    assert environment(tmp_path / "bin" / "show", first["PATH"])["PATH"] == first["PATH"]


def test_words_and_arguments_arrive_as_they_are(tmp_path: Path) -> None:
    top = tmp_path / "it's a $HOME"
    top.mkdir()
    (top / "print all").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    (top / "print all").chmod(0o755)
    write_wrapper(top, top / "deep" / "er" / "show", ["$top/print all", "--fl ag", "$x"])
    argv = [top / "deep" / "er" / "show", "a b", "$(true)", "", "*"]
    assert subprocess.run(argv, capture_output=True, check=True, text=True).stdout == "--fl ag|$x|a b|$(true)||*|"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            [
                "npm error code ETARGET",
                "npm error notarget No matching version found for x@9.",
                "npm error notarget In",
            ],
            "ETARGET: notarget No matching version found for x@9.",
        ),
        (
            ["npm ERR! code 1", "npm ERR! path /tmp/x", "npm ERR! command failed", "npm ERR! command sh -c exit 1"],
            "1: command failed",
        ),
        (["npm warn old", "Killed"], "Killed"),
        (["npm error code EACCES", "npm error syscall open", "npm error errno -13"], "EACCES"),
        ([], "npm said nothing"),
    ],
)
def test_the_reason_of_npm_is_one_line(lines: list[str], reason: str) -> None:
    assert reason_of_npm(lines) == reason


def test_the_reason_of_pip_is_its_last_error() -> None:
    lines = [
        "Collecting x",
        "ERROR: Could not find a version (from versions: 1)",
        "ERROR: No matching x==9",
        "[notice]",
    ]
    assert reason_of_pip(lines) == "No matching x==9"
    assert reason_of_pip(["Killed"]) == "Killed"
