"""What a task may declare, done in a real sandbox: steps, verifier environments, artifacts, networks, native tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from project import SOLVE, Project, write_native_task


def reward_when(condition: str) -> str:
    """Return a test script that gives 1 if a shell condition holds."""
    return f"if {condition}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"


def results(project: Project) -> dict[str, dict[str, object]]:
    """Return the results by task name."""
    return {str(result["task_name"]): result for result in project.results().values()}


def directory_of(project: Project, task: str) -> Path:
    (found,) = [path for path in project.rollout_dirs() if path.name.startswith(f"{task}__")]
    return found


def steps(strategy: str = "", first_min: str = "") -> str:
    return f"""
        {strategy}
        [[steps]]
        name = "one"
        {first_min}
        [[steps]]
        name = "two"
    """


def step_files(first: str, second: str) -> dict[str, str]:
    """Return two steps whose tests give these rewards, and whose second starts with files of its own."""
    return {
        "steps/one/instruction.md": "First.\n",
        "steps/one/tests/test.sh": f"#!/bin/bash\necho {first} > /logs/verifier/reward.txt\n",
        "steps/one/solution/solve.sh": "#!/bin/bash\necho one >> /app/log\n",
        "steps/two/instruction.md": "Second.\n",
        "steps/two/tests/test.sh": f"""\
            #!/bin/bash
            cp /app/log /app/given /app/made /logs/verifier/
            echo {second} > /logs/verifier/reward.txt
            """,
        "steps/two/solution/solve.sh": "#!/bin/bash\nls -A /tests /logs/verifier > /app/left; echo two >> /app/log\n",
        "steps/two/workdir/given": "given\n",
        "steps/two/workdir/setup.sh": "#!/bin/bash\ncat given > made\n",
    }


@pytest.fixture(scope="module")
def ran(new_project: Callable[..., Project]) -> Project:
    """Run one task of every kind."""
    project = new_project()
    shared = {"tests/shared.txt": "from the task\n"}
    project.task("tasks/mean", toml=steps(), files={**step_files("1", "0.5"), **shared}, test=None, solve=None)
    project.task(
        "tasks/final",
        toml=steps('multi_step_reward_strategy = "final"'),
        files=step_files("0.2", "1"),
        test=None,
        solve=None,
    )
    project.task(
        "tasks/stops", toml=steps(first_min="min_reward = 0.5"), files=step_files("0.4", "1"), test=None, solve=None
    )
    project.task(
        "tasks/separate",
        dockerfile="FROM debian\nWORKDIR /app\nRUN mkdir kept && echo old > kept/old.txt\n",
        solve="echo kept > kept.txt; echo lost > lost.txt; rm kept/old.txt; echo new > kept/new.txt",
        toml="""
        artifacts = ["/app/kept.txt", "/app/none.txt", "/app/kept"]
        [verifier]
        environment_mode = "separate"
        [[environment.setup_commands]]
        command = "echo ready > /app/ready"
        """,
        test=reward_when(
            '[ "$(cat /app/kept.txt)" = kept ] && [ ! -e /app/lost.txt ] && [ ! -e /solution ]'
            ' && [ "$(ls /app/kept)" = new.txt ] && [ -e /app/ready ]'
        ),
    )
    project.task(
        "tasks/separate-image",
        solve="echo kept > /app/kept.txt",
        toml="""
        artifacts = ["/app/kept.txt"]
        [[environment.setup_commands]]
        command = "touch /app/of-the-agent"
        [[verifier.environment.setup_commands]]
        command = "touch /app/of-the-verifier"
        [verifier.environment.healthcheck]
        command = "touch /app/healthy"
        """,
        test=reward_when(
            "[ -e /app/kept.txt ] && [ -e /baked ] && [ -e /app/of-the-verifier ] && [ ! -e /app/of-the-agent ]"
            " && [ -e /app/healthy ]"
        ),
        files={"tests/Dockerfile": "FROM debian\nWORKDIR /app\nCOPY . /tests\nRUN touch /baked\n"},
    )
    project.task(
        "tasks/artifacts",
        solve="""
        mkdir -p out/deep; echo a > out/a.txt; echo b > out/deep/b.log
        echo log > /logs/artifacts/own.txt; echo done > done.txt
        """,
        toml="""
        [[artifacts]]
        source = "out"
        destination = "mine"
        exclude = ["*.log"]
        [[artifacts]]
        source = "/app/none"
        [[verifier.collect]]
        command = "echo collected > /logs/artifacts/collected.txt"
        [[verifier.collect]]
        command = "exit 9"
        """,
    )
    project.task(
        "tasks/environment",
        toml="""
        [environment]
        workdir = "/work"
        [environment.env]
        FROM_HOST = "${BENCHFLOW_WORD}"
        DEFAULTED = "${BENCHFLOW_UNSET:-fallback}"
        LITERAL = "$HOME stays"
        [verifier.env]
        CHECK = "${BENCHFLOW_WORD}"
        [solution.env]
        SOLVING = "${BENCHFLOW_WORD}"
        """,
        solve='echo "$FROM_HOST|$DEFAULTED|$LITERAL|$SOLVING|$CHECK|$PWD" > /tmp/said',
        test=reward_when(
            '[ "$(cat /tmp/said)" = "word|fallback|\\$HOME stays|word||/work" ]'
            ' && [ "$CHECK" = word ] && [ "$PWD" = /work ]'
        ),
    )
    project.task(
        "tasks/dockerfile",
        dockerfile="FROM debian\nENV GREETING=hello\nWORKDIR /srv/app\nCOPY data.txt ./\nRUN echo built > built.txt\n",
        files={"environment/data.txt": "data\n"},
        solve="cat data.txt built.txt > all.txt; echo $GREETING >> all.txt",
        test=reward_when("[ \"$(tr '\\n' ' ' < /srv/app/all.txt)\" = 'data built hello ' ]"),
    )
    project.task(
        "tasks/offline",
        toml='[environment]\nnetwork_mode = "no-network"\n',
        solve="""
        tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' > /app/nets
        (exec 3<>/dev/tcp/1.1.1.1/53) 2>/dev/null && touch /app/reached; true
        """,
        test=reward_when('[ "$(cat /app/nets)" = lo ] && [ ! -e /app/reached ]'),
    )
    project.task(
        "tasks/hidden",
        solve="ls / /logs/verifier > /app/seen",
        test=reward_when("! grep -qx tests /app/seen && ! grep -q reward /app/seen && [ -e /tests/test.sh ]"),
    )
    project.task(
        "tasks/cheats",
        solve="cd /logs/verifier; echo 1 | tee reward.txt .reward; touch '-rf' {1..1200}; ln -s /app/mine link",
        test="ls -A /logs/verifier > /logs/verifier/left",
    )
    project.task("tasks/modeless", solve="/solution/part", files={"solution/part": f"#!/bin/bash\n{SOLVE}\n"})
    (project.root / "tasks/modeless/solution/solve.sh").chmod(0o644)
    project.task(
        "tasks/healthy",
        toml="""
        [environment.healthcheck]
        command = "test -e /tmp/up || { touch /tmp/up; false; }"
        interval_sec = 0.05
        """,
    )
    project.task(
        "tasks/prepared",
        toml='[[environment.setup_commands]]\ncommand = "echo ready > /app/ready"\n',
        solve="cp /app/ready /app/done.txt",
    )
    project.task(
        "tasks/canary",
        instruction="<!-- canary 1234 -->\n\nThe real text.\n",
        solve="cp /instruction.md done.txt",
        test=reward_when('[ "$(cat /app/done.txt)" = "The real text." ]'),
    )
    project.task(
        "tasks/ignoring",
        solve="ls -A /solution > /app/seen",
        test=reward_when('[ "$(ls -A /tests /app; cat /app/seen)" = "$(cat /tests/expected)" ]'),
        files={
            ".harborignore": "*.md\n",
            "tests/.harborignore": "data/\n",
            "tests/data/big.bin": "big\n",
            "tests/expected": "/app:\nseen\n\n/tests:\nexpected\ntest.sh\nsolve.sh\n",
            "solution/notes.md": "notes\n",
        },
    )
    write_native_task(project.root / "tasks/native", front="agent:\n  timeout_sec: 60\n")
    broken = {**step_files("1", "1"), "steps/two/workdir/setup.sh": "#!/bin/bash\necho broken >&2; exit 4\n"}
    project.task("tasks/bad-step", toml=steps(), files=broken, test=None, solve=None)
    project.task("tasks/bad-setup", toml='[[environment.setup_commands]]\ncommand = "echo unset >&2; exit 5"\n')
    only = {name: text for name, text in step_files("0.5", "1").items() if "/one/" in name}
    project.task("tasks/single", toml='[[steps]]\nname = "one"\n', files=only, test=None, solve=None)
    laid_over = {
        **step_files("1", "1"),
        "tests/helper.sh": "echo task > /tmp/helper\n",
        "tests/common.sh": "echo 1 > /logs/verifier/reward.txt\n",
        "steps/one/tests/test.sh": """\
            #!/bin/bash
            . /tests/common.sh; . /tests/helper.sh
            grep -q step /tmp/helper || echo 0 > /logs/verifier/reward.txt
            """,
        "steps/one/tests/helper.sh": "echo step > /tmp/helper\n",
        # Between steps the agent sees neither tests nor rewards.
        "steps/two/tests/test.sh": (
            "#!/bin/bash\n"
            "if [ \"$(tr -d '\\n' < /app/left)\" = '/logs/verifier:/tests:' ]; then echo 1; else cat /app/left; echo 0;"
            " fi > /logs/verifier/reward.txt\n"
        ),
    }
    project.task("tasks/laid-over", toml=steps(), files=laid_over, test=None, solve=None)
    done = project.run("tasks", "--bf-agent-timeout=60", env={"BENCHFLOW_WORD": "word"})
    project.write({"output.txt": done.stdout.str()})
    return project


@pytest.mark.parametrize(
    "task",
    [
        "separate",
        "separate-image",
        "artifacts",
        "environment",
        "dockerfile",
        "offline",
        "hidden",
        "healthy",
        "prepared",
        "canary",
        "ignoring",
        "modeless",
        "native",
        "final",
        "laid-over",
    ],
)
def test_the_oracle_passes(ran: Project, task: str) -> None:
    result = results(ran)[task]
    assert result["error"] is None
    assert result["reward"] == 1.0


def test_steps_are_worth_their_mean(ran: Project) -> None:
    assert results(ran)["mean"]["reward"] == 0.75


def test_a_step_below_its_minimum_ends_the_task(ran: Project) -> None:
    result = results(ran)["stops"]
    assert result["reward"] == pytest.approx(0.4)
    assert [step["name"] for step in result["steps"]] == ["one"]
    assert not (directory_of(ran, "stops") / "steps/two").exists()


def test_every_step_is_recorded(ran: Project) -> None:
    result = results(ran)["mean"]
    assert [(step["name"], step["rewards"], step["agent_outcome"]) for step in result["steps"]] == [
        ("one", {"reward": 1.0}, "completed"),
        ("two", {"reward": 0.5}, "completed"),
    ]
    assert result["n_prompts"] == 2


def test_every_step_has_its_own_files_on_disk(ran: Project) -> None:
    directory = directory_of(ran, "mean")
    for step in ("one", "two"):
        assert (directory / f"steps/{step}/verifier/reward.txt").exists()
        assert (directory / f"steps/{step}/verifier/test-stdout.txt").exists()
        assert (directory / f"steps/{step}/agent/oracle.txt").exists()
    assert not (directory / "verifier").exists()


def test_every_step_gets_its_own_prompt(ran: Project) -> None:
    assert json.loads((directory_of(ran, "mean") / "prompts.json").read_text()) == ["First.\n", "Second.\n"]


def test_events_of_a_step_carry_its_name(ran: Project) -> None:
    lines = (directory_of(ran, "mean") / "trajectory/acp_trajectory.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == ["one", "two"]


def test_the_workspace_goes_on_and_a_step_brings_its_own_files(ran: Project) -> None:
    verifier = directory_of(ran, "mean") / "steps/two/verifier"
    assert (verifier / "log").read_text() == "one\ntwo\n"
    assert (verifier / "given").read_text() == "given\n"
    assert (verifier / "made").read_text() == "given\n"


def test_artifacts_are_kept_with_a_manifest(ran: Project) -> None:
    artifacts = directory_of(ran, "artifacts") / "artifacts"
    assert (artifacts / "mine/a.txt").read_text() == "a\n"
    assert not (artifacts / "mine/deep/b.log").exists()
    assert (artifacts / "logs/artifacts/own.txt").read_text() == "log\n"
    manifest = json.loads((artifacts / "manifest.json").read_text())
    assert {entry["source"]: entry["status"] for entry in manifest} == {
        "/logs/artifacts": "ok",
        "/app/out": "ok",
        "/app/none": "empty",
    }


def test_collect_hooks_run_before_artifacts_and_a_failing_one_is_not_fatal(ran: Project) -> None:
    artifacts = directory_of(ran, "artifacts") / "artifacts"
    assert (artifacts / "logs/artifacts/collected.txt").read_text() == "collected\n"


def test_a_reward_that_the_agent_wrote_does_not_count(ran: Project) -> None:
    result = results(ran)["cheats"]
    assert result["reward"] is None
    assert result["error"]["category"] == "reward"
    left = (directory_of(ran, "cheats") / "verifier/left").read_text()
    assert set(left.split()) == {"left", "test-stdout.txt"}


def test_the_solution_is_not_there_for_other_agents(project: Project) -> None:
    project.task("tasks/one", test=reward_when("[ ! -e /solution ] && [ ! -e /oracle ]"))
    project.run("tasks", "--bf-agent=nop").assert_outcomes(passed=1)


def test_a_failing_setup_script_of_a_step_is_an_error(ran: Project) -> None:
    result = results(ran)["bad-step"]
    assert result["reward"] is None
    assert [step["name"] for step in result["steps"]] == ["one"]
    assert re.search(r"setup\.sh.*status 4.*broken", (ran.root / "output.txt").read_text())


def test_a_failing_setup_command_is_an_error(ran: Project) -> None:
    assert re.search(r"sandbox error in start.*status 5: unset", (ran.root / "output.txt").read_text())
    assert results(ran)["bad-setup"]["reward"] is None


def test_a_single_step_counts_like_a_task(ran: Project) -> None:
    assert results(ran)["single"]["reward"] == 0.5
    assert (directory_of(ran, "single") / "steps/one/verifier/reward.txt").exists()


def test_a_build_file_that_the_solution_changes_stays_changed(project: Project) -> None:
    makefile = "check:\n\tfalse\n"
    dockerfile = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY Makefile .\n"
    test = reward_when("grep -q true /app/Makefile")
    parts = {"dockerfile": dockerfile, "test": test, "files": {"environment/Makefile": makefile}}
    project.task("tasks/asked", solve="sed -i s/false/true/ /app/Makefile", **parts)
    project.task("tasks/unasked", solve="cd /app; for f in M*; do sed -i s/false/true/ $f; done", **parts)
    project.run("tasks", "--bf-json=r.json").assert_outcomes(passed=1, failed=1)
    assert {name: result["reward"] for name, result in results(project).items()} == {"asked": 1.0, "unasked": 0.0}
