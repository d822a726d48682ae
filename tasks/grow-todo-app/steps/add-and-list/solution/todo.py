"""A to-do list for the command line."""

import json
import os
import sys
from pathlib import Path

STORE = Path(os.environ.get("TODO_FILE") or "/app/todo.json")


def load() -> list[str]:
    return json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else []


def main(arguments: list[str]) -> str | None:
    entries = load()
    match arguments:
        case ["add", *words] if "".join(words).strip():
            entries.append(" ".join(words))
            STORE.write_text(json.dumps(entries), encoding="utf-8")
            print(f"added {len(entries)}")
        case ["list"]:
            for number, text in enumerate(entries, 1):
                print(f"{number} [ ] {text}")
        case _:
            return "usage: todo.py add WORD... | list"
    return None


if __name__ == "__main__":
    if message := main(sys.argv[1:]):
        print(message, file=sys.stderr)
        sys.exit(2)
