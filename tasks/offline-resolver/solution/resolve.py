"""Choose package versions from an index on disk: resolve.py INDEX_DIR REQUIREMENTS_FILE."""

import json
import operator
import re
import sys
from functools import cache
from pathlib import Path

SIGNS = {">=": operator.ge, "<": operator.lt, "==": operator.eq, "!=": operator.ne}
Lock = dict[str, str]
Demands = dict[str, tuple[str, ...]]


@cache
def key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@cache
def allows(constraint: str, version: str) -> bool:
    parts = (re.fullmatch(r"(>=|<|==|!=)([\d.]+)", part.strip()) for part in constraint.split(",") if part.strip())
    return all(SIGNS[part[1]](key(version), key(part[2])) for part in parts)


class Resolver:
    """Depth-first search, newest versions first, which takes a choice back when a demand cannot be met."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.versions = cache(self.read)

    def read(self, name: str) -> dict[str, dict[str, str]]:
        """Return the usable versions of a package, newest first, with what they require."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            return {}
        listed = json.loads(path.read_text(encoding="utf-8"))["versions"]
        usable = sorted((version for version in listed if not listed[version].get("yanked")), key=key, reverse=True)
        return {version: listed[version]["requires"] for version in usable}

    def candidates(self, name: str, demands: Demands) -> list[str]:
        return [v for v in self.versions(name) if all(allows(constraint, v) for constraint in demands[name])]

    def solve(self, lock: Lock, demands: Demands) -> Lock | None:
        """Extend a lock until all demands are met."""
        if any(not allows(constraint, lock[name]) for name in lock for constraint in demands[name]):
            return None
        choices = {name: self.candidates(name, demands) for name in demands if name not in lock}
        if not choices:
            return lock
        name = min(choices, key=lambda each: len(choices[each]))
        for version in choices[name]:
            wider = dict(demands)
            for other, constraint in self.versions(name)[version].items():
                wider[other] = (*wider.get(other, ()), constraint)
            if found := self.solve({**lock, name: version}, wider):
                return found
        return None


def main(folder: str, requirements: str) -> None:
    wanted = json.loads(Path(requirements).read_text(encoding="utf-8"))
    lock = Resolver(Path(folder)).solve({}, {name: (constraint,) for name, constraint in wanted.items()})
    if lock is None:
        sys.exit("no set of versions fulfils these requirements")
    print(json.dumps(lock, indent=2, sort_keys=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
