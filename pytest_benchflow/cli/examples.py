"""Examples for the help of every command: what one types most often, and what it is for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "tasks init": ("bf tasks init tasks/fix-parser", "bf tasks init tasks/shop-refunds --from ../shop"),
    "tasks check": ("bf tasks check tasks/", "bf tasks check --run tasks/fix-parser", "bf tasks check tasks/ --json"),
    "tasks migrate": ("bf tasks migrate tasks/", "bf tasks migrate tasks/fix-parser --remove-legacy"),
    "tasks export": ("bf tasks export tasks/ -o harbor/", "bf tasks export tasks/ --report-only"),
    "tasks digest": ("bf tasks digest tasks/",),
    "shell": (
        "bf shell tasks/fix-parser",
        "bf shell tasks/fix-parser --solve --verify -- bf-verify",
        "bf shell tasks/fix-parser --sandbox docker -- cat /app/README.md",
    ),
    "agents": ("bf agents", "bf agents --json"),
    "agents show": ("bf agents show gemini",),
    "agents install": ("bf agents install gemini claude", "bf agents install --all"),
    "agents prune": ("bf agents prune", "bf agents prune --max-age 7 --yes"),
    "run": (
        "bf run -t tasks/hello-world -a oracle",
        "bf run -t tasks/hello-world -a gemini -m gemini-2.5-pro -e docker",
        "bf run job.yaml",
    ),
    "job": (
        "bf job -t tasks -a gemini -c 64 --retries 1",
        "bf job -t tasks -a codex --include 'git-*' --trials 3 --json",
        "bf job -f job.yaml",
    ),
    "eval create": ("bf eval create -t tasks -a gemini -c 64", "bf eval create -f job.yaml"),
    "eval run": ("bf eval run -t tasks -a gemini -c 64", "bf eval run -f job.yaml"),
    "eval list": ("bf eval list", "bf eval list /shared/jobs --json"),
    "watch": ("bf watch", "bf watch jobs/nightly"),
    "regrade": ("bf regrade jobs/nightly", "bf regrade jobs/nightly --json"),
    "metrics": ("bf metrics jobs/nightly", "bf metrics jobs/nightly -a gemini --json"),
    "report": ("bf report jobs/nightly", "bf report results.json -o page.html"),
    "view": ("bf view jobs", "bf view jobs/nightly --port 8080"),
    "compare": (
        "bf compare jobs/monday jobs/tuesday",
        "bf compare baseline.json results.json --html what-changed.html",
    ),
    "export": (
        "bf export jobs/nightly --format atif -o atif/",
        "bf export jobs/ --format training -o data/ --min-reward 0.8 --holdout 0.1",
        "bf export jobs/nightly --format otel",
    ),
    "junit": ("bf junit jobs/nightly -o junit.xml",),
    "markdown": ("bf markdown results.json -o comment.md",),
    "completion": (
        "bf completion bash > ~/.local/share/bash-completion/completions/bf",
        "bf completion zsh > ~/.zfunc/_bf",
        "bf completion fish > ~/.config/fish/completions/bf.fish",
    ),
    "merge": ("bf merge shard-*.json -o results.json", 'bf merge shard-*.json --gate "pass_rate >= 0.8"'),
    "judge check": ("bf judge check tests/rubric.toml --cases cases.jsonl",),
    "schema": ("bf schema report > report.schema.json", "bf schema rollout"),
    "cleanup": ("bf cleanup", "bf cleanup --yes", "bf cleanup --images --max-age 7"),
}


def add_examples(parser: argparse.ArgumentParser) -> None:
    """Put the examples below the help of the commands."""
    for name, command in commands_of(parser):
        if name in EXAMPLES:
            more = f"\n\n{command.epilog}" if command.epilog else ""
            command.epilog = "\n".join(["examples:", *(f"  {example}" for example in EXAMPLES[name])]) + more
            command.formatter_class = _Formatter


class _Formatter(argparse.HelpFormatter):
    """Wraps paragraphs and leaves examples as they are, one a line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n".join(line if line.startswith("  ") else fill(line, width, indent) for line in text.splitlines())


def commands_of(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands below a parser, each with its whole name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, command in action.choices.items():
                whole = f"{name} {word}".strip()
                yield whole, command
                yield from commands_of(command, whole)
