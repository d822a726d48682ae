"""Scenes, roles, users and rollout files, as a user of pytest sees them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from bots import BOTS
from project import INI, Project, properties, write_native_task

SOLVE = "RUN: echo done > done.txt"


def events(project: Project, kind: str) -> list[dict[str, object]]:
    """Return the events of one kind of the only rollout."""
    text = (project.rollout_dir() / "trajectory" / "acp_trajectory.jsonl").read_text()
    return [event for event in map(json.loads, text.splitlines()) if event["type"] == kind]


def scene_yaml(*turns: tuple[str, str], roles: str = "", more: str = "", name: str = "review-loop") -> str:
    """Write a rollout file of one scene."""
    names = dict.fromkeys(role for role, _ in turns)
    listed = roles or "\n".join(f"      - {{name: {role}, agent: bot}}" for role in names)
    said = "\n".join(f"      - {{role: {role}, prompt: {json.dumps(text)}}}" for role, text in turns)
    return f"name: {name}\nscenes:\n  - name: work\n    roles:\n{listed}\n    turns:\n{said}\n{more}"


@pytest.fixture
def bots(project: Project) -> Project:
    project.write({"conftest.py": BOTS})
    project.task("tasks/one")
    return project


@pytest.fixture(scope="module")
def played(new_project: Callable[..., Project]) -> Project:
    project = new_project()
    project.write({"conftest.py": BOTS})
    project.task("tasks/one")
    turns = [
        ("coder", "RUN: id -un > who.txt; stat -c %U . home.txt 2>/dev/null; echo $BOT_MODEL"),
        ("coder", SOLVE),
        ("reviewer", "RUN: cat who.txt; id -un; ls /root; echo x > mine.txt"),
        ("coder", "RUN: ls -A /tests /solution; echo again > again.txt"),
    ]
    roles = (
        "      - {name: coder, agent: bot, model: m-1}\n"
        "      - {name: reviewer, agent: other-bot, capabilities: [read-only]}"
    )
    project.write({"scenes/review.yaml": scene_yaml(*turns, roles=roles)})
    project.run("tasks", "--bf-scene", "review", "--bf-json=r.json", "--junitxml=r.xml").assert_outcomes(passed=1)
    return project


def test_a_role_keeps_its_session_until_another_one_takes_over(played: Project) -> None:
    sessions = [event["session"] for event in events(played, "user_message")]
    assert sessions == [1, 1, 2, 3]
    assert [event["session"] for event in events(played, "closed")] == [1, 2, 3]


def test_events_say_scene_role_and_turn(played: Project) -> None:
    places = [(event["scene"], event["role"], event["turn"]) for event in events(played, "user_message")]
    assert places == [("work", "coder", 1), ("work", "coder", 2), ("work", "reviewer", 3), ("work", "coder", 4)]


def test_agents_run_as_the_sandbox_user_and_own_the_workspace(played: Project) -> None:
    first, solved, *_ = events(played, "tool_call")
    assert (solved["status"], solved["content"]) == ("0", "")
    assert "m-1" in str(first["content"])


def test_a_read_only_role_is_another_user_who_cannot_write(played: Project) -> None:
    seen = events(played, "tool_call")[2]
    lines = str(seen["content"]).splitlines()
    assert lines[:2] == ["agent", "agent-reader"]
    assert seen["status"] != "0"
    assert "ermission denied" in str(seen["content"])


def test_tests_and_solution_are_not_there_while_agents_work(played: Project) -> None:
    listing = str(events(played, "tool_call")[3]["content"])
    assert "test.sh" not in listing
    assert "solve.sh" not in listing


def test_every_model_that_answered_is_in_result_report_and_junit(played: Project) -> None:
    (result,) = played.results().values()
    assert (result["model"], result["models"]) == ("m-1", ["m-1", "own"])
    (entry,) = json.loads((played.root / "r.json").read_text())["rollouts"]
    assert entry["result"]["models"] == ["m-1", "own"]
    (case,) = ET.parse(played.root / "r.xml").iter("testcase")
    assert properties(case)["bf_models"] == "m-1, own"


def test_the_result_counts_prompts_tools_and_tokens(played: Project) -> None:
    (result,) = played.results().values()
    assert (result["n_prompts"], result["n_tool_calls"], result["scene"]) == (4, 4, "review-loop")
    assert result["tokens"] == {"input": 40, "output": 8, "cached": None}
    assert (result["agent"], result["model"], result["agent_name"]) == ("bot", "m-1", "Bot")


def test_reports_have_a_scene_column(played: Project) -> None:
    import xml.etree.ElementTree as ET

    report = json.loads((played.root / "r.json").read_text())
    assert [group["scene"] for group in report["summary"]] == ["review-loop"]
    (case,) = ET.parse(played.root / "r.xml").iter("testcase")
    assert properties(case)["bf_scene"] == "review-loop"


def test_scenes_are_an_axis_of_ids_and_markers(bots: Project) -> None:
    bots.write(
        {
            "a.yaml": "name: plain\nprompts: ['Hello']\n",
            "b.yaml": scene_yaml(("one", "Hi"), roles="      - {name: one}", name="solo"),
            "c.yaml": scene_yaml(("one", "Hi"), name="pinned"),
        }
    )
    args = ["tasks", "--bf-agent=bot,other-bot"]
    for name in "abc":
        args += ["--bf-scene", f"{name}.yaml"]
    file = "tasks/one/task.toml::"
    assert bots.ids(*args) == [
        f"{file}bot/plain",
        f"{file}bot/solo",
        f"{file}other-bot/plain",
        f"{file}other-bot/solo",
        f"{file}bot/pinned",
    ]
    assert bots.ids(*args, "-m", "bf(scene='solo')") == [f"{file}bot/solo", f"{file}other-bot/solo"]
    assert bots.ids(*args, "-m", "bf(scene='pinned')") == [f"{file}bot/pinned"]


def test_a_selftest_pays_for_nobody(bots: Project) -> None:
    scene = scene_yaml(("one", "Hi"), name="pinned")
    bots.write({"s.yaml": scene, "job.yaml": f"tasks: tasks\n{scene}", "pytest.ini": f"{INI}bf_scene = s.yaml\n"})
    free = ["tasks/one/task.toml::nop", "tasks/one/task.toml::oracle"]
    assert bots.ids("tasks", "--bf-selftest") == free
    done = bots.run("--bf-selftest", "--bf-config=job.yaml", "-v")
    done.assert_outcomes(passed=2)
    assert {result["agent"] for result in bots.results().values()} == {"nop", "oracle"}


def test_one_scene_is_no_part_of_the_id(bots: Project) -> None:
    bots.write({"a.yaml": "name: plain\nprompts: ['Hello']\n"})
    assert bots.ids("tasks", "--bf-agent=bot", "--bf-scene=a.yaml") == ["tasks/one/task.toml::bot"]


def test_a_crash_in_the_middle_is_recorded_and_the_workspace_verified(bots: Project) -> None:
    turns = [("coder", SOLVE), ("coder", "CRASH"), ("coder", "RUN: rm done.txt")]
    bots.write({"s.yaml": scene_yaml(*turns)})
    bots.run("tasks", "--bf-scene=s.yaml").assert_outcomes(passed=1)
    (result,) = bots.results().values()
    assert (result["agent_outcome"], result["agent_detail"], result["reward"]) == ("crashed", "exit status 1", 1.0)
    assert [event["text"] for event in events(bots, "user_message")] == [SOLVE, "CRASH"]


def test_prompts_on_the_command_line_are_turns_of_one_session(bots: Project) -> None:
    done = bots.run("tasks", "--bf-agent=bot", "--bf-prompt=@instruction", f"--bf-prompt={SOLVE}")
    done.assert_outcomes(passed=1)
    asked = events(bots, "user_message")
    assert [event["text"] for event in asked] == ["Make done.txt.\n", SOLVE]
    assert {event["session"] for event in asked} == {1}
    assert json.loads((bots.rollout_dir() / "prompts.json").read_text()) == ["Make done.txt.\n", SOLVE]


def test_root_can_be_asked_for(bots: Project) -> None:
    bots.run("tasks", "--bf-agent=bot", "--bf-sandbox-user=none", "--bf-prompt=RUN: id -un").assert_outcomes(failed=1)
    assert events(bots, "tool_call")[0]["content"] == "root\n"


def test_files_that_a_later_step_brings_belong_to_the_agent(bots: Project) -> None:
    score = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
    files = {
        "steps/one/instruction.md": "RUN: echo first\n",
        "steps/two/instruction.md": "RUN: echo more >> deep/given && cat deep/given made\n",
        "steps/two/workdir/deep/given": "given\n",
        "steps/two/workdir/setup.sh": "#!/bin/bash\necho made > made\n",
        "tests/test.sh": score,
    }
    bots.task("steps/one", toml='[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n', files=files, solve=None)
    bots.run("steps", "--bf-agent=bot").assert_outcomes(passed=1)
    assert [(event["status"], event["content"]) for event in events(bots, "tool_call")] == [
        ("0", "first\n"),
        ("0", "given\nmore\nmade\n"),
    ]


USER = """
from pytest_benchflow.rollout import BaseUser


class Patient(BaseUser):
    async def setup(self, instruction, solution=None):
        self.solution = solution

    async def run(self, round, instruction, round_result=None):
        if round == 0:
            return "RUN: ls -A /tests /solution /logs/verifier; echo half > half.txt"
        if round_result.rewards["reward"] == 1.0:
            return None
        assert "looked" in round_result.verifier_output
        return "RUN: " + self.solution.splitlines()[-1]
"""


def test_a_user_talks_in_rounds_and_sees_the_verifiers_output(bots: Project) -> None:
    bots.task(
        "tasks/one", test="echo looked\nif [ -e done.txt ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt"
    )
    bots.write(
        {
            "people.py": USER,
            "s.yaml": "name: patient\nuser: {object: 'people:Patient', max_rounds: 4, oracle_access: true}\n",
        }
    )
    bots.run("tasks", "--bf-agent=bot", "--bf-scene=s.yaml").assert_outcomes(passed=1)
    rounds = [json.loads(line) for line in (bots.rollout_dir() / "user_rounds.jsonl").read_text().splitlines()]
    assert [(row["round"], row["rewards"]) for row in rounds] == [(0, {"reward": 0.0}), (1, {"reward": 1.0})]
    assert [event["session"] for event in events(bots, "user_message")] == [1, 2]
    assert "test.sh" not in str(events(bots, "tool_call")[0]["content"])


def test_a_user_that_a_task_describes_is_refused_unless_another_one_comes(project: Project) -> None:
    project.write({"conftest.py": BOTS})
    write_native_task(project.root / "tasks/one", front="user: {model: scripted}\n")
    done = project.run("tasks", "--bf-agent=bot,oracle")
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*task.md: user: describes a simulated user, which is not played here*"])
    project.run("tasks", "--bf-agent=bot", f"--bf-prompt={SOLVE}").assert_outcomes(passed=1)


def test_verify_retry_sends_the_agent_back(bots: Project) -> None:
    bots.write({"s.yaml": "name: again\nloop_strategy: 'verify-retry:k=2'\n"})
    bots.task("tasks/one", instruction="RUN: [ -e one.txt ] && echo done > done.txt; touch one.txt\n")
    bots.run("tasks", "--bf-agent=bot", "--bf-scene=s.yaml").assert_outcomes(passed=1)
    report = json.loads((bots.rollout_dir() / "loop.json").read_text())
    assert (report["iterations_run"], report["stop_reason"], report["first_pass_iteration"]) == (2, "passed_bar", 1)


def test_the_outbox_brings_messages_to_the_next_prompt_of_their_recipient(bots: Project) -> None:
    letter = json.dumps({"to": "coder", "content": "use tabs"})
    turns = [
        ("reviewer", f"RUN: echo '{letter}' > /app/.outbox/coder.json; echo x > /app/.outbox/bad.json"),
        ("coder", SOLVE),
    ]
    bots.write({"s.yaml": scene_yaml(*turns)})
    bots.run("tasks", "--bf-scene=s.yaml").assert_outcomes(passed=1)
    _, told = events(bots, "user_message")
    assert "use tabs" in str(told["text"])
    (result,) = bots.results().values()
    assert any("bad.json" in note for note in result["notes"])
    (message,) = (bots.rollout_dir() / "scene_messages.jsonl").read_text().splitlines()
    assert json.loads(message)["recipient"] == "coder"


def test_a_secret_is_in_no_file_of_the_run(bots: Project) -> None:
    secret = "sk-very-secret-value-1234"
    prompt = "RUN: echo $BOT_KEY; echo $BOT_KEY > /logs/agent/log.txt; echo $BOT_KEY > /logs/artifacts/leaked.txt"
    bots.run(
        "tasks",
        "--bf-agent=bot",
        f"--bf-prompt={prompt}",
        f"--bf-agent-env=BOT_KEY={secret}",
        "--bf-json=r.json",
        "--junitxml=r.xml",
    ).assert_outcomes(failed=1)
    held = [path for path in bots.root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert held == []
    assert "[secret]" in str(events(bots, "tool_call")[0]["content"])
    assert (bots.rollout_dir() / "agent" / "log.txt").read_bytes() == b"*" * len(secret) + b"\n"


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one-process", "two-workers"])
def test_missing_credentials_of_all_items_are_one_error_before_anything_starts(
    bots: Project, workers: tuple[str, ...]
) -> None:
    bots.task("tasks/two")
    bots.write({"r.json": "of yesterday"})
    done = bots.run("tasks", "--bf-agent=paid-bot,bot", "--bf-model=paid-bot=x", "--bf-json=r.json", *workers)
    assert (bots.root / "r.json").read_text() == "of yesterday"
    assert done.ret == pytest.ExitCode.USAGE_ERROR or workers
    said = done.stdout.str() + done.stderr.str()
    assert said.count("BOT_KEY required but not set") == 1
    assert "--bf-missing-credentials skip" in said
    assert not (bots.root / "jobs").exists()


def test_missing_credentials_can_be_a_reason_to_skip(bots: Project) -> None:
    done = bots.run("tasks", "--bf-agent=paid-bot,bot", "--bf-missing-credentials=skip", f"--bf-prompt={SOLVE}", "-rs")
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["*BOT_KEY required but not set*"])


def test_a_dry_run_says_what_is_missing(bots: Project) -> None:
    done = bots.run("tasks", "--bf-agent=paid-bot,bot", "--bf-dry-run")
    done.stdout.fnmatch_lines(["*::paid-bot  BOT_KEY required but not set*", "*::bot  ready"])


def test_a_job_file_brings_tasks_agents_and_settings(bots: Project) -> None:
    bots.task("tasks/two")
    bots.write(
        {
            "ci/job.yaml": f"""
            job_name: nightly
            source: ../tasks
            agent: bot
            prompts: ["{SOLVE}"]
            exclude: [two]
            threshold: 0.5
            retry: 2
            build_concurrency: 3
            """
        }
    )
    done = bots.run("--bf-config=ci/job.yaml")
    done.assert_outcomes(passed=1, deselected=1)
    done.stdout.fnmatch_lines(["note: ci/job.yaml:*: build_concurrency has no effect; *"])
    (result,) = bots.results("nightly").values()
    assert (result["agent"], result["threshold"], result["scene"]) == ("bot", 0.5, None)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--bf-scene=nothing"], "*--bf-scene 'nothing': there is no such file*"),
        (["--bf-config=nothing.yaml"], "*--bf-config: *nothing.yaml is not a file*"),
        (["--bf-scene=pinned.yaml", "--bf-agent=nop"], "*--bf-agent has no effect, because 'pinned' says who plays*"),
        (
            ["--bf-scene=pinned.yaml", "--bf-prompt=x"],
            "*--bf-prompt has no effect, because 'pinned' says what is told*",
        ),
        (["--bf-selftest", "--bf-agent=bot"], "*--bf-selftest runs nop and oracle; take --bf-agent away*"),
    ],
)
def test_bad_input_is_one_message(bots: Project, args: list[str], said: str) -> None:
    bots.write({"pinned.yaml": scene_yaml(("one", "Hi"), name="pinned")})
    done = bots.run("tasks", *args)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([said])


SKILL = "---\nname: tabs\ndescription: Use tabs.\n---\nUse tabs.\n"


def test_skills_are_there_for_the_role_that_has_them_and_gone_for_the_next(bots: Project) -> None:
    # An agent keeps its own files beside its skills: the directories on the way belong to its user.
    look = "RUN: touch ~/.bot/state && cat ~/.bot/skills/tabs/SKILL.md"
    roles = "      - {name: taught, agent: bot, skills_dir: skills}\n      - {name: untaught, agent: bot}"
    turns = [("taught", look), ("untaught", look)]
    bots.write({"skills/tabs/SKILL.md": SKILL, "s.yaml": scene_yaml(*turns, roles=roles)})
    bots.run("tasks", "--bf-scene=s.yaml").assert_outcomes(failed=1)
    first, second = events(bots, "tool_call")
    assert "Use tabs." in str(first["content"])
    assert "SKILL.md" in str(second["content"])
    assert second["status"] != "0"


def test_an_agent_that_breaks_the_environment_between_turns_has_failed(bots: Project) -> None:
    harm = "RUN: rm -f /bin/bash /usr/bin/bash"
    roles = "      - {name: coder, agent: bot}\n      - {name: other, agent: other-bot}"
    bots.write({"scenes/harm.yaml": scene_yaml(("coder", harm), ("other", SOLVE), roles=roles, name="harm")})
    options = ("--bf-scene=harm", "--bf-sandbox-user=none", "--bf-retries=0", "--bf-sandbox=local")
    bots.run("tasks", *options).assert_outcomes(failed=1)
    (result,) = bots.results().values()
    assert (result["reward"], result["error"]) == (0.0, None)
    assert "left an environment that nothing can work in" in str(result["agent_detail"])
