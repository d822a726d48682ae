"""What the documentation promises is run: its commands, its examples, its generated tables."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from project import Project, write_task

from pytest_benchflow.agents import Quirks, list_agents, parse_manifest
from pytest_benchflow.cli.main import make_parser
from pytest_benchflow.plugin.options import OPTIONS, markdown_table
from pytest_benchflow.providers.providers import PROVIDERS
from pytest_benchflow.reporting import Report
from pytest_benchflow.rollout import load_rollout_file, load_user, rollout_schema
from pytest_benchflow.tasks import load_task
from pytest_benchflow.verify import load_rubric

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("pytest ")
]
AUTHORS = ("bf tasks ", "bf shell ")
"""The commands of those who write tasks."""
QUICK = ["hello-world", "sql-top-customers", "clean-orders-csv", "recover-lost-commits"]


KEYS = dict.fromkeys(("GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "DEEPSEEK_API_KEY"), "not-a-key")


@pytest.fixture(scope="module")
def demo(new_project: Callable[..., Project]) -> Project:
    """A project with some of the demo tasks, for all that change nothing in it."""
    return with_tasks(new_project(ini="[pytest]\n"))


@pytest.fixture
def project(new_project: Callable[..., Project]) -> Project:
    """Such a project for one test."""
    return with_tasks(new_project(ini="[pytest]\n"))


def with_tasks(project: Project) -> Project:
    for name in QUICK:
        shutil.copytree(ROOT / "tasks" / name, project.root / "tasks" / name)
    shutil.copytree(ROOT / "examples" / "scenes", project.root / "scenes")
    return project


def run_script(project: Project, script: str) -> list[str]:
    """Run Python in the project and return the lines that it prints."""
    command, env = [sys.executable, "-c", script], project.environment()
    done = subprocess.run(command, cwd=project.root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_readme_shows_commands() -> None:
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_works(command: str, demo: Project) -> None:
    argv = shlex.split(command)[1:]
    if "--bf-agent" in argv:
        argv.append("--bf-dry-run")  # all but the spending
    done = demo.run(*argv, env=KEYS)
    assert done.ret == pytest.ExitCode.OK, command
    if "--bf-agent" in argv:
        cells = [line for line in done.outlines if "task.toml::" in line]
        assert cells
        assert all(line.endswith("  ready") for line in cells)
    assert "INTERNALERROR" not in done.stdout.str()


def test_the_tests_on_all_pages_and_the_python_tests_work_in_strict_mode(demo: Project) -> None:
    pages = [README, *(page.read_text() for page in (ROOT / "docs").glob("*.md"))]
    blocks = [block for page in pages for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
    tests = [block for block in blocks if "def test_" in block]
    demo.write({f"test_page_{number}.py": block for number, block in enumerate(tests)})
    shutil.copy(ROOT / "examples/python_tests/test_hello.py", demo.root)
    files = sorted(path.name for path in demo.root.glob("test_*.py"))
    done = demo.run(*files, "-o", "asyncio_mode=strict", "-W", "error")
    done.assert_outcomes(passed=2 + len(tests))


def test_the_library_example_of_the_readme_works(demo: Project) -> None:
    code = next(c for c in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "bf.run" in c)
    body = "\n".join(f"    {line}" for line in code.splitlines())
    assert "1.0" in run_script(
        demo, f"import asyncio\nasync def main():\n{body}\n    print(result.reward)\nasyncio.run(main())"
    )


def test_the_pages_build_a_site_without_broken_links(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/quickstart/index.html").exists()


def test_the_quick_start_works_as_written(new_project: Callable[..., Project]) -> None:
    project = new_project(ini="[pytest]\n")
    page = (ROOT / "docs/quickstart.md").read_text()
    commands = [line for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    init, green, failing, listing, gated = commands
    words = [str(Path(sys.executable).with_name("bf")), *shlex.split(init)[1:]]
    subprocess.run(words, cwd=project.root, env=project.environment(), check=True, capture_output=True, timeout=60)
    done = project.run(*shlex.split(green)[1:])
    assert done.ret == pytest.ExitCode.OK
    done.stdout.fnmatch_lines(["oracle  1 of 1  100% (21%–100%)  1.00    *"])
    done = project.run(*shlex.split(failing)[1:])
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["reward 0.00 is below 1.00 · jobs/*", "failed answer_exists", "failed answer_is_right"])
    assert (project.root / "report.html").stat().st_size > 50_000
    done = project.run(*shlex.split(listing)[1:], env=KEYS)
    assert done.stdout.str().count("  ready") == 6
    done = project.run(*shlex.split(gated)[1:])
    assert done.ret == pytest.ExitCode.OK
    gate = next(line for line in page.splitlines() if line.startswith("gate passed"))
    assert gate in done.outlines
    assert "gates: passed" in done.outlines


def test_every_command_and_option_that_the_pages_name_exists() -> None:
    pages = {page.name: page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]}
    known = {str(option.option) for option in OPTIONS}
    for name, page in pages.items():
        assert not {*re.findall(r"(?<![\w-])--bf-[a-z-]+[a-z]", page)} - known, name
        for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
            for line in block.splitlines():
                if line.startswith("bf "):
                    words = shlex.split(line.partition(" #")[0].partition(" > ")[0])[1:]
                    make_parser().parse_args(words[: words.index("--")] if "--" in words else words)


def test_the_table_of_failures_is_generated() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (ROOT / "docs/errors.md").read_text().endswith(generate.failures_table())


def test_the_table_of_options_is_generated() -> None:
    assert (ROOT / "docs/options.md").read_text().endswith(markdown_table())


def test_the_published_schema_is_the_models_own() -> None:
    published = json.loads((ROOT / "docs/schemas/report.schema.json").read_text())
    assert published == json.loads(json.dumps(Report.model_json_schema()))


def test_help_shows_every_option(demo: Project) -> None:
    text = demo.run("--help").stdout.str()
    for option in OPTIONS:
        assert str(option.option) in text
        assert not option.ini or f"{option.ini_key} (" in text


def test_the_conftest_recipes_work(project: Project) -> None:
    tasks = project.root / "tasks"
    shutil.copy(ROOT / "examples/conftest_recipes/conftest.py", tasks / "conftest.py")
    config = tasks / "hello-world/task.toml"
    config.write_text(config.read_text().replace('difficulty = "easy"', 'difficulty = "hard"'))
    (tasks / "hello-world/tests/test.sh").write_text("#!/bin/bash\necho 0.9 >/logs/verifier/reward.txt\n")
    (tasks / "hello-world").rename(tasks / "accepted")
    shutil.copytree(ROOT / "tasks/hello-world", tasks / "collect-paged-api")
    (tasks / "collect-paged-api/tests/test.sh").write_text("#!/bin/bash\necho 0 >/logs/verifier/reward.txt\n")
    done = project.run("tasks/accepted", "tasks/collect-paged-api")
    done.assert_outcomes(passed=1, xfailed=1)


def test_the_custom_agent_works(project: Project) -> None:
    shutil.copy(ROOT / "examples/custom_agent/conftest.py", project.root)
    env = {"SHELL_AGENT_COMMAND": "bash -c 'echo \"Hello, world!\" >/app/hello.txt'"}
    project.run("tasks/hello-world", "--bf-agent", "shell", env=env).assert_outcomes(passed=1)


def test_the_workflow_runs_a_command_that_works(demo: Project) -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / "examples/ci/benchmark.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["benchmark"]["steps"] if "pytest tasks" in step.get("run", "")]
    command = steps[0].removeprefix("exec pytest ").replace("${{ matrix.shard }}", "1")
    done = demo.run(*shlex.split(command))
    assert done.ret == pytest.ExitCode.OK
    assert (demo.root / "results.json").exists()


def test_the_python_of_the_library_page_works(demo: Project) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python-api.md").read_text(), re.DOTALL)
    body = "\n".join(f"    {line}" for block in blocks for line in block.splitlines())
    (demo.root / "solve.yaml").write_text("agent: oracle\nsandbox: local\n")
    (demo.root / "job.yaml").write_text("agent: oracle\nsandbox: local\ntasks: tasks\ninclude: hello-world\n")
    script = f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())\n"
    lines = run_script(demo, script)
    assert any(line.startswith("passed 1.0 ") for line in lines)
    assert {"4 of 4, 100.0%, mean reward 1.0", "{'reward': 1.0} 0", "Hello, world!"} <= {*lines}


def test_the_commands_for_authors_work_in_order(new_project: Callable[..., Project]) -> None:
    project = new_project()
    project.write({"shop/main.sh": "echo hi\n"})
    bf = [sys.executable, "-c", "import sys; from pytest_benchflow.cli.main import main; sys.exit(main())"]
    shown = {}
    page = (ROOT / "docs/writing-tasks.md").read_text()
    for command in dict.fromkeys([*author_commands(page), *author_commands(README)]):
        done = subprocess.run(
            [*bf, *shlex.split(command)[1:]],
            cwd=project.root,
            env=project.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        shown[command] = done.stdout
    assert len(shown) > 8
    assert "tasks/shop-refunds  0.00     1.00     ok\n" in shown["bf tasks check --run tasks"]
    assert shown["bf shell tasks/answer -- cat /app/question.txt"] == "What is 6 times 7?\n"
    assert shown["bf shell tasks/answer --sandbox local --solve -- cat answer.txt"] == "42\n"
    assert shown["bf shell tasks/answer --solve --verify -- bf-verify"].endswith("\nreward 1\n")


def author_commands(page: str) -> Iterator[str]:
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        yield from (line.partition("#")[0].strip() for line in block.splitlines() if line.startswith(AUTHORS))


def test_the_manifests_of_the_agents_page_are_valid() -> None:
    page = (ROOT / "docs/agents.md").read_text()
    small, whole = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    assert parse_manifest(small, "small").launch == ("my-agent", "--acp")
    assert parse_manifest(whole, "whole").install.npm == ("my-agent@1.4.2",)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def test_the_rubric_and_the_tables_of_tasks_on_the_pages_are_valid(tmp_path: Path) -> None:
    verifier, rubric = blocks("rewards.md", "toml")
    (hardening,) = blocks("security.md", "toml")
    write_task(tmp_path / "judged", toml=verifier, files={"tests/rubric.toml": rubric, "tests/reference.md": "x\n"})
    write_task(tmp_path / "hardened", toml=hardening)
    judged, hardened = load_task(tmp_path / "judged", strict=True), load_task(tmp_path / "hardened", strict=True)
    assert judged.steps[0].verifier.type == "llm-judge"
    assert judged.steps[0].verifier.rubric is not None
    assert [one.name for one in load_rubric(judged.steps[0].verifier.rubric).criteria][:2] == ["numbers", "clarity"]
    assert hardened.steps[0].verifier.hardening.opt_outs == ["cleanup_conftests"]


def test_the_fixture_and_the_table_of_a_project_on_the_pages_work(project: Project) -> None:
    (fixture,) = blocks("fixtures-and-hooks.md", "python")
    (table,) = blocks("tasks.md", "toml")
    (project.root / "pytest.ini").unlink()
    shutil.copytree(project.root / "tasks/hello-world", project.root / "tasks/slow-one")
    shutil.copytree(project.root / "tasks/hello-world", project.root / "eased/hello-again")
    project.write({"pyproject.toml": f"[tool.pytest.ini_options]\n{table}", "eased/conftest.py": fixture})
    done = project.run("tasks/hello-world", "tasks/slow-one", "eased", "--bf-json=r.json")
    done.assert_outcomes(passed=5)
    rollouts = json.loads((project.root / "r.json").read_text())["rollouts"]
    thresholds = {Path(each["result"]["task_path"]).name: each["result"]["threshold"] for each in rollouts}
    assert thresholds == {"hello-world": 0.9, "slow-one": 0.9, "hello-again": 0.8}


def test_the_agents_page_knows_every_agent_and_provider() -> None:
    page = (ROOT / "docs/agents.md").read_text()
    for manifest in list_agents():
        assert {f"`{word}`" for word in (manifest.name, *manifest.aliases)} & {*re.findall(r"`[^`]+`", page)}
    for name in PROVIDERS:
        assert f"`{name.replace('seed-2-pro', 'seed-2-lite')}`" in page


def test_the_agents_page_lists_every_quirk_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (none|`.*?`) \|", (ROOT / "docs/agents.md").read_text(), re.MULTILINE))
    for name, default in asdict(Quirks()).items():
        assert (None if rows[name] == "none" else json.loads(rows[name].strip("`"))) == (
            [*default] if isinstance(default, tuple) else default
        )


def test_the_files_of_the_scenes_page_load(tmp_path: Path) -> None:
    page = (ROOT / "docs/scenes.md").read_text()
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)):
        path = tmp_path / f"file-{number}.yaml"
        path.write_text(block)
        assert load_rollout_file(path).warnings == ()
    (tmp_path / "patient.py").write_text(next(c for c in re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    assert load_user("patient.py:Patient", tmp_path)


def test_the_scenes_page_lists_every_key() -> None:
    page = (ROOT / "docs/scenes.md").read_text()
    schema = rollout_schema()
    assert not [key for key in schema["properties"] if f"`{key}`" not in page]
