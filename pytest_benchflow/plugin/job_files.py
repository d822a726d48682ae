"""Rollout files on the command line: `--bf-scene` is a value of the scene axis, `--bf-config` a job with its tasks."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.core.errors import BenchflowError, UsageError
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.jobs import SceneChoice

if TYPE_CHECKING:
    from pytest_benchflow.plugin.session import BenchSession
    from pytest_benchflow.rollout import RolloutFile


def add_sources(run: BenchSession) -> None:
    """Collect what `--bf-source` and the job file name, instead of the default paths if no path was given."""
    tasks = [str(path) for path in run.job_file.tasks] if run.job_file is not None else []
    if not run.settings.source and not tasks:
        return
    paths = run.config.option.file_or_dir
    arguments = run.config.args if paths else []
    run.config.args = [*arguments, *tasks, *run.sources]


def fetched_sources(run: BenchSession) -> list[str]:
    """Fetch the sources and return their local paths; workers are handed those of their controller."""
    handed: list[str] | None = getattr(run.config, "workerinput", {}).get("bf_sources")
    if handed is not None:
        return handed
    from pytest_benchflow.core.files import cache_directory
    from pytest_benchflow.tasks import fetch_source

    try:
        with _work_shown(run.config):
            fetched = [fetch_source(source, cache_directory() / "sources") for source in run.settings.source]
    except BenchflowError as error:
        raise pytest.UsageError(f"--bf-source: {error}") from None
    run.notes += [source.note for source in fetched if source.note is not None]
    return [str(source.path) for source in fetched]


@contextmanager
def _work_shown(config: pytest.Config) -> Iterator[None]:
    """Show on the terminal what is done meanwhile, although pytest captures what is printed; with -q nothing."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if config.get_verbosity() < 0 or capture is None:
        yield
        return
    from pytest_benchflow.reporting import work_shown

    with capture.global_and_fixture_disabled(), work_shown(1):
        yield


FOLDER = "scenes"
_SUFFIXES = (".yaml", ".yml")


def find_scene_files(words: Iterable[str], root: Path, here: Path) -> list[Path]:
    """Return the files that `--bf-scene` names: paths, patterns, or names of files in `scenes/`."""
    files: dict[Path, None] = {}
    for word in words:
        if any(mark in word for mark in "*?["):
            matches = [Path(match) for match in sorted(glob.glob(str(here / word)))]
        else:
            in_folder = [root / FOLDER / f"{word}{suffix}" for suffix in _SUFFIXES]
            matches = [path for path in (here / word, *in_folder) if path.is_file()][:1]
        if not matches:
            known = [path.stem for path in (root / FOLDER).glob("*") if path.suffix in _SUFFIXES]
            advice = did_you_mean(word, known) if known else f"give a file, or a name in {FOLDER}/"
            raise UsageError(f"--bf-scene {word!r}: there is no such file", advice=advice)
        files |= dict.fromkeys(matches)
    return list(files)


def read_scenes(paths: Iterable[Path]) -> dict[str, RolloutFile]:
    """Read scene files; two of the same name could not be told apart."""
    from pytest_benchflow.rollout import load_rollout_file

    files: dict[str, RolloutFile] = {}
    for path in paths:
        file = load_rollout_file(path)
        if file.name in files:
            raise UsageError(
                f"--bf-scene {path} and {files[file.name].path} are both called {file.name!r}",
                advice="give one of them another name:",
            )
        files[file.name] = file
    return files


def refuse_idle_options(config: pytest.Config, files: Sequence[RolloutFile]) -> None:
    """Refuse what the command line says and no file leaves room for: a wrong agent may cost money."""
    names = ", ".join(repr(file.name) for file in files)
    settled = {
        "--bf-agent": ("who plays", all(file.pins_agents for file in files)),
        "--bf-prompt": ("what is told", all(file.scenes for file in files)),
    }
    for flag, (what, is_settled) in settled.items():
        if files and is_settled and config.getoption(flag) is not None:
            message = f"{flag} has no effect, because {names} says {what}"
            raise UsageError(message, advice="take one of them away")


def choice_of(file: RolloutFile) -> SceneChoice:
    """Return what the matrix needs to know about a scene file."""
    if not file.pins_agents:
        return SceneChoice(file.name)
    scenes = file.scenes_for()
    if scenes:
        first = scenes[0].roles[0]
        return SceneChoice(file.name, first.agent, first.model)
    return SceneChoice(file.name, file.agents[0].name, file.agents[0].model)


def idle_keys(file: RolloutFile, job: RolloutFile | None) -> list[str]:
    """Return what a file says that has no effect: a scene file cannot say how a whole job is retried."""
    retry = [f"{file.path}: retry has no effect in a scene file; use --bf-retries"] if file.retry else []
    return [*map(str, file.warnings), *(retry if file is not job else [])]


def without_players(job: RolloutFile) -> RolloutFile:
    """Return a job for a self-test of its tasks, which pays for nobody."""
    return replace(
        job,
        scenes=(),
        agents=(),
        user=None,
        values={name: value for name, value in job.values.items() if name not in ("prompts", "loop_strategy")},
    )
