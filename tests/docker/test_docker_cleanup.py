"""`bf cleanup` on a real daemon; every test touches only what it made itself, others may be at work here."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from pytest_benchflow.cli.main import main
from pytest_benchflow.sandboxes import Leftover
from pytest_benchflow.sandboxes.docker.cleanup import DockerImages
from pytest_benchflow.sandboxes.docker.container_spec import make_labels

IMAGE = "bf-test/busybox:1"


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, check=True, text=True).stdout.strip()


def exists(kind: str, name: str) -> bool:
    return subprocess.run(["docker", kind, "inspect", name], capture_output=True, check=False).returncode == 0


@dataclass
class Made:
    """Things with our labels, as a run of its own would have made them."""

    dead_labels: Callable[[str, str], dict[str, str]]
    run: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex[:12]}")
    names: list[tuple[str, str]] = field(default_factory=list)

    def make(self, kind: str, *, dead: bool, prefix: str = "bf-cleanup-") -> str:
        name = f"{prefix}{uuid.uuid4().hex[:8]}"
        labels = (self.dead_labels if dead else make_labels)(self.run, "hello")
        words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        self.names.append((kind, name))
        if kind == "container":
            docker("create", "--name", name, *words, IMAGE)
        else:
            docker(kind, "create", *words, name)
        return name


@pytest.fixture
def made(dead_labels: Callable[[str, str], dict[str, str]]) -> Iterator[Made]:
    made = Made(dead_labels)
    yield made
    for kind, name in made.names:
        if exists(kind, name):
            docker(*(["rm", "-f"] if kind == "container" else [kind, "rm"]), name)


def test_nothing_is_removed_without_yes(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    name = made.make("container", dead=True)
    assert main(["cleanup", "--run", made.run]) == 0
    out = capsys.readouterr().out
    assert f"container {name}  of hello in run {made.run} of process " in out
    assert ", which is gone" in out
    assert "nothing was removed" in out
    assert exists("container", name)


def test_what_a_dead_run_left_is_removed_with_its_networks_and_volumes(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {kind: made.make(kind, dead=True) for kind in ("container", "network", "volume")}
    assert main(["cleanup", "--yes", "--run", made.run]) == 0
    assert not any(exists(kind, name) for kind, name in names.items())
    assert capsys.readouterr().out.count("  removed") == 3


def test_what_is_in_use_or_kept_needs_all(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    living = made.make("container", dead=False)
    kept = made.make("container", dead=True, prefix="bf-kept-")
    assert main(["cleanup", "--yes", "--run", made.run]) == 0
    assert "2 kept on purpose or in use; --all includes them" in capsys.readouterr().out
    assert exists("container", living)
    assert exists("container", kept)
    assert main(["cleanup", "--yes", "--all", "--run", made.run]) == 0
    assert not exists("container", living)
    assert not exists("container", kept)


def test_what_cannot_be_removed_is_said(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    volume = made.make("volume", dead=True)
    user = f"bf-user-{os.getpid()}"
    docker("create", "--name", user, "-v", f"{volume}:/data", IMAGE)
    try:
        assert main(["cleanup", "--yes", "--run", made.run]) == 0
        assert "could not be removed, it is in use" in capsys.readouterr().out
        assert exists("volume", volume)
    finally:
        docker("rm", "-f", user)


async def test_only_images_of_an_age_are_found_and_one_in_use_stays() -> None:
    name = f"pytest-benchflow:test-{uuid.uuid4().hex[:12]}"
    container = f"bf-user-{uuid.uuid4().hex[:8]}"
    import_image(name)
    try:
        async with DockerImages(3600.0) as old:
            assert name not in {item.name for item in await old.find()}
        await asyncio.sleep(1.1)
        async with DockerImages(0.0) as any_age:
            (leftover,) = (item for item in await any_age.find() if item.name == name)
            docker("create", "--name", container, name, "sh")
            assert await any_age.remove([leftover]) == []
            docker("rm", "-f", container)
            assert await any_age.remove([leftover]) == [leftover]
            assert await any_age.remove([leftover]) == [leftover]
        assert not exists("image", name)
    finally:
        for kind, thing, verb in (("container", container, "rm"), ("image", name, "rmi")):
            if exists(kind, thing):
                docker(verb, "-f", thing)


async def test_an_image_that_somebody_named_as_well_keeps_that_name() -> None:
    ours, theirs = f"pytest-benchflow:test-{uuid.uuid4().hex[:12]}", f"bf-theirs:{uuid.uuid4().hex[:12]}"
    import_image(ours)
    docker("tag", ours, theirs)
    try:
        async with DockerImages(0.0) as images:
            assert await images.remove([Leftover("image", ours, ours, "", 0.0, abandoned=True)])
            assert theirs not in {item.name for item in await images.find()}
        assert not exists("image", ours)
        assert exists("image", theirs)
    finally:
        docker("rmi", "-f", theirs)


def test_images_are_listed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"pytest-benchflow:test-{uuid.uuid4().hex[:12]}"
    import_image(name)
    try:
        time.sleep(1.1)
        assert main(["cleanup", "--images", "--max-age=0"]) == 0
        assert f"image {name}  " in capsys.readouterr().out
        assert main(["cleanup", "--images"]) == 0
        assert name not in capsys.readouterr().out
        assert exists("image", name)
    finally:
        docker("rmi", name)


def import_image(name: str) -> None:
    """Make an image of its own: a new name for a shared one would tie their fates."""
    packed = subprocess.run(["tar", "-c", "-T", "/dev/null"], capture_output=True, check=True).stdout
    change = f"LABEL unique={name}"
    subprocess.run(["docker", "import", "-c", change, "-", name], input=packed, check=True, capture_output=True)
