"""Scripts in a file, so that they can come from anywhere:

    {
      "models": ["model-a"], "strict": true, "keys": ["sk-test"],
      "scripts": [
        {"prompt": "Make hello.txt", "replies": [{"write": ["/app/hello.txt", "hello\\n"]}, {"say": "Done."}]},
        {"prompt": "upper case", "seen": "hello.txt", "replies": [{"run": "tr a-z A-Z < a > b"}]},
        {"prompt": "be unlucky", "replies": [{"fail": 500, "times": 2}, {"slow": {"say": "At last."}, "seconds": 1}]},
        {"prompt": "hang", "replies": [{"stall": true}]}
      ]
    }

A reply is one of say, run, write, call, together, slow, fail, stall, garbage, reset; the other keys are the fields of
that reply in `model_server.replies`. Everything a script can ask for is in `model_server.scripts.Script`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from model_server.conversation import objects
from model_server.replies import Call, Fail, Garbage, Reply, Reset, Run, Say, Slow, Stall, Together, Write
from model_server.scripts import Script
from model_server.server import ModelServer

MAKERS: Mapping[str, Callable[..., Reply]] = {
    "say": Say,
    "run": Run,
    "write": lambda place: Write(*place),
    "call": Call,
    "together": lambda calls, **more: Together(tuple(map(parse_reply, calls)), **more),  # type: ignore[arg-type]
    "slow": lambda reply, **more: Slow(parse_reply(reply), **more),  # type: ignore[arg-type]
    "fail": Fail,
    "stall": lambda _, **more: Stall(**more),
    "garbage": lambda _, **more: Garbage(**more),
    "reset": lambda _, **more: Reset(**more),
}


def load_server(path: Path, *, port: int = 0) -> ModelServer:
    """Return the server that a file describes; it is not started yet."""
    data = json.loads(path.read_text(encoding="utf-8"))
    scripts = [parse_script(entry) for entry in objects(data.pop("scripts", []))]
    return ModelServer(scripts, port=port, **data)


def parse_script(entry: Mapping[str, object]) -> Script:
    """Return the script of one entry."""
    fields = {key: value for key, value in entry.items() if key != "replies"}
    return Script(tuple(map(parse_reply, objects(entry.get("replies")))), **fields)  # type: ignore[arg-type]


def parse_reply(entry: Mapping[str, object]) -> Reply:
    """Return one reply: the key that names it, with the value as its first field."""
    name = next((key for key in entry if key in MAKERS), None)
    if name is None:
        raise ValueError(f"{entry}: no reply has these keys; known: {', '.join(MAKERS)}")
    return MAKERS[name](entry[name], **{key: value for key, value in entry.items() if key != name})
