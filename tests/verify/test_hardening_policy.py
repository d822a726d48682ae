"""What becomes of an agent's changes: decided from two scans, as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_benchflow.sandboxes import FileChange
from pytest_benchflow.tasks.models import Hardening
from pytest_benchflow.verify.git_config import cleaned_git_config
from pytest_benchflow.verify.hidden_tests import read_hidden_tests
from pytest_benchflow.verify.links import aliases, candidates_of_aliases, decide_links, resolved
from pytest_benchflow.verify.pins import Ownership, pinned
from pytest_benchflow.verify.plan import Context, Plan
from pytest_benchflow.verify.policy import decide
from pytest_benchflow.verify.scan import Scan, ScannedFile
from pytest_benchflow.verify.support import decide_support, support_modules
from pytest_benchflow.verify.system import decide_system, shadowing_libraries

EVIL = "import os\nopen('/logs/verifier/reward.txt', 'w').write('1')\n"
FIXTURES = "import pytest\n\n\n@pytest.fixture\ndef base():\n    return 1\n"


def scan_of(files: Mapping[str, str] | None = None, **more: object) -> Scan:
    scanned = {path: ScannedFile(path, text.encode(), 0o644, 0, 0) for path, text in (files or {}).items()}
    return Scan(files=scanned, **more)  # type: ignore[arg-type]


def plan_for(before: Scan, after: Scan, instruction: str = "Do it.", solution: str = "", **hardening: bool) -> Plan:
    context = Context(
        workdir="/app",
        instruction=instruction,
        solution=solution,
        hardening=Hardening(**hardening),
        tops=("/app", "/tmp"),
        imports=frozenset({"yaml", "solution", "helpers"}),
        own_modules=frozenset({"helpers", "utils", "test_outputs"}),
        programs=("/app/bin",),
        known_programs=frozenset({"cat", "yq"}),
    )
    return decide(before, after, context)


@pytest.mark.parametrize(
    ("path", "text", "is_removed", "is_reported"),
    [
        ("/app/conftest.py", EVIL, True, True),
        ("/app/conftest.py", FIXTURES, True, False),
        ("/tmp/conftest.py", FIXTURES, True, True),
        ("/app/pytest.ini", "[pytest]\naddopts = -p evil\n", True, False),
        ("/app/pytest.ini", "[pytest]\naddopts = -q\ntestpaths = tests\n", False, False),
        ("/app/out/setup.cfg", "[tool:pytest]\naddopts = -q\n", False, False),
        ("/app/lib/sitecustomize.py", "x = 1\n", True, True),
        ("/app/.venv/lib/python3.13/site-packages/a.pth", "import evil\n", True, True),
        ("/app/.venv/lib/python3.13/site-packages/a.pth", "/app/src\n", False, False),
        ("/app/x-1.dist-info/entry_points.txt", "[pytest11]\nx = x\n", True, True),
        ("/app/x-1.dist-info/entry_points.txt", "[console_scripts]\nx = x:main\n", False, False),
        ("/app/Makefile", "all:\n\ttrue\n", False, False),
        ("/app/pkg/tests/__init__.py", "", False, False),
        ("/app/tests/__init__.py", EVIL, True, True),
        ("/app/tests/__init__.py", "exec('1')\n", True, False),
        ("/app/tests/__init__.py", '"""Tests."""\n\nTIMEOUT = 3\n', False, False),
        ("/app/tests/__init__.py", "pytest_plugins = 'rules'\n", True, False),
        ("/app/.proverc", "--exec /app/yes\n", True, False),
        ("/etc/apt/sources.list.d/a.list", "deb [trusted=yes] file:/opt/r ./\n", True, True),
        ("/etc/apt/sources.list.d/a.list", "deb https://example.com/debian stable main\n", False, False),
        ("/etc/profile.d/a.sh", "export GREETING=hi\n", False, False),
        ("/etc/profile.d/a.sh", "export HOME=/opt/h\n", True, True),
        ("/etc/profile.d/a.sh", "export TAR_OPTIONS=--checkpoint=1\n", True, True),
        ("/app/product/__init__.py", "from product.core import run\n", False, False),
        ("/app/pytest.ini", "[pytest]\nmarkers = x\faddopts = -p evil\n", True, False),
        ("/app/pytest.ini", "[pytest]\ntestpaths = suite\n", True, False),
        ("/app/pytest.toml", '[pytest]\nmarkers = ["x"]\n  addopts = ["-p", "evil"]\n', True, False),
        ("/app/pytest.toml", '[pytest]\naddopts = ["-q"]\n', False, False),
        ("/app/tox.ini", "[pytest]# ]\naddopts = -p evil\n", True, True),
        ("/app/x-1.Dist-Info/entry_points.txt", "[[pytest11]]\nx = x\n", True, True),
        (
            "/app/.venv/lib/python3.13/site-packages/anyio-4.dist-info/entry_points.txt",
            "[pytest11]\nx = x\n",
            True,
            False,
        ),
        ("/app/.git/commondir", "../elsewhere\n", False, False),
    ],
)
def test_new_files(path: str, text: str, is_removed: bool, is_reported: bool) -> None:
    plan = plan_for(scan_of(), scan_of({path: text}))
    assert (path in plan.remove) is is_removed
    assert bool(plan.findings) is is_reported


@pytest.mark.parametrize(
    ("path", "old", "new", "instruction", "result"),
    [
        ("/app/conftest.py", FIXTURES, EVIL, "", FIXTURES),
        ("/app/Makefile", "all:\n\tcheck\n", "all:\n\ttrue\n", "", "all:\n\tcheck\n"),
        ("/app/Makefile", "all:\n\tcheck\n", "all:\n\ttrue\n", "Fix the Makefile so that it is built again.", None),
        ("/app/Makefile", "all:\n\tcheck\n", "all:\n\ttrue\n", "cat >/app/Makefile <<END", "all:\n\tcheck\n"),
        (
            "/app/pyproject.toml",
            '[project]\nname = "a"\n[tool.pytest.ini_options]\naddopts = "-q"\n',
            '[project]\nname = "b"\n[tool.pytest.ini_options]\naddopts = "-p evil"\n',
            "",
            '[project]\nname = "b"\n[tool.pytest.ini_options]\naddopts = "-q"\n',
        ),
        ("/app/pyproject.toml", '[project]\nname = "a"\n', '[project]\nname = "b"\n', "", None),
        ("/app/setup.cfg", "[metadata]\nname = a\n", "[metadata]\nname = b\n[tool:pytest]\naddopts = -p x\n", "",
         "[metadata]\nname = b\n"),
    ],
)  # fmt: skip
def test_changed_files(path: str, old: str, new: str, instruction: str, result: str | None) -> None:
    plan = plan_for(scan_of({path: old}), scan_of({path: new}), instruction)
    assert (plan.write[path].text if path in plan.write else None) == result


def test_what_the_solution_changes_is_the_agents_to_change() -> None:
    before, after = scan_of({"/app/setup.py": "setup()\n"}), scan_of({"/app/setup.py": "setup(packages=['a'])\n"})
    assert "/app/setup.py" in plan_for(before, after).write
    assert plan_for(before, after, solution="sed -i 's/x/y/' /app/setup.py\n").is_empty
    assert "/app/setup.py" in plan_for(before, after, solution="python my_setup.py\n").write


def test_scripts_of_a_package_file_come_back_and_dependencies_stay() -> None:
    old = '{"scripts": {"test": "check"}, "dependencies": {}}'
    new = '{"scripts": {"test": "true", "pretest": "x", "dev": "y"}, "dependencies": {"a": "1"}}'
    plan = plan_for(scan_of({"/app/package.json": old}), scan_of({"/app/package.json": new}))
    text = plan.write["/app/package.json"].text
    assert '"test": "check"' in text
    assert '"dev": "y"' in text
    assert '"a": "1"' in text
    assert "pretest" not in text


@pytest.mark.parametrize(
    ("links", "is_removed", "is_reported"),
    [
        ({"/app/answer": "/tests/expected"}, True, True),
        ({"/app/a": "b", "/app/b": "../tests/x"}, True, True),
        ({"/app/a": "/tmp/.a", "/tmp/.a": "/tests/x"}, True, True),
        ({"/app/current": "releases/1"}, False, False),
        ({"/app/.venv/bin/python": "/usr/bin/python3"}, False, False),
        ({"/app/data": "/home/agent/data"}, True, False),
        ({"/app/a": "b", "/app/b": "a"}, True, True),
    ],
)
def test_links(links: dict[str, str], is_removed: bool, is_reported: bool) -> None:
    plan = plan_for(scan_of(), scan_of(links=links))
    assert (next(iter(links)) in plan.remove) is is_removed
    assert bool(plan.findings) is is_reported


@pytest.mark.parametrize(
    ("module", "removed"),
    [
        ("/app/json.py", "/app/json.py"),
        ("/app/json.pyc", "/app/json.pyc"),
        ("/app/random/__init__.py", "/app/random"),
        ("/app/pytest.py", "/app/pytest.py"),
        ("/app/yaml.py", "/app/yaml.py"),
        ("/app/helpers.py", "/app/helpers.py"),
        ("/app/utils.py", None),
        ("/app/test_outputs.py", "/app/test_outputs.py"),
        ("/app/sitecustomize/__init__.py", "/app/sitecustomize"),
        ("/app/solution.py", None),
        ("/app/pkg/json.py", None),
        ("/srv/json.py", None),
    ],
)
def test_modules(module: str, removed: str | None) -> None:
    plan = plan_for(scan_of(packages=frozenset({"yaml"})), scan_of(modules=frozenset({module})))
    assert next(iter(plan.remove), None) == removed


def test_a_package_in_front_of_a_module_goes_and_one_in_its_place_stays() -> None:
    before, package = scan_of(modules=frozenset({"/app/kit.py"})), "/app/kit/__init__.py"
    assert [*plan_for(before, scan_of(modules=frozenset({"/app/kit.py", package}))).remove] == ["/app/kit"]
    assert plan_for(before, scan_of(modules=frozenset({package}))).is_empty


def test_a_module_that_the_task_asks_for_stays() -> None:
    after = scan_of(modules=frozenset({"/app/calendar.py", "/app/json.py"}))
    assert [*plan_for(scan_of(), after, "Write calendar.py so that it prints the month.").remove] == ["/app/json.py"]


def test_modules_of_the_task_itself_stay() -> None:
    modules = frozenset({"/app/json.py"})
    assert plan_for(scan_of(modules=modules), scan_of(modules=modules)).is_empty


@pytest.mark.parametrize(("name", "is_removed"), [("cat", True), ("pytest", True), ("yq", True), ("mine", False)])
def test_programs_before_those_of_the_system(name: str, is_removed: bool) -> None:
    plan = plan_for(scan_of(), scan_of({f"/app/bin/{name}": "#!/bin/sh\n"}))
    assert (f"/app/bin/{name}" in plan.remove) is is_removed


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("cleanup_conftests", "/app/conftest.py"),
        ("restore_config", "/app/.coveragerc"),
        ("enabled", "/app/conftest.py"),
    ],
)
def test_an_opt_out_leaves_the_file(key: str, path: str) -> None:
    assert not plan_for(scan_of(), scan_of({path: EVIL})).is_empty
    assert plan_for(scan_of(), scan_of({path: EVIL}), **{key: False}).is_empty


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("[core]\n\tfsmonitor = /app/x\n", ["core.fsmonitor"]),
        ("[core] hooksPath = /app/x\n", ["core.hookspath"]),
        ('[filter "f"]\n\tclean = /app/x\n', ["filter.f.clean"]),
        ("[include]\n\tpath = ../x\n", ["include.path"]),
        ('[remote "o"]\n\turl = ext::sh -c x\n', ["remote.o.url"]),
        ("[core]\n\tfsmon\\\nitor = /app/x\n", ["core.fsmonitor"]),
        ('[remote "origin"]\n\turl = https://example.com/x\n[user]\n\tname = A\n', []),
    ],
)
def test_git_is_told_of_no_programs(text: str, dropped: list[str]) -> None:
    cleaned, keys = cleaned_git_config(text, "")
    assert [key.name for key in keys] == dropped
    assert cleaned_git_config(cleaned, "")[1] == []
    assert cleaned_git_config(text, text)[1] == []


def test_variables_that_lead_into_the_agents_files_are_not_given_on() -> None:
    ownership = Ownership({"/opt/mine": (1000, 0o755), "/opt/ours": (0, 0o755), "/opt": (0, 0o755)}, [1000], ["/app"])
    env = {
        "BASH_ENV": "/app/x", "LD_PRELOAD": "/opt/ours/a.so", "NODE_OPTIONS": "--require /opt/mine/x.js",
        "LD_LIBRARY_PATH": "/opt/ours:/app/lib", "PATH": ".:/app/bin:/usr/bin", "PYTHONSTARTUP": "start.py",
    }  # fmt: skip
    pins = pinned(env, ownership)
    assert pins["BASH_ENV"] == pins["NODE_OPTIONS"] == ""
    assert pins["LD_LIBRARY_PATH"] == "/opt/ours"
    assert pins["PATH"] == "/app/bin:/usr/bin"
    assert "LD_PRELOAD" not in pins


@pytest.mark.parametrize(
    ("change", "restored", "removed", "is_reported"),
    [
        (FileChange("/usr/bin/cat", "changed"), True, False, True),
        (FileChange("/usr/local/bin/cat", "added"), False, True, True),
        (FileChange("/usr/local/bin/greet", "added"), False, False, False),
        (FileChange("/etc/ld.so.preload", "added"), True, True, True),
        (FileChange("/etc/greeter/conf", "added"), False, False, False),
        (FileChange("/root/.bashrc", "changed"), True, True, False),
        (FileChange("/usr/lib/python3.13/json/__init__.py", "changed"), True, False, True),
        (FileChange("/usr/lib/python3.13/__pycache__/json.cpython-313.pyc", "added"), False, True, False),
        (FileChange("/usr/lib/python313.zip", "added"), False, True, True),
        (FileChange("/usr/lib/python3/dist-packages/new/__init__.py", "added"), False, False, False),
        (FileChange("/usr/lib/python3/dist-packages/pytest/__init__.py", "changed"), True, False, True),
        (FileChange("/usr/lib/python3/dist-packages/base/__init__.py", "added"), False, False, True),
        (FileChange("/usr/local/share/perl/5.36.0/strict.pm", "added"), False, True, True),
        (FileChange("/usr/local/share/perl/5.36.0/Acme/New.pm", "added"), False, False, False),
        (FileChange("/etc/ssl/openssl.cnf", "changed"), True, False, True),
        (FileChange("/etc/ssl/certs/mine.pem", "added"), False, False, False),
        (FileChange("/etc/apt/apt.conf.d/99x", "added"), False, True, True),
        (FileChange("/etc/apt/sources.list.d/more.list", "added"), False, False, False),
        (FileChange("/usr/local", "changed"), True, False, False),
        (FileChange("/opt/ours/tool", "changed"), True, False, True),
        (FileChange("/conftest.py", "added"), False, True, True),
        (FileChange("/app/conftest.py", "added"), False, False, False),
        (FileChange("/opt/tool/bin/tool", "added"), False, False, False),
        (FileChange("/etc/apt/sources.list", "changed"), True, False, False),
        (FileChange("/usr/bin/pyvenv.cfg", "added"), False, True, True),
        (FileChange("/usr/local/pyvenv.cfg", "added"), False, True, True),
        (FileChange("/srv/env/pyvenv.cfg", "added"), False, False, False),
        (FileChange("/usr/lib/x86_64-linux-gnu/libnss_systemd.so.2", "added"), False, True, True),
        (FileChange("/etc/alternatives", "changed"), True, False, True),
        (FileChange("/etc/ld.so.cache", "deleted"), True, False, False),
        (FileChange("/etc/hosts.allow", "deleted"), False, False, False),
        (FileChange("/usr/bin/xargs", "deleted"), True, False, False),
        (FileChange("/usr/bin/nano", "deleted"), False, False, False),
        (FileChange("/usr/bin", "deleted"), True, False, False),
        (FileChange("/tox.ini", "added"), False, True, True),
        (FileChange("/opt/tox.ini", "added"), False, False, False),
        (FileChange("/var/lib/dpkg/info/more.postinst", "added"), False, True, False),
        (FileChange("/var/lib/dpkg/info/more.list", "added"), False, False, False),
        (FileChange("/var/lib/dpkg/info/base.postinst", "changed"), True, False, False),
        (FileChange("/usr/local/bin/python3.14", "added"), False, True, True),
    ],
)
def test_changes_of_the_system(change: FileChange, restored: bool, removed: bool, is_reported: bool) -> None:
    context = Context(
        "/app",
        "Do it.",
        Hardening(),
        path=("/opt/ours",),
        installed=frozenset({"base.py"}),
        known_programs=frozenset({"cat", "tool", "python3"}),
    )
    plan = decide_system((), [change], context, ["/root"])
    assert (change.path in plan.restore, change.path in plan.remove) == (restored, removed)
    assert bool(plan.findings) is is_reported
    assert not decide_system([change.path], [change], context, ["/root"]).restore


def test_what_stands_before_something_of_the_image_is_asked_of_the_sandbox() -> None:
    context = Context("/app", "Do it.", Hardening(), path=("/usr/sbin", "/usr/bin"), known_programs=frozenset({"cat"}))
    changes = [
        FileChange("/var/lib/dpkg/status", "changed"),
        FileChange("/usr/sbin/cat", "added"),
        FileChange("/usr/lib/python3.13/random/__init__.py", "added"),
        FileChange("/usr/lib/python3.13/[x]/__init__.py", "added"),
        FileChange("/usr/local/share/perl/5.36.0/FindBin.pm", "added"),
        FileChange("/usr/lib/python3/dist-packages/x-1.dist-info", "added"),
    ]
    plan = decide_system((), changes, context, [])
    assert plan.hiding["/usr/sbin/cat"] == ("/usr/bin/cat",)
    assert plan.hiding["/usr/lib/python3.13/random"] == ("/usr/lib/python3.13/random.py",)
    assert plan.hiding["/usr/lib/python3.13/[x]"] == (r"/usr/lib/python3.13/\[x\].py",)
    assert "/usr/share/perl/*/FindBin.pm" in plan.hiding["/usr/local/share/perl/5.36.0/FindBin.pm"]
    assert [*plan.links] == ["/usr/lib/python3/dist-packages/x-1.dist-info"]
    assert not plan.remove


_LINE = "\t{} ({}) => {}\n"


@pytest.mark.parametrize(
    ("instruction", "name", "kind", "place", "is_shadowing"),
    [
        ("Do it.", "libz.so.1", "libc6,x86-64", "/usr/local/lib/libz.so.1", True),
        ("Do it.", "libz.so.1", 'libc6,x86-64, hwcap: "x86-64-v2"', "/usr/lib/glibc-hwcaps/x86-64-v2/libz.so.1", True),
        ("Do it.", "libz.so.1", "libc6", "/lib/i386-linux-gnu/libz.so.1", False),
        ("Do it.", "libnew.so.1", "libc6,x86-64", "/usr/local/lib/libnew.so.1", False),
        ("Do it.", "libnss_x.so.2", "libc6,x86-64", "/usr/local/lib/libnss_x.so.2", True),
        ("Build a newer z and install it.", "libz.so.1", "libc6,x86-64", "/usr/local/lib/libz.so.1", False),
    ],
)
def test_libraries_that_the_loader_would_take_first(
    instruction: str, name: str, kind: str, place: str, is_shadowing: bool
) -> None:
    own = "540 libs found in cache `/etc/ld.so.cache'\n" + _LINE.format("libz.so.1", "libc6,x86-64", "/lib/libz.so.1")
    context = Context("/app", instruction, Hardening())
    assert shadowing_libraries(own, own + _LINE.format(name, kind, place), context) == [place] * is_shadowing


@pytest.mark.parametrize(
    ("path", "is_alias"),
    [
        ("/app/tests", True),  # the image has a directory there
        ("/app/.git", True),
        ("/app/x-1.dist-info", True),
        ("/app/hidden", True),
        ("/app/current", False),
        ("/app/out", False),
    ],
)
def test_links_that_hide_what_is_behind_them(path: str, is_alias: bool) -> None:
    target = {"/app/hidden": "/app/node_modules/x", "/app/out": "/opt/x"}.get(path, "/app/behind")
    context = Context("/app", "Do it.", Hardening())
    after = scan_of(links={path: target})
    candidates = candidates_of_aliases(scan_of(), after, context)
    assert aliases(candidates, {"/app/tests"}, scan_of(), after, context) == [path] * is_alias


def test_users_come_back_and_new_ones_stay() -> None:
    before = scan_of({"/etc/passwd": "root:x:0:0::/root:/bin/bash\n"})
    after = scan_of({"/etc/passwd": "root:x:0:0::/opt:/bin/sh\nnew:x:9:9::/:/bin/sh\ntwo:x:0:0::/:/bin/sh\n"})
    plan = plan_for(before, after)
    assert plan.write["/etc/passwd"].text == "root:x:0:0::/root:/bin/bash\nnew:x:9:9::/:/bin/sh\n"


def test_pipes_and_second_names_are_taken_away_unless_they_are_the_work() -> None:
    after = scan_of(pipes=frozenset({"/app/p"}), shared={"/tmp/x": "1:2", "/app/x": "1:2", "/tmp/y": "1:3"})
    assert {*plan_for(scan_of(), after).remove} == {"/app/p", "/tmp/x"}
    assert {*plan_for(scan_of(), after, "Make a named pipe and read from it.").remove} == {"/tmp/x"}


def test_where_hidden_tests_run_and_what_they_import(tmp_path: Path) -> None:
    script = """#!/bin/bash
TOP=/app
DIR="${TOP}/shop"
cd "$DIR/deep" && cd ${OTHER:-/srv/x}
cp /tests/test_x.py checks/unit/
python3 -c "import yaml; print(1)"
python3 - <<'END'
from numpy import array
END
"""
    (tmp_path / "test.sh").write_text(script)
    (tmp_path / "helpers.py").write_text("import requests.adapters\n")
    tests = read_hidden_tests([tmp_path], "test.sh", "/app")
    assert tests.imports == {"yaml", "numpy", "requests"}
    assert tests.own_modules == {"helpers"}
    assert tests.directories == ("/app/shop/deep", "/srv/x")
    assert "/app/checks/unit" in tests.places


def test_path_files_add_directories_of_the_workspace_and_run_nothing() -> None:
    site = "/app/.venv/lib/python3.13/site-packages"
    line = "import __editable___mine_finder; __editable___mine_finder.install()"
    finder = "MAPPING: dict[str, str] = {'mine': '/app/src/mine', 'other': '/opt/other'}\nos.system('x')\n"
    files = {f"{site}/m.pth": f"{line}\n/app/more\n/opt/more\n", f"{site}/__editable___mine_finder.py": finder}
    image = {"/app/.venv/pyvenv.cfg": "home = /usr/bin\n"}
    plan = plan_for(scan_of(image), scan_of({**image, **files}))
    assert plan.write[f"{site}/m.pth"].text == "/app/src\n/app/more\n"
    # An environment of the agent's own is its work.
    assert plan_for(scan_of(), scan_of({**image, **files})).is_empty


def test_options_among_names_go_unless_they_are_asked_for() -> None:
    after = scan_of(options=("/app/-x",))
    assert {*plan_for(scan_of(), after).remove} == {*after.options}
    assert plan_for(scan_of(), after, "Make a file called -x in the directory.").is_empty


@pytest.mark.parametrize(
    ("links", "path", "end"),
    [
        ({"/app/d": "/usr/bin"}, "/app/a/../d/../../x", "/x"),
        ({"/app/a/d": "/opt", "/app/e": "a/d/../tests/x"}, "/app/e", "/tests/x"),
        ({"/app/e": "e"}, "/app/e", "/proc"),
        ({"/app/e": "./f/.", "/app/f": "../app/g/"}, "/app/e/h", "/app/g/h"),
    ],
)
def test_links_lead_where_the_kernel_says(links: dict[str, str], path: str, end: str) -> None:
    assert resolved(path, links) == end


def test_links_to_where_the_tests_copy_their_files_go(tmp_path: Path) -> None:
    (tmp_path / "expected.txt").touch()
    script = (
        "cd /app/x\ncp -r $TESTS/expected.txt .\njq . /tests/a.json > /app/b.json\ncp /app/out.txt /logs/verifier/\n"
    )
    (tmp_path / "test.sh").write_text(script)
    tests = read_hidden_tests([tmp_path], "test.sh", "/app")
    context = Context("/app", "Do it.", Hardening(), brought=tests.names, copies=tests.copies)
    brought = ["/app/x/expected.txt", "/app/expected.txt", "/app/b.json"]
    assert all(map(context.is_brought, brought))
    assert not any(map(context.is_brought, ["/app/out.txt", "/app/y/expected.txt", "/app/x/other.txt"]))
    after = scan_of(links={"/app/answer": "x/expected.txt", "/app/b.json": "answer", "/app/out.txt": "x/out.txt"})
    plan = Plan()
    decide_links(scan_of(), after, context, plan)
    assert {*plan.remove} == {"/app/answer", "/app/b.json"}


def test_modules_that_the_configuration_of_tests_loads_are_part_of_it() -> None:
    files = scan_of({
        "/app/pytest.ini": "[pytest]\naddopts = -q\n    -p plug.report -p no:cacheprovider\n",
        "/app/pyproject.toml": '[tool.task]\nbuild = "mkdir -p out"\n',
        "/app/tests/conftest.py": "pytest_plugins = ['more']\nfrom helpers import x\nfrom .near import y\nimport z\n",
    }).files  # fmt: skip
    paths = support_modules(files, "/app", ())
    assert {"/app/plug/report.py", "/app/more.py", "/app/tests/helpers.py", "/app/tests/near.py"} <= {*paths}
    assert not {"/app/out.py", "/app/z.py", "/app/helpers.py", "/app/cacheprovider.py"} & {*paths}
    before = scan_of({"/app/plug/report.py": "X = 1\n"})
    after = scan_of({"/app/plug/report.py": EVIL, "/app/more.py": EVIL})
    plan = Plan()
    decide_support(paths, before, after, Context("/app", "Do it.", Hardening()), plan)
    assert [*plan.write] == ["/app/plug/report.py"]
    assert {*plan.remove} == {"/app/plug/report.py", "/app/more.py"}
    assert len(plan.findings) == 2


def test_a_project_keeps_its_name_and_aliases() -> None:
    old = '{"name": "app", "imports": {"#same": "./a.js"}}'
    new = '{"name": "same", "exports": "./b.js", "imports": {"#same": "./b.js", "#new": "./c.js"}}'
    plan = plan_for(scan_of({"/app/package.json": old}), scan_of({"/app/package.json": new}))
    kept = json.loads(plan.write["/app/package.json"].text)
    assert (kept["name"], kept["imports"]) == ("app", {"#same": "./a.js", "#new": "./c.js"})
