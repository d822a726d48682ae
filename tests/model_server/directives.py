"""Scripts inside prompts, one reply per line, for tasks whose instruction is all there is:

RUN: echo hello > /app/hello.txt
WRITE: /app/notes.txt | one line
SAY: Done.
HTTP: 500          (always, or `HTTP: 500 x2` for the first two times)
STALL:
RESET:
GARBAGE:
"""

from __future__ import annotations

import re

from model_server.replies import Fail, Garbage, Reply, Reset, Run, Say, Stall, Write

LINE = re.compile(r"^[ \t]*(RUN|WRITE|SAY|HTTP|STALL|RESET|GARBAGE):[ \t]*(.*)$", re.MULTILINE)


def parse_directives(prompt: str) -> tuple[Reply, ...]:
    """Return the replies that a prompt asks for, none if it has no such line."""
    return tuple(_reply(word, rest.strip()) for word, rest in LINE.findall(prompt))


def _reply(word: str, rest: str) -> Reply:
    match word:
        case "RUN":
            return Run(rest)
        case "WRITE":
            path, _, content = rest.partition("|")
            return Write(path.strip(), content.strip() + "\n")
        case "SAY":
            return Say(rest)
        case "HTTP":
            status, _, times = rest.partition("x")
            return Fail(int(status), times=int(times) if times else None)
        case "STALL":
            return Stall()
        case "RESET":
            return Reset()
        case _:
            return Garbage()
