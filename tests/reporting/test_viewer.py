"""What `bf view` gives, and to whom."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from jobs.results import result, write_result

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.jobs import JobEvent, Ledger
from pytest_benchflow.reporting.viewer.server import ViewerServer


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Two jobs, and things beside them that are none."""
    for job, reward in (("monday", 1.0), ("tuesday", 0.0)):
        directory = tmp_path / "jobs" / job / "hello__1"
        write_result(directory, result(reward=reward, rollout_dir="/etc"))
        (directory / "trajectory").mkdir()
        (directory / "trajectory/acp_trajectory.jsonl").write_text(f'{{"type": "agent_message", "text": "{job}"}}\n')
    (tmp_path / "jobs/notes").mkdir()
    write_result(tmp_path / "secret/hello__1", result("secret"))
    (tmp_path / "jobs/link").symlink_to(tmp_path / "secret")
    return tmp_path / "jobs"


@pytest.fixture
def server(jobs: Path) -> Iterator[ViewerServer]:
    with running(jobs) as server:
        yield server


class running:
    """A viewer of a directory, in a thread."""

    def __init__(self, directory: Path) -> None:
        self.server = ViewerServer(directory, 0)

    def __enter__(self) -> ViewerServer:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self.server

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def get(server: ViewerServer, path: str, *, method: str = "GET", host: str | None = None) -> tuple[int, str]:
    """Return status and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def data(server: ViewerServer, path: str) -> dict[str, object]:
    status, body = get(server, path)
    assert status == 200, body
    answer = json.loads(body)
    assert isinstance(answer, dict)
    return answer


def test_jobs_are_listed_and_each_has_its_page_and_rollouts(server: ViewerServer) -> None:
    assert "<!doctype html>" in get(server, "/")[1]
    jobs = data(server, "/overview.json")["jobs"]
    assert isinstance(jobs, list)
    assert sorted((job["name"], job["passed"], job["href"]) for job in jobs) == [
        ("monday", 1, "job/monday/"),
        ("tuesday", 0, "job/tuesday/"),
    ]
    overview = data(server, "/job/monday/overview.json")
    (row,) = overview["rollouts"]  # type: ignore[misc]
    assert (row["task"], row["status"], overview["title"], overview["up"]) == ("hello", "passed", "monday", "../../")
    rollout = data(server, f"/job/monday/rollout.json?id={quote(row['id'], safe='')}")
    assert rollout["events"] == [{"type": "agent_message", "text": "monday"}]


def test_a_directory_that_is_a_job_is_shown_by_itself(jobs: Path) -> None:
    with running(jobs / "monday") as server:
        overview = data(server, "/overview.json")
        assert (overview["title"], overview["up"]) == ("monday", None)


@pytest.mark.parametrize(
    "path",
    [
        "/job/link/overview.json",
        "/job/../overview.json",
        "/job/%2e%2e/overview.json",
        "/job/..%2fsecret/overview.json",
        "/job/%2fetc/overview.json",
        "/job/notes/overview.json",
        "/job/monday/rollout.json?id=../../secret",
        "/job/monday/result.json",
        "/job/monday/x/overview.json",
        "/etc/passwd",
        "//etc/passwd",
    ],
)
def test_nothing_outside_the_jobs_is_given(server: ViewerServer, path: str) -> None:
    status, body = get(server, path)
    assert status == 404
    assert "secret" not in body


def test_a_rollout_that_claims_to_be_elsewhere_is_read_where_it_is(server: ViewerServer, jobs: Path) -> None:
    (jobs / "monday/hello__1/verifier").symlink_to(jobs.parent)
    (jobs.parent / "test-stdout.txt").write_text("secret")
    row = data(server, "/job/monday/overview.json")["rollouts"][0]  # type: ignore[index]
    rollout = data(server, f"/job/monday/rollout.json?id={quote(row['id'], safe='')}")
    assert rollout["verifier"] is None
    assert rollout["result"]["rollout_dir"] == str(jobs / "monday/hello__1")  # type: ignore[index]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_page_that_got_here_by_another_name_learns_nothing(server: ViewerServer, host: str) -> None:
    status, body = get(server, "/overview.json", host=host.format(port=server.server_port) or " ")
    assert (status, "monday" in body) == (421, False)
    assert get(server, "/overview.json", host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server: ViewerServer, method: str) -> None:
    assert get(server, "/overview.json", method=method)[0] == 501


def test_a_rollout_that_runs_is_shown_with_what_it_has_done_so_far(server: ViewerServer, jobs: Path) -> None:
    ledger = Ledger(jobs / "monday")
    ledger.begin(2)
    start = JobEvent(kind="start", ts=1.0, key="later", task="later", agent="gemini", sandbox="local", attempt=1)
    ledger.append(start)
    ledger.append(JobEvent(kind="phase", ts=2.0, key="later", phase="execute", rollout="later__2"))
    write_result(jobs / "monday/later__2", result("later")).rename(jobs / "monday/later__2/config.json")
    (jobs / "monday/later__2/trajectory").mkdir()
    (jobs / "monday/later__2/trajectory/acp_trajectory.jsonl").write_text('{"type": "a"}\n{"type": "half')
    overview = data(server, "/job/monday/overview.json")
    assert [(row["task"], row["status"]) for row in overview["rollouts"]] == [  # type: ignore[attr-defined]
        ("hello", "passed"),
        ("later", "running"),
    ]
    assert overview["running"] == 1
    assert data(server, "/job/monday/rollout.json?id=later")["events"] == [{"type": "a"}]
    write_result(jobs / "monday/later__2", result("later", key="later"))
    ledger.append(JobEvent(kind="end", ts=3.0, key="later", status="passed"))
    ledger.close()
    overview = data(server, "/job/monday/overview.json")
    assert [row["status"] for row in overview["rollouts"]] == ["passed", "passed"]  # type: ignore[attr-defined]


def test_what_a_killed_run_left_does_not_run(server: ViewerServer, jobs: Path) -> None:
    events: list[dict[str, object]] = [
        {"kind": "begin", "ts": 1.0, "total": 1, "host": socket.gethostname(), "pid": 2**22 + 1},
        {"kind": "start", "ts": 1.0, "key": "later", "task": "later"},
    ]
    (jobs / "monday/ledger.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert data(server, "/job/monday/overview.json")["running"] == 0


def test_a_change_is_told_to_everybody_who_looks(server: ViewerServer, jobs: Path) -> None:
    state = quote(str(data(server, "/job/monday/overview.json")["state"]))
    streams = []
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        connection.request(
            "GET", f"/job/monday/changes?state={state}", headers={"Host": f"localhost:{server.server_port}"}
        )
        stream = connection.getresponse()
        assert stream.readline() == b"retry: 2000\n"
        streams.append((connection, stream))
    ledger = Ledger(jobs / "monday")
    ledger.begin(1)
    ledger.close()
    for connection, stream in streams:
        assert [stream.readline() for _ in range(2)][1] == b"event: change\n"
        stream.close()
        connection.close()


def test_what_cannot_be_served_is_said_in_one_sentence(server: ViewerServer, jobs: Path) -> None:
    with pytest.raises(UsageError, match=f"port {server.server_port} cannot be used: Address already in use; choose"):
        ViewerServer(jobs, server.server_port)
    with pytest.raises(UsageError, match="is not a directory"):
        ViewerServer(jobs / "none", 0)
