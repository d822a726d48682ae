"""A to-do list for the command line."""

import json
import os
import re
import sys
from pathlib import Path

STORE = Path(os.environ.get("TODO_FILE") or "/app/todo.json")


def load() -> dict:
    """Return {"next": number, "entries": {number: [text, done]}}; a plain list is the older form."""
    data = json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else []
    if isinstance(data, list):
        data = {"next": len(data) + 1, "entries": {str(n): [text, False] for n, text in enumerate(data, 1)}}
    return data


def save(data: dict) -> None:
    STORE.write_text(json.dumps(data), encoding="utf-8")


def add(data: dict, text: str, done: bool = False) -> int:
    number = data["next"]
    data["entries"][str(number)] = [text, done]
    data["next"] = number + 1
    return number


def read_backlog(path: str) -> list[tuple[str, bool]]:
    """Return the (text, done) pairs of a backlog file; ValueError names the first bad line."""
    entries = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"([-x])\s+(\S.*)", line)
        if match is None:
            raise ValueError(f"{path}:{number}: not an entry: {line}")
        entries.append((match[2], match[1] == "x"))
    return entries


def show(data: dict, only_open: bool) -> None:
    for number, (text, done) in data["entries"].items():
        if not (done and only_open):
            print(f"{number} [{'x' if done else ' '}] {text}")


def main(arguments: list[str]) -> int:
    data = load()
    match arguments:
        case ["add", *words] if "".join(words).strip():
            number = add(data, " ".join(words))
            save(data)
            print(f"added {number}")
        case ["list"] | ["list", "--open"]:
            show(data, len(arguments) == 2)
        case ["done" | "remove", number] if number not in data["entries"]:
            print(f"no entry {number}", file=sys.stderr)
            return 1
        case ["done", number]:
            data["entries"][number][1] = True
            save(data)
            print(f"done {number}")
        case ["remove", number]:
            del data["entries"][number]
            save(data)
            print(f"removed {number}")
        case ["import", path]:
            try:
                entries = read_backlog(path)
            except (OSError, ValueError) as error:
                print(error, file=sys.stderr)
                return 1
            for text, done in entries:
                add(data, text, done)
            save(data)
            print(f"imported {len(entries)}")
        case _:
            print("usage: todo.py add WORD... | list [--open] | done N | remove N | import FILE", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
