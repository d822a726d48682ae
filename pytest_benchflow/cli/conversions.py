"""`bf tasks migrate`, `export` and `digest`: bring tasks from one layout into the other, and tell versions apart."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, UsageError

if TYPE_CHECKING:
    from pytest_benchflow.tasks import Conversion

_PATHS = "a task, or a folder of tasks"


def add_conversions(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the three verbs to `bf tasks`."""
    migrate = verbs.add_parser(
        "migrate",
        help="from Harbor's task.toml to a task.md",
        description="Write a task.md that says what task.toml and instruction.md say. It is checked by loading both"
        " before anything changes; what cannot be kept, such as comments, is told.",
    )
    migrate.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=_PATHS)
    migrate.add_argument(
        "--remove-legacy", action="store_true", help="remove the old files, and rename tests/ and solution/"
    )
    migrate.add_argument("--overwrite", action="store_true", help="write a task.md anew that is there")
    migrate.add_argument("--json", action="store_true", help="as JSON")
    migrate.set_defaults(action=_migrate)
    export = verbs.add_parser("export", help="from a task.md to Harbor's layout")
    export.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=_PATHS)
    export.add_argument(
        "-o", "--output", type=Path, default=Path("harbor-tasks"), metavar="DIR", help="(default: %(default)s)"
    )
    export.add_argument("--target", choices=("harbor",), default="harbor", help="the only layout there is to export to")
    export.add_argument("--overwrite", action="store_true", help="replace what is there")
    export.add_argument("--report-only", action="store_true", help="tell what would be lost, and write nothing")
    export.add_argument("--json", action="store_true", help="as JSON")
    export.set_defaults(action=_export)
    digest = verbs.add_parser("digest", help="the digest of each task, by which resume and baselines know its version")
    digest.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=_PATHS)
    digest.add_argument("--json", action="store_true", help="as JSON")
    digest.set_defaults(action=_digest)


def _migrate(options: argparse.Namespace) -> int:
    from pytest_benchflow.tasks import migrate_task

    tasks = [task for task in _tasks(options.paths) if (task / "task.toml").is_file()]
    if not tasks:
        raise UsageError("none of these tasks has a task.toml", advice="name tasks in Harbor's layout")
    return _convert(
        tasks,
        lambda task: migrate_task(task, remove_legacy=options.remove_legacy, overwrite=options.overwrite),
        as_json=options.json,
    )


def _export(options: argparse.Namespace) -> int:
    from pytest_benchflow.tasks import export_task

    return _convert(
        [*_tasks(options.paths)],
        lambda task: export_task(
            task, options.output / task.resolve().name, overwrite=options.overwrite, report_only=options.report_only
        ),
        as_json=options.json,
    )


def _convert(tasks: Sequence[Path], convert: Callable[[Path], Conversion], *, as_json: bool) -> int:
    """Convert each; 1 if some could not be, and stay as they are."""
    told: list[dict[str, object]] = []
    failed = 0
    for task in tasks:
        try:
            done = convert(task)
        except BenchflowError as error:
            failed += 1
            print(f"bf: {error}", file=sys.stderr)
            continue
        told.append({"task": str(task), "path": str(done.path), "losses": [*done.losses]})
        if not as_json:
            print(done.path, *(f"  lost: {loss}" for loss in done.losses), sep="\n")
    if as_json:
        print(json.dumps(told, indent=2))
    return 1 if failed else 0


def _digest(options: argparse.Namespace) -> int:
    from pytest_benchflow.tasks import load_task

    digests = {str(path): load_task(path).digest() for path in _tasks(options.paths)}
    print(
        json.dumps(digests, indent=2) if options.json else "\n".join(f"{one}  {path}" for path, one in digests.items())
    )
    return 0


def _tasks(paths: Sequence[Path]) -> Iterator[Path]:
    from pytest_benchflow.tasks import find_tasks

    for path in paths:
        tasks = [*find_tasks(path)]
        if not tasks:
            raise UsageError(f"no task in {path}", advice="a task has a task.toml or a task.md")
        yield from tasks
