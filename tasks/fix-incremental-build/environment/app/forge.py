"""Build text files from a description: forge.py PROJECT_DIR [TARGET...]. See FORGE.md."""

import json
import sys
from pathlib import Path

FILTERS = {
    "none": lambda text: text,
    "upper": str.upper,
    "sort": lambda text: "".join(sorted(text.splitlines(keepends=True))),
}


class Forge:
    """One project and what is remembered of its last build."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.targets = json.loads((root / "forge.json").read_text(encoding="utf-8"))["targets"]
        self.memory_path = root / ".forge.json"
        self.memory = json.loads(self.memory_path.read_text()) if self.memory_path.exists() else {}
        self.status = 0

    def expand(self, path: str) -> str:
        """Read a file and replace its include lines."""
        lines = []
        for line in (self.root / path).read_text(encoding="utf-8").splitlines(keepends=True):
            if line.startswith("@include "):
                lines.append(self.expand(line.split()[1]))
            else:
                lines.append(line)
        return "".join(lines)

    def is_fresh(self, name: str) -> bool:
        output = self.root / name
        if not output.exists():
            return False
        built_at = output.stat().st_mtime
        return all((self.root / path).stat().st_mtime <= built_at for path in self.targets[name]["inputs"])

    def build(self, name: str) -> None:
        if self.is_fresh(name):
            print(f"fresh {name}")
            return
        target = self.targets[name]
        output = self.root / name
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("w", encoding="utf-8") as file:
            try:
                for path in target["inputs"]:
                    file.write(FILTERS[target["filter"]](self.expand(path)))
            except OSError as error:
                print(f"failed {name}: {error}")
                self.status = 1
                return
        self.memory[name] = True
        print(f"built {name}")

    def run(self, names: list[str]) -> int:
        for name in names or self.targets:
            self.build(name)
        self.memory_path.write_text(json.dumps(self.memory))
        return self.status


if __name__ == "__main__":
    sys.exit(Forge(Path(sys.argv[1])).run(sys.argv[2:]))
