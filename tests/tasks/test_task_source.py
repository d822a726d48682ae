"""`--bf-source`: parsing, cloning from local repositories, refreshing, and what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_benchflow.tasks import SourceError, SourceSpec, fetch_source, parse_source
from pytest_benchflow.tasks.git_source import Git, GitFailed

SHA = "0123456789abcdef0123456789abcdef01234567"
PARSED = [
    ("org/repo", ("https://github.com/org/repo.git", None, "")),
    ("org/repo@main", ("https://github.com/org/repo.git", "main", "")),
    ("org/repo:tasks/easy", ("https://github.com/org/repo.git", None, "tasks/easy")),
    ("org/repo@v1.0:tasks/", ("https://github.com/org/repo.git", "v1.0", "tasks")),
    ("org/repo@feature/x:a//b/./c", ("https://github.com/org/repo.git", "feature/x", "a/b/c")),
    (f"org/repo@{SHA}", ("https://github.com/org/repo.git", SHA, "")),
    ("org/repo:.", ("https://github.com/org/repo.git", None, "")),
    ("https://host.org/a/b.git", ("https://host.org/a/b.git", None, "")),
    ("https://host.org:8443/a/b.git@main:t", ("https://host.org:8443/a/b.git", "main", "t")),
    ("https://u:p@host.org/a/b@main:t", ("https://u:p@host.org/a/b", "main", "t")),
    ("ssh://git@host.org:22/a/b.git@main", ("ssh://git@host.org:22/a/b.git", "main", "")),
    ("git@github.com:org/repo.git", ("git@github.com:org/repo.git", None, "")),
    ("git@github.com:org/repo.git@main:t", ("git@github.com:org/repo.git", "main", "t")),
    ("file:///srv/repo@main:t", ("file:///srv/repo", "main", "t")),
    ("/srv/repo@main:t", ("/srv/repo", "main", "t")),
    ("./repo:t", ("./repo", None, "t")),
    ("../repo@v1", ("../repo", "v1", "")),
]


@pytest.mark.parametrize(("text", "parts"), PARSED)
def test_forms_of_a_source(text, parts):
    spec = parse_source(text)
    assert (spec.repo, spec.ref, spec.path) == parts


FORMS = "write org/repo[@ref][:path], a git address, or a path that starts with ./ or /"
REFUSED = [
    ("", f'"" is not a source of tasks; {FORMS}'),
    ("repo", f'"repo" is not a source of tasks; {FORMS}'),
    ("a/b/c", f'"a/b/c" is not a source of tasks; {FORMS}'),
    ("ext::sh -c x", f'"ext::sh -c x" is not a source of tasks; {FORMS}'),
    ("--upload-pack=x/y", f'"--upload-pack=x/y" is not a source of tasks; {FORMS}'),
    ("org/repo@-x", '"-x" is not a branch, tag or commit'),
    ("org/repo@a..b", '"a..b" is not a branch, tag or commit'),
    ("org/repo:../x", '"../x" is not a path inside a repository; write it without .. and dash'),
    ("org/repo:-x", '"-x" is not a path inside a repository; write it without .. and dash'),
    ("org/repo:.git/hooks", '".git/hooks" is not a path inside a repository; write it without .. and dash'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), REFUSED)
def test_what_is_no_source(text, line):
    with pytest.raises(SourceError) as caught:
        parse_source(text)
    assert str(caught.value) == line


def test_passwords_are_not_shown():
    assert str(parse_source("https://u:secret@host.org/a/b@main")) == "https://u:***@host.org/a/b@main"


def git(cwd, *arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    identity = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.com",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "commit.gpgsign=false",
    ]
    run = subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True, env=environment
    )
    return run.stdout.strip()


@pytest.fixture
def repo(tmp_path, write):
    """A repository with two commits on main, a branch, a light tag and an annotated tag."""
    root = tmp_path / "origin"
    write(root, {"README.md": "r", "tasks/one/task.toml": "", "other/big.bin": "x" * 1000})
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    git(root, "tag", "light")
    git(root, "tag", "-a", "heavy", "-m", "t")
    git(root, "branch", "feature/x")
    write(root, {"tasks/two/task.toml": ""})
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "second")
    git(root, "config", "uploadpack.allowFilter", "true")
    return root


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def commit(root, write, name):
    write(root, {name: "x"})
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", name)
    return git(root, "rev-parse", "HEAD")


def copies(cache):
    return sorted(path.name for path in cache.glob("*/*") if path.is_dir())


def test_the_default_branch(repo, cache):
    got = fetch_source(f"file://{repo}", cache)
    assert got.sha == git(repo, "rev-parse", "main")
    assert (got.path / "tasks/two/task.toml").is_file()
    assert got.note is None
    assert git(got.path, "rev-list", "--count", "HEAD") == "1"


def test_a_remote_that_cannot_filter_gives_everything(repo, cache):
    git(repo, "config", "uploadpack.allowFilter", "false")
    assert (fetch_source(f"file://{repo}:tasks", cache).path / "two").is_dir()


@pytest.mark.parametrize("ref", ["feature/x", "light", "heavy", "refs/heads/feature/x", "sha"])
def test_branch_tag_and_commit(repo, cache, ref):
    first = git(repo, "rev-parse", "light")
    got = fetch_source(f"file://{repo}@{first if ref == 'sha' else ref}", cache)
    assert got.sha == first
    assert (got.path / "tasks/one").is_dir()
    assert not (got.path / "tasks/two").exists()


def test_only_the_path_is_checked_out(repo, cache):
    got = fetch_source(f"file://{repo}:tasks", cache)
    assert got.path.name == "tasks"
    assert sorted(os.listdir(got.path)) == ["one", "two"]
    assert not (got.path.parent / "other").exists()


def test_a_local_path_without_reference_is_used_in_place(repo, cache, tmp_path, write):
    got = fetch_source(f"{repo}:tasks", cache)
    assert (got.path, got.sha) == (repo / "tasks", git(repo, "rev-parse", "HEAD"))
    write(tmp_path, {"plain/x": ""})
    assert fetch_source(f"{tmp_path}/plain", cache).sha is None
    assert not cache.exists()


def test_a_local_path_with_reference_is_cloned(repo, cache):
    got = fetch_source(f"{repo}@light", cache)
    assert cache in got.path.parents


def test_a_branch_is_refreshed_and_old_copies_stay(repo, cache, write):
    first = fetch_source(f"file://{repo}@main", cache)
    sha = commit(repo, write, "tasks/three/task.toml")
    second = fetch_source(f"file://{repo}@main", cache)
    assert second.sha == sha
    assert (second.path / "tasks/three").is_dir()
    assert not (first.path / "tasks/three").exists()
    assert first.path.is_dir()


def test_an_unchanged_branch_is_not_cloned_again(repo, cache):
    first = fetch_source(f"file://{repo}@main", cache)
    (first.path / "mark").write_text("")
    assert (fetch_source(f"file://{repo}@main", cache).path / "mark").exists()


def test_a_copy_serves_with_a_note_when_the_refresh_fails(repo, cache):
    first = fetch_source(f"file://{repo}@main:tasks", cache)
    repo.rename(repo.with_name("gone"))
    again = fetch_source(f"file://{repo}@main:tasks", cache)
    assert (again.path, again.sha) == (first.path, first.sha)
    assert again.note is not None
    assert again.note.startswith(f"file://{repo}@main:tasks could not be refreshed (")
    assert again.note.endswith(f"); using the copy of {first.sha[:12]}")


def test_a_full_commit_never_asks_the_remote_again(repo, cache):
    sha = git(repo, "rev-parse", "light")
    first = fetch_source(f"file://{repo}@{sha}", cache)
    repo.rename(repo.with_name("gone"))
    again = fetch_source(f"file://{repo}@{sha}", cache)
    assert again == first
    assert again.note is None


WRONG = [
    ("@nope", "file://{repo} has no nope; give a branch, a tag or a full commit"),
    (":nowhere", "file://{repo} has no directory nowhere at {head}"),
    ("@light:README.md", "file://{repo} has no directory README.md at light"),
    (f"@{SHA}", f"file://{{repo}} has no {SHA}; give a branch, a tag or a full commit"),
]


@pytest.mark.parametrize(("tail", "line"), WRONG)
def test_what_goes_wrong_is_one_line(repo, cache, tail, line):
    with pytest.raises(SourceError) as caught:
        fetch_source(f"file://{repo}{tail}", cache)
    assert str(caught.value) == line.format(repo=repo, head=git(repo, "rev-parse", "HEAD")[:12])
    assert copies(cache) == []


def test_a_repository_that_is_not_there(tmp_path, cache):
    with pytest.raises(SourceError) as caught:
        fetch_source(f"file://{tmp_path}/none", cache)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"file://{tmp_path}/none: ")
    with pytest.raises(SourceError, match="is not a directory"):
        fetch_source(SourceSpec(f"{tmp_path}/none"), cache)


def test_an_empty_repository(tmp_path, cache):
    git(tmp_path, "init", "-q", "empty")
    with pytest.raises(SourceError, match="has no default branch"):
        fetch_source(f"file://{tmp_path}/empty", cache)


def test_git_is_missing(repo, cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError) as caught:
        fetch_source(f"file://{repo}", cache)
    assert str(caught.value) == "git is not installed; install git, or clone the tasks yourself"


def fake_git(tmp_path, monkeypatch, body):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_git_that_hangs_is_killed_with_its_children(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, f"sleep 300 & echo $! > {tmp_path}/pid; wait")
    start = time.monotonic()
    with pytest.raises(GitFailed, match=r"no answer within 0.5 s"):
        Git(0.5)("ls-remote")
    assert time.monotonic() - start < 10
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child of git lives on")


def test_git_cannot_prompt_and_does_not_see_the_callers_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    fake_git(tmp_path, monkeypatch, "env; cat")
    seen = dict(line.split("=", 1) for line in Git(5)("x").splitlines() if "=" in line)
    assert seen["GIT_TERMINAL_PROMPT"] == "0"
    assert "BatchMode=yes" in seen["GIT_SSH_COMMAND"]
    assert "ext" not in seen["GIT_ALLOW_PROTOCOL"]
    assert not {"GIT_DIR", "GIT_INDEX_FILE"} & set(seen)


def test_a_password_in_gits_complaint_is_hidden(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, "echo 'fatal: unable to access https://u:secret@host/a' >&2; exit 128")
    with pytest.raises(GitFailed, match=r"^unable to access https://u:\*\*\*@host/a$"):
        Git(5)("x")


def test_hooks_of_the_users_template_do_not_run(repo, cache, tmp_path, write, monkeypatch):
    write(tmp_path, {"template/hooks/post-checkout": f"#!/bin/sh\ntouch {tmp_path}/ran\n"})
    (tmp_path / "template/hooks/post-checkout").chmod(0o755)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path / "template"))
    fetch_source(f"file://{repo}", cache)
    assert not (tmp_path / "ran").exists()


def test_leftovers_of_a_killed_clone_are_removed(repo, cache):
    first = fetch_source(f"file://{repo}@light", cache)
    stale = first.path.parent / ".new-stale"
    stale.mkdir()
    fetch_source(f"file://{repo}@main", cache)
    assert not stale.exists()


def test_many_threads_clone_once(repo, cache):
    gate = threading.Barrier(6)

    def fetch(_):
        gate.wait()
        return fetch_source(f"file://{repo}@main", cache)

    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(fetch, range(6)))
    assert len(found) == 1
    assert len(copies(cache)) == 1


def test_many_processes_clone_once(repo, cache):
    code = (
        "import sys, pathlib\nfrom pytest_benchflow.tasks import fetch_source\n"
        "print(fetch_source(sys.argv[1], pathlib.Path(sys.argv[2])).path)\n"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code, f"file://{repo}:tasks", str(cache)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    assert len({run.communicate(timeout=60)[0] for run in runs}) == 1
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(copies(cache)) == 1


def test_a_lock_held_too_long_is_one_line(repo, cache):
    from filelock import FileLock

    first = fetch_source(f"file://{repo}", cache)
    with (
        FileLock(first.path.parent / ".lock"),
        pytest.raises(SourceError, match=r"another process holds the copy for 0.2 s; if none is running, remove "),
    ):
        fetch_source(f"file://{repo}", cache, timeout_sec=0.2)
