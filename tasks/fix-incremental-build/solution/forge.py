"""Build text files from a description: forge.py PROJECT_DIR [TARGET...]. See FORGE.md."""

import hashlib
import json
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

FILTERS = {
    "none": lambda text: text,
    "upper": str.upper,
    "sort": lambda text: "".join(sorted(text.splitlines(keepends=True))),
}


class BuildError(Exception):
    """A target that cannot be built."""


class ProjectError(Exception):
    """A project in which nothing can be built."""


def digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Forge:
    """One project and what is remembered of its last build."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.targets = json.loads((root / "forge.json").read_text(encoding="utf-8"))["targets"]
        self.memory_path = root / ".forge.json"
        self.memory = self.load_memory()

    def load_memory(self) -> dict[str, list[str]]:
        """Return {target: [digest of what it was built from, digest of what was written]}."""
        try:
            memory = json.loads(self.memory_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return memory if isinstance(memory, dict) else {}

    def order(self, names: list[str]) -> list[str]:
        """Return the targets to build, each after those it depends on."""
        for name, target in self.targets.items():
            if target["filter"] not in FILTERS:
                raise ProjectError(f"{name}: unknown filter {target['filter']}")
        if unknown := [name for name in names if name not in self.targets]:
            raise ProjectError(f"unknown target {unknown[0]}")
        graph = {name: self.dependencies(name) for name in self.targets}
        try:
            ordered = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            raise ProjectError(f"circle: {' → '.join(error.args[1])}") from None
        wanted, queue = set(), list(names or self.targets)
        while queue:
            name = queue.pop()
            wanted.add(name)
            queue += graph[name]
        return [name for name in ordered if name in wanted]

    def dependencies(self, name: str) -> list[str]:
        return [path for path in self.targets[name]["inputs"] if path in self.targets]

    def read(self, path: str) -> str:
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise BuildError(f"{path}: {error}") from None

    def expand(self, path: str, above: tuple[str, ...] = ()) -> str:
        """Read a file and replace its include lines."""
        if path in above:
            raise BuildError(f"{path} includes itself")
        lines = []
        for line in self.read(path).splitlines(keepends=True):
            if line.startswith("@include "):
                lines.append(self.expand(line.removeprefix("@include ").strip(), (*above, path)))
            else:
                lines.append(line)
        return "".join(lines)

    def build(self, name: str) -> str:
        """Build a target if that is of use, and return the word for what was done."""
        target, output = self.targets[name], self.root / name
        source = "".join(self.read(path) if path in self.targets else self.expand(path) for path in target["inputs"])
        content = FILTERS[target["filter"]](source)
        record = [digest(source, target["filter"], *target["inputs"]), digest(content)]
        if self.memory.get(name) == record and output.is_file() and digest(self.read(name)) == record[1]:
            return "fresh"
        output.parent.mkdir(parents=True, exist_ok=True)
        draft = output.with_name(f".{output.name}.draft")
        draft.write_text(content, encoding="utf-8")
        draft.replace(output)
        self.memory[name] = record
        return "built"

    def run(self, names: list[str]) -> int:
        broken: set[str] = set()
        for name in self.order(names):
            if broken.intersection(self.dependencies(name)):
                word, reason = "skipped", ""
            else:
                try:
                    word, reason = self.build(name), ""
                except (BuildError, OSError) as error:
                    word, reason = "failed", f": {error}"
            if word in ("skipped", "failed"):
                broken.add(name)
            if word == "failed":
                self.memory.pop(name, None)
            print(f"{word} {name}{reason}")
        self.memory_path.write_text(json.dumps(self.memory), encoding="utf-8")
        return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(Forge(Path(sys.argv[1])).run(sys.argv[2:]))
    except ProjectError as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)
