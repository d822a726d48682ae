"""Build hidden projects again and again, and compare what is printed and written."""

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, run


class Project:
    """A project in a scratch folder."""

    def __init__(self, targets, **files):
        self._folder = tempfile.TemporaryDirectory()
        self.root = Path(self._folder.name)
        self.describe(targets)
        for name, text in files.items():
            self.write(name, text)

    def describe(self, targets):
        described = {name: {"inputs": inputs.split(), "filter": kind} for name, (inputs, kind) in targets.items()}
        self.write("forge.json", json.dumps({"targets": described}))

    def write(self, name, text):
        """Write a file that looks old: times must not matter."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (1_000_000_000, 1_000_000_000))

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def forge(self, *names, status=0):
        """Build and return the printed lines, reasons of failures cut off."""
        done = run("python3", "/app/forge.py", str(self.root), *names)
        equal(done.returncode, status, f"exit status ({done.stderr.strip()[-200:]})")
        return [line.split(":")[0] for line in done.stdout.splitlines()]


SIMPLE = {"out/page": ("head out/menu", "none"), "out/menu": ("menu", "sort"), "out/loud": ("head", "upper")}


def simple():
    return Project(SIMPLE, head="Hi\n@include motto\n", motto="be kind\n", menu="b\na\n")


@check
def dependencies_come_first():
    project = simple()
    lines = project.forge()
    equal(sorted(lines), ["built out/loud", "built out/menu", "built out/page"], "lines")
    assert lines.index("built out/menu") < lines.index("built out/page"), f"menu is not built before page: {lines}"
    equal(project.read("out/page"), "Hi\nbe kind\na\nb\n", "out/page")
    equal(project.read("out/loud"), "HI\nBE KIND\n", "out/loud")


@check
def second_build_is_fresh():
    project = simple()
    project.forge()
    equal(sorted(project.forge()), ["fresh out/loud", "fresh out/menu", "fresh out/page"], "lines")


@check
def touching_a_file_rebuilds_nothing():
    project = simple()
    project.forge()
    for name in ("head", "motto", "menu", "out/menu"):
        os.utime(project.root / name)
    equal(sorted(project.forge()), ["fresh out/loud", "fresh out/menu", "fresh out/page"], "lines")


@check
def changed_input_rebuilds_what_needs_it():
    project = simple()
    project.forge()
    project.write("menu", "c\nb\n")
    equal(sorted(project.forge()), ["built out/menu", "built out/page", "fresh out/loud"], "lines")
    equal(project.read("out/page"), "Hi\nbe kind\nb\nc\n", "out/page")


@check
def same_output_stops_the_rebuilding():
    project = simple()
    project.forge()
    project.write("menu", "a\nb\n")
    equal(sorted(project.forge()), ["built out/menu", "fresh out/loud", "fresh out/page"], "lines")


@check
def changed_include_is_noticed():
    project = Project({"out/x": ("a", "none")}, a="@include b\n", b="1\n@include c\n", c="2\n")
    project.forge()
    project.write("c", "3\n")
    equal(project.forge(), ["built out/x"], "lines")
    equal(project.read("out/x"), "1\n3\n", "out/x")


@check
def changed_recipe_is_noticed():
    project = simple()
    project.forge()
    project.describe(SIMPLE | {"out/menu": ("menu", "upper"), "out/loud": ("head menu", "upper")})
    equal(sorted(project.forge()), ["built out/loud", "built out/menu", "built out/page"], "lines")
    equal(project.read("out/loud"), "HI\nBE KIND\nB\nA\n", "out/loud")


@check
def damaged_output_is_rebuilt():
    project = simple()
    project.forge()
    (project.root / "out/loud").write_text("tampered")
    (project.root / "out/menu").unlink()
    equal(sorted(project.forge()), ["built out/loud", "built out/menu", "fresh out/page"], "lines")
    equal(project.read("out/loud"), "HI\nBE KIND\n", "out/loud")


@check
def damaged_memory_means_nothing_is_fresh():
    for text in ("{", '{"out/x": 1}'):
        project = Project({"out/x": ("a", "none")}, a="1\n")
        project.forge()
        project.write(".forge.json", text)
        equal(project.forge(), ["built out/x"], f"lines with the memory {text!r}")
        equal(project.forge(), ["fresh out/x"], "lines afterwards")


@check
def filter_sees_all_inputs_together():
    project = Project({"out/x": ("a b", "sort")}, a="c\na\n", b="b\n")
    project.forge()
    equal(project.read("out/x"), "a\nb\nc\n", "out/x")


@check
def includes_in_targets_are_plain_text():
    project = Project({"out/x": ("a b", "none"), "out/y": ("out/x", "none")}, a="@inc", b="lude c\n", c="no\n")
    project.forge()
    equal(project.read("out/y"), "@include c\n", "out/y")


@check
def only_what_is_asked_for_is_built():
    project = simple()
    equal(project.forge("out/page"), ["built out/menu", "built out/page"], "lines")
    assert not (project.root / "out/loud").exists(), "out/loud was built"
    equal(sorted(project.forge()), ["built out/loud", "fresh out/menu", "fresh out/page"], "lines")


@check
def failure_keeps_the_old_file_and_skips_what_depends_on_it():
    targets = {
        "out/a": ("one two", "none"),
        "out/b": ("out/a", "none"),
        "out/c": ("out/b", "upper"),
        "out/d": ("two", "none"),
    }
    project = Project(targets, one="1\n", two="2\n")
    project.forge()
    project.write("one", "changed\n@include lost\n")
    want = ["failed out/a", "fresh out/d", "skipped out/b", "skipped out/c"]
    equal(sorted(project.forge(status=1)), want, "lines")
    equal(project.read("out/a"), "1\n2\n", "out/a")
    project.write("one", "1\n")
    equal(
        sorted(project.forge()), ["built out/a", "fresh out/b", "fresh out/c", "fresh out/d"], "lines after the repair"
    )


@check
def circular_includes_fail_the_target():
    project = Project(
        {"out/a": ("one", "none"), "out/b": ("three", "none")}, one="@include two\n", two="@include one\n", three="3\n"
    )
    equal(sorted(project.forge(status=1)), ["built out/b", "failed out/a"], "lines")
    project = Project({"out/a": ("one", "none")}, one="@include two\n@include two\n", two="2\n")
    equal(project.forge(), ["built out/a"], "lines when a file is included twice")


@check
def bad_projects_build_nothing():
    for targets, names in (
        ({"out/a": ("out/b", "none"), "out/b": ("out/a", "none"), "out/c": ("one", "none")}, ()),
        ({"out/a": ("one", "shiny"), "out/c": ("one", "none")}, ()),
        ({"out/c": ("one", "none")}, ("out/c", "out/nothing")),
    ):
        project = Project(targets, one="1\n")
        equal(project.forge(*names, status=2), [], "lines")
        assert not (project.root / "out/c").exists(), "something was built"


finish()
