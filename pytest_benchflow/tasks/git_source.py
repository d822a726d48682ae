"""Tasks from a git repository: `org/repo[@ref][:path]` into a local cache.

git runs without prompts, without the caller's repository in its environment, and within a time limit.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_benchflow.core.activity import activity
from pytest_benchflow.core.errors import BenchflowError, Category

_LOCAL = {
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE",
}  # fmt: skip
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "never",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
    "LC_ALL": "C",
}


class SourceError(BenchflowError):
    """A source of tasks that cannot be had."""

    category = Category.CONFIG


class GitFailed(Exception):
    """Git ended with an error; the text is its own last line about it."""


class Git:
    """Git commands that share one deadline."""

    def __init__(self, timeout_sec: float) -> None:
        self._timeout_sec = timeout_sec
        self._deadline = time.monotonic() + timeout_sec

    def __call__(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run one command and return its output; raise GitFailed, or SourceError if there is no git."""
        command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", *arguments]
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise SourceError("git is not installed", advice="install git, or clone the tasks yourself") from None
        try:
            out, err = process.communicate(timeout=max(0.1, self._deadline - time.monotonic()))
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise GitFailed(f"no answer within {self._timeout_sec:g} s") from None
            raise
        if process.returncode != 0:
            raise GitFailed(_complaint(err.decode(errors="replace")))
        return out.decode(errors="surrogateescape")


def redacted(url: str) -> str:
    """Hide the password of an address."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", url)


def _environment() -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key not in _LOCAL} | _QUIET
    env.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    return env


def _complaint(stderr: str) -> str:
    lines = [line.strip() for line in redacted(stderr).splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    line = (fatal or lines or ["it gave no reason"])[-1 if not fatal else 0]
    return re.sub(r"^(fatal|error): ", "", line)


__all__ = ["FetchedSource", "SourceError", "SourceSpec", "fetch_source", "parse_source"]

_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_TAIL = r"(?:@(?P<ref>[^:\s]+))?(?::(?P<path>.*))?"
_FORMS = (
    re.compile(rf"(?P<repo>(?:https?|ssh|git|file)://(?:[^/@\s]*@)?[^/@\s]*/[^@:\s]+){_TAIL}"),
    re.compile(rf"(?P<repo>[\w.-]+@[\w.-]+:[^@:\s]+){_TAIL}"),
    re.compile(rf"(?P<repo>(?:\.{{0,2}}/|~|\.\.?(?=[@:]|$))[^@:]*){_TAIL}"),
    re.compile(rf"(?P<github>\w[\w.-]*/\w[\w.-]*){_TAIL}"),
)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where tasks come from."""

    repo: str
    """What git is told: an address or a local path."""
    ref: str | None = None
    """Branch, tag or full commit; None is the default branch."""
    path: str = ""
    """Directory inside the repository."""

    @property
    def is_local(self) -> bool:
        """Return whether the repository is a path on this machine."""
        return "://" not in self.repo and self.repo.startswith(("/", ".", "~"))

    @property
    def is_pinned(self) -> bool:
        """Return whether the reference can never mean anything else."""
        return self.ref is not None and _SHA.fullmatch(self.ref) is not None

    def __str__(self) -> str:
        return redacted(self.repo) + (f"@{self.ref}" if self.ref else "") + (f":{self.path}" if self.path else "")


@dataclass(frozen=True, slots=True)
class FetchedSource:
    """A source that is on this machine."""

    spec: SourceSpec
    path: Path
    sha: str | None
    """The commit; None for a local directory outside git."""
    note: str | None = None
    """What the user should know, such as a copy that could not be refreshed."""


def parse_source(text: str, base: Path | None = None) -> SourceSpec:
    """Read `org/repo[@ref][:path]`, a git address or a local path, relative to `base`, with the same endings."""
    text = text.strip()
    if text.startswith(("/", ".", "~")) and os.path.isdir(local := _local(text, base)):
        return SourceSpec(local)
    match = next((match for form in _FORMS if (match := form.fullmatch(text))), None)
    if match is None:
        advice = "write org/repo[@ref][:path], a git address, or a path that starts with ./ or /"
        raise SourceError(f'"{redacted(text)}" is not a source of tasks', advice=advice)
    parts = match.groupdict()
    repo = parts.get("repo") or f"https://github.com/{parts['github']}.git"
    ref, path = parts["ref"], (parts["path"] or "").strip("/")
    if ref is not None and (ref.startswith("-") or ".." in ref):
        raise SourceError(f'"{ref}" is not a branch, tag or commit')
    if path.startswith("-") or any(part in {"..", ".git"} for part in path.split("/")):
        raise SourceError(f'"{path}" is not a path inside a repository', advice="write it without .. and dash")
    spec = SourceSpec(repo, ref, os.path.normpath(path) if path not in {"", "."} else "")
    return replace(spec, repo=_local(repo, base)) if spec.is_local else spec


def _local(path: str, base: Path | None) -> str:
    path = os.path.expanduser(path)
    return path if base is None else os.path.normpath(os.path.join(base, path))


def fetch_source(source: SourceSpec | str, cache_dir: Path, *, timeout_sec: float = 300.0) -> FetchedSource:
    """Return a local copy of the source, cloned shallow and sparse on first use.

    Copies are kept by commit and never change. A branch is looked up again each time; if that fails, the copy
    of last time serves, with a note. A local path without a reference is used where it is.
    """
    spec = parse_source(source) if isinstance(source, str) else source
    git = Git(timeout_sec)
    if spec.is_local and spec.ref is None:
        return _in_place(spec, git)
    from filelock import FileLock, Timeout

    home = cache_dir / _slug(spec.repo)
    home.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(home / ".lock", timeout=timeout_sec):
            return _fetch(spec, home, git)
    except Timeout:
        advice = f"if none is running, remove {home / '.lock'}"
        raise SourceError(f"{spec}: another process holds the copy for {timeout_sec:g} s", advice=advice) from None


def _fetch(spec: SourceSpec, home: Path, git: Git) -> FetchedSource:
    memory = home / f"ref-{_digest(spec.ref or '')}"
    note = None
    if spec.is_pinned:
        sha = str(spec.ref)
    else:
        try:
            sha = _look_up(spec, git)
        except GitFailed as error:
            known = memory.read_text().strip() if memory.is_file() else ""
            if not (known and (home / _copy_name(known, spec)).is_dir()):
                raise SourceError(f"{spec}: {error}") from None
            sha, note = known, f"{spec} could not be refreshed ({error}); using the copy of {known[:12]}"
    copy = home / _copy_name(sha, spec)
    if not copy.is_dir():
        try:
            with activity(f"cloning {spec}"):
                _clone(spec, sha, home, copy, git)
        except GitFailed as error:
            if "not our ref" in str(error):
                raise _unknown_ref(spec) from None
            raise SourceError(f"{spec}: {error}") from None
    if note is None and not spec.is_pinned:
        memory.write_text(sha)
    return FetchedSource(spec, copy / spec.path, sha, note)


def _look_up(spec: SourceSpec, git: Git) -> str:
    """Return the commit that the reference means now."""
    wanted = ("HEAD",) if spec.ref is None else tuple(f"refs/{kind}/{spec.ref}" for kind in ("heads", "tags"))
    wanted += () if spec.ref is None else (f"refs/tags/{spec.ref}^{{}}", spec.ref)
    commits = dict(line.split("\t")[::-1] for line in git("ls-remote", spec.repo, *wanted).splitlines())
    peeled = f"refs/tags/{spec.ref}^{{}}"
    name = next((name for name in (wanted[0], peeled, *wanted[1:]) if name in commits), None)
    if name is None:
        raise _unknown_ref(spec)
    return commits[name]


def _unknown_ref(spec: SourceSpec) -> SourceError:
    message = f"{redacted(spec.repo)} has no {spec.ref or 'default branch'}"
    return SourceError(message, advice="give a branch, a tag or a full commit")


def _clone(spec: SourceSpec, sha: str, home: Path, copy: Path, git: Git) -> None:
    for left in home.glob(".new-*"):  # of a process that was killed: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=home))
    try:
        git("init", "--quiet", cwd=new)
        git("remote", "add", "origin", spec.repo, cwd=new)
        git("fetch", "--quiet", "--depth=1", "--no-tags", "--filter=blob:none", "origin", sha, cwd=new)
        if spec.path:
            if not git("ls-tree", "-d", sha, "--", spec.path, cwd=new):
                raise SourceError(f"{redacted(spec.repo)} has no directory {spec.path} at {spec.ref or sha[:12]}")
            git("sparse-checkout", "set", "--cone", spec.path, cwd=new)
        git("checkout", "--quiet", "--detach", sha, cwd=new)
        os.rename(new, copy)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _in_place(spec: SourceSpec, git: Git) -> FetchedSource:
    root = Path(spec.repo)
    if not (root / spec.path).is_dir():
        raise SourceError(f"{root / spec.path} is not a directory")
    try:
        sha: str | None = git("rev-parse", "HEAD", cwd=root).strip()
    except (GitFailed, SourceError):
        sha = None
    return FetchedSource(spec, root / spec.path, sha)


def _slug(repo: str) -> str:
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(repo.rstrip("/").removesuffix(".git").split("/")[-2:])).strip("-.")
    return f"{name}-{_digest(repo)}"


def _copy_name(sha: str, spec: SourceSpec) -> str:
    return f"{sha[:20]}-{_digest(spec.path)}" if spec.path else sha[:20]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
