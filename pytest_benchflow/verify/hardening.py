"""Make a sandbox fit for its verifier after an agent has worked in it: processes, files, system, environment.

Everything is compared with what was there before the agent. Processes and files of the system are the backend's
business where it can do without any program inside; the workspace is looked at in one command, the decision is made
here, and a second command carries it out if there is anything to do.
"""

from __future__ import annotations

import io
import posixpath
import shlex
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.core.text import one_line
from pytest_benchflow.sandboxes import OWN_ENV, exec_checked
from pytest_benchflow.verify.hidden_tests import HiddenTests, read_hidden_tests
from pytest_benchflow.verify.installed import decide_packages
from pytest_benchflow.verify.integrity import Finding, bounded
from pytest_benchflow.verify.links import aliases, candidates_of_aliases, decide_end, leads_to_system
from pytest_benchflow.verify.pins import Ownership, pinned
from pytest_benchflow.verify.plan import Context, Plan
from pytest_benchflow.verify.policy import decide
from pytest_benchflow.verify.scan import Baseline, Scan, ScannedFile, scan
from pytest_benchflow.verify.spoiled import EnvironmentSpoiled, spoiled_error
from pytest_benchflow.verify.support import decide_support, support_modules
from pytest_benchflow.verify.system import SystemPlan, decide_system, shadowing_libraries
from pytest_benchflow.verify.verifier import FRESH_HOME

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import FileChange, HasCustody, Sandbox
    from pytest_benchflow.tasks import Hardening, TaskStep

_TIMEOUT_SEC = 180.0
_SOLUTION_CHARS = 1 << 20
_MOST_ALIASES_DEEP = 4
# One that leads to a directory around it can have no copy of that; nor one that leads out by other links.
_COPY_LINKED = r"""
while IFS= read -r -d '' p; do
  [ -L "$p" ] || continue
  t=$(readlink -f -- "$p") || t=
  rm -f -- "$p" || exit 1
  case $t/ in {top}*) ;; *) continue ;; esac
  case $p/ in
    "${{t%/}}"/*) mkdir -- "$p" ;;
    *) [ ! -d "$t" ] && [ ! -f "$t" ] || cp -a -- "$t" "$p" ;;
  esac || exit 1
done
"""
_ENDS_OF_LINKS = r"""
while IFS= read -r -d '' p; do
  readlink -m -- "$p" 2>/dev/null || readlink -f -- "$p" || echo
done
"""
# Patterns have no blanks that would split them; what is no pattern matches itself.
_REMOVE_HIDING = r"""
IFS=
while read -r -d '' p && read -r -d '' g; do
  if [ -z "$g" ]; then
    [ -L "$p" ] || continue
  else
    hidden=($g)
    [ -e "${hidden[0]}" ] || continue
  fi
  rm -rf -- "$p" && printf '%s\0' "$p" || exit 1
done
exit 0
"""
# A library comes back under its name as long as the file is there that says so.
_REMOVE_LIBRARIES = r"""
while IFS= read -r -d '' p; do
  t=$(readlink -f -- "$p")
  rm -f -- "$p" || exit 1
  [ "${t%/*}" != "${p%/*}" ] || rm -f -- "$t"
done
"""
_MOST_RELINKS = 4
# In a container /dev belongs to the one who is root there, and no engine tells what has changed.
_DEVICES = r"""
while read -r name major minor; do
  [ "$(stat -c '%F %t:%T' "/dev/$name" 2>/dev/null)" = "character special file $major:$minor" ] && continue
  rm -rf "/dev/$name" && mknod -m 666 "/dev/$name" c "$major" "$minor" || exit 1
done <<'END'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
END
while read -r name target; do
  case $(readlink "/dev/$name") in "$target" | "${target#/proc/self/}") continue ;; esac
  rm -rf "/dev/$name" && ln -s "$target" "/dev/$name" || exit 1
done <<'END'
fd /proc/self/fd
stdin /proc/self/fd/0
stdout /proc/self/fd/1
stderr /proc/self/fd/2
END
"""
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
#: Programs that start others for whoever asks; what they start would outlive every killing.
_JOB_SERVICES = frozenset({"cron", "crond", "atd", "anacron", "fcron", "incrond", "systemd", "systemd-user"})


@dataclass(frozen=True, slots=True)
class AgentUser:
    """A user that agents run as."""

    name: str | int | None
    """None is the image's own."""
    home: str
    is_trusted: bool = False
    """Whether only the task's own solution runs as it, whose programs may stay."""


@dataclass(slots=True)
class Guard:
    """Knows what a sandbox was before the agent, and brings back what its verifier relies on."""

    sandbox: Sandbox
    hardening: Hardening
    users: Sequence[AgentUser] = ()
    """None where the agent has never been: the sandbox of a separate verifier, which gets artifacts."""
    artifacts: Sequence[str] = ()
    """Where artifacts of the agent's come to lie."""
    lists_changes: bool = False
    """Whether somebody will ask for all `changes`."""
    _before: Scan | None = field(default=None, init=False)
    _after: Scan | None = field(default=None, init=False)
    _changed_before: frozenset[str] = field(default=frozenset(), init=False)
    _verifier: tuple[int, int] = field(default=(0, 0), init=False)
    _uids: tuple[int, ...] = field(default=(), init=False)
    _programs: tuple[str, ...] = field(default=(), init=False)
    _support: tuple[str, ...] = field(default=(), init=False)
    _read: tuple[str, ...] = field(default=(), init=False)
    _hidden_tests: dict[str | None, HiddenTests] = field(default_factory=dict, init=False)
    _ignores_hooks: bool = field(default=False, init=False)
    _user_base: str | None = field(default=None, init=False)
    """Where the packages are that the image installed for the verifier's user, as long as they are the image's."""
    _guards_site: bool = field(default=False, init=False)
    """Whether these are the agent's to change, and have to be put back."""

    @property
    def is_watching(self) -> bool:
        """Whether there is anything to compare with."""
        return self._before is not None

    @property
    def verifier_owner(self) -> str:
        """Who the verifier runs as, as `chown` takes it."""
        return f"{self._verifier[0]}:{self._verifier[1]}"

    async def watch(self, step: TaskStep) -> None:
        """Remember everything that has to be the same when the verifier comes; the agent has not started yet."""
        if not self.hardening.enabled:
            return
        self._verifier = await self._ids(step.verifier.user)
        names = [str(user.name) for user in self.users if user.name is not None]
        baseline = Baseline(names, self._places, self._verifier[0])
        self._before = before = await scan(self.sandbox, roots=self._roots, tops=self._tops(step), baseline=baseline)
        self._uids = tuple(self._uid(user, before) for user in self.users)
        self._before = before = await self._with_support(step, before)
        ownership = self._ownership
        path = [*before.env.get("PATH", "").split(":"), *before.env.get("NODE_PATH", "").split(":")]
        # Programs of an environment are called by their paths, or come first once it is activated.
        path += [f"{posixpath.dirname(file)}/bin" for file in before.files if file.endswith("/pyvenv.cfg")]
        entries = [entry.rstrip("/") for entry in path if entry.startswith("/")]
        self._programs = tuple(entry for entry in dict.fromkeys(entries) if ownership.is_agents(entry))
        self._watch_user_site(before, ownership)
        if self._may_change_system or self._guards_site or (self.lists_changes and self._has_custody):
            changes = await self._changes()
            self._changed_before = frozenset(change.path for change in changes)
            if self._guards_site and any(change.kind == "added" for change in self._of_site(changes)):
                # The image cannot give back what came after it.
                self._user_base, self._guards_site = None, False

    def _of_site(self, changes: Sequence[FileChange]) -> list[FileChange]:
        return [change for change in changes if change.path.startswith(f"{self._user_base}/lib/")]

    def _watch_user_site(self, before: Scan, ownership: Ownership) -> None:
        """Decide whether the verifier may use what the image installed for its user."""
        bases = {site.rpartition("/lib/")[0] for site in before.sites}
        if len(bases) != 1:
            return
        if 0 in self._uids or any(map(ownership.is_agents, before.sites)):
            if not (self._has_custody and self.hardening.does("pin_environment")):
                return
            self._guards_site = True
        self._user_base = bases.pop()

    async def _with_support(self, step: TaskStep, known: Scan) -> Scan:
        """Return a scan with the modules that the tests' own configuration loads, known by then."""
        self._support = support_modules(known.files, self.sandbox.workdir, self._tops(step))
        missing = [path for path in self._support if path not in known.files and path not in known.links]
        if not missing:
            return known
        more = await scan(self.sandbox, roots=(), tops=(), extra=missing)
        return replace(known, files={**more.files, **known.files}, links={**more.links, **known.links})

    def adopt(self, other: Guard) -> None:
        """Take for the task's own what was in another sandbox before its agent."""
        if self._before is None or (theirs := other._before) is None:
            return
        self._before = replace(
            self._before,
            files={**theirs.files, **self._before.files},
            links={**theirs.links, **self._before.links},
            facts={**theirs.facts, **self._before.facts},
            modules=theirs.modules | self._before.modules,
        )
        self._support = tuple(dict.fromkeys([*self._support, *other._support]))

    async def settle(self) -> None:
        """Kill what the tests left running: some of it may be the agent's code."""
        await self.end_programs()

    async def end_programs(self) -> list[Finding] | None:
        """Kill everything that was not there before the agent, whoever it belongs to and however it hides.

        What had got away from the end of its session is a finding. None if that is off, or the sandbox cannot do it by
        itself.
        """
        before = self._before
        if before is None or not self.hardening.does("kill_processes") or not self._has_custody:
            return None
        if self._is_trusted:
            return []
        keep = [one for one, name in before.programs.items() if name not in _JOB_SERVICES and not one.startswith("1:")]
        killed = await self._custody.end_programs(keep=keep, uid=next(iter(self._uids), 0))
        names = dict.fromkeys(one_line(program.name) for program in killed if program.id not in before.programs)
        message = f"{', '.join(names)} ran on after the agent's end, and was killed"
        return [Finding(kind="foreign_process", message=message)] if names else []

    async def restore_system(self, step: TaskStep) -> list[Finding]:
        """Put back what an agent that was root changed in the system, before any program of it is run."""
        if self._before is None:
            return []
        if self._guards_site:
            await self._restore_site()
        if not self._may_change_system:
            return []
        plan = await self._clean_system(step)
        self._read = tuple(plan.read)
        return [finding.model_copy(update={"step": step.name}) for finding in bounded(plan.findings)]

    async def _restore_site(self) -> None:
        """Put back the packages of the verifier's user, which are the agent's to change too."""
        changes = self._of_site(await self._changes())
        added = [change.path for change in changes if change.kind == "added"]
        await self._custody_restore([change.path for change in changes if change.kind != "added"])
        await self._remove(added)
        sites = self._before.sites if self._before else ()
        check = " && ".join(f'[ "$(cd -P {shlex.quote(site)} && pwd)" = {shlex.quote(site)} ]' for site in sites)
        done = await self.sandbox.exec(check, user=0, cwd="/", env=OWN_ENV, timeout_sec=_TIMEOUT_SEC)
        if done.return_code:
            self._user_base = None

    async def clean(self, step: TaskStep, *, round: int | None = None) -> list[Finding]:
        """Take away what the agent put in the verifier's way, and return what that was; no program of its runs."""
        before = self._before
        if before is None:
            return []
        context = self._context(step)
        after = await self._scan_after(step, before)
        for _ in range(_MOST_ALIASES_DEEP):
            if not (found := await self._aliases(before, after, context)):
                break
            await self._replace_aliases(found)
            after = await self._scan_after(step, before)
        if after.limits != before.limits:
            raise EnvironmentSpoiled("the limits of the sandbox's first process were changed")
        plan = decide(before, after, context)
        if self.hardening.does("cleanup_conftests"):
            decide_support(self._support, before, after, context, plan)
        if not self._is_trusted and self.hardening.does("remove_links"):
            await self._look_behind(leads_to_system(before, after, context), plan)
        restored = await self._restored(after, context, plan)
        self._ignores_hooks = plan.ignores_hooks
        await self._carry_out(plan)
        await self._custody_restore(restored)
        return [finding.model_copy(update={"step": step.name, "round": round}) for finding in bounded(plan.findings)]

    async def _restored(self, after: Scan, context: Context, plan: Plan) -> list[str]:
        """Return what the image has to give back; what has been added to its packages is added to the plan."""
        if not self._has_custody:
            return []
        archives = self._archives if self.hardening.does("remove_shadows") else ()
        # What was just put back is fresh too.
        top = f"{self._user_base}/lib/" if self._guards_site else None
        fresh = [path for path in after.fresh if top is None or not path.startswith(top)]
        looks = bool(fresh) and self.hardening.does("restore_config")
        if not (looks or plan.restore or archives):
            return []
        changes = await self._changes()
        packages = decide_packages(fresh, changes, context, plan) if looks else []
        changed = {change.path for change in changes if change.kind == "changed"}
        for path in changed.intersection(archives):
            plan.drop(path)
            plan.report("shadowing_module", f"{path}, where Python looks for modules, was changed; put back", path)
        return [*packages, *changed.intersection([*plan.restore, *archives])]

    @property
    def _archives(self) -> list[str]:
        """Archives of modules in which Python looks first."""
        assert self._before is not None
        entries = self._before.env.get("PYTHONPATH", "").split(":")
        return [
            posixpath.join(self.sandbox.workdir, entry) for entry in entries if entry.endswith((".zip", ".egg", ".whl"))
        ]

    async def _scan_after(self, step: TaskStep, before: Scan) -> Scan:
        programs = (*self._programs, *self._read)
        may_change = bool(self.users or self.artifacts) and not self._is_trusted
        since = before.now if self._has_custody and may_change else ""
        return await scan(
            self.sandbox,
            roots=self._roots,
            tops=self._tops(step),
            programs=programs,
            extra=self._support,
            since=since,
        )

    async def _aliases(self, before: Scan, after: Scan, context: Context) -> list[str]:
        if self._is_trusted or not self.hardening.does("remove_links"):
            return []
        candidates = candidates_of_aliases(before, after, context)
        replaced: set[str] = set()
        if candidates and self._has_custody:
            replaced = {change.path for change in await self._changes() if change.kind == "changed"}
        return aliases(candidates, replaced, before, after, context)

    async def _replace_aliases(self, paths: Sequence[str]) -> None:
        """Put copies of directories in the place of links to them, so that they hold nothing under another name."""
        script = _COPY_LINKED.format(top=shlex.quote(self.sandbox.workdir.rstrip("/") + "/"))
        words = b"".join(_bytes(path) + b"\0" for path in paths)
        await self._run("replace links by what they lead to", script, words)

    async def _look_behind(self, links: Sequence[str], plan: Plan) -> None:
        """Follow links through directories of the system, where an agent may have put others."""
        links = [path for path in links if path not in plan.remove and "\n" not in path]
        if not links:
            return
        ends = await self._run("follow links", _ENDS_OF_LINKS, b"".join(_bytes(path) + b"\0" for path in links))
        for path, end in zip(links, ends.split("\n"), strict=False):
            decide_end(path, end, plan)

    async def _custody_restore(self, paths: Sequence[str]) -> None:
        if paths:
            await self._custody.restore_files(paths)

    async def step_over(self, step: TaskStep) -> None:
        """Look at what the last step left, before the files of the next one come."""
        if self._before is not None:
            await self.end_programs()
            self._after = await scan(
                self.sandbox, roots=self._roots, tops=self._tops(step), programs=self._programs, extra=self._support
            )

    async def watch_next(self, step: TaskStep) -> None:
        """Add what has come for the next step since `step_over` to what has to stay the same."""
        if self._before is None or self._after is None:
            return
        was, left = self._before, self._after
        now = await scan(
            self.sandbox, roots=self._roots, tops=self._tops(step), programs=self._programs, extra=self._support
        )
        new_files = {path: file for path, file in now.files.items() if left.files.get(path) != file}
        new_links = {path: link for path, link in now.links.items() if left.links.get(path) != link}
        new_facts = {path: fact for path, fact in now.facts.items() if left.facts.get(path) != fact}
        self._before = replace(
            was,
            files={**was.files, **new_files},
            links={**was.links, **new_links},
            facts={**was.facts, **new_facts},
            modules=was.modules | (now.modules - left.modules),
        )
        self._before = await self._with_support(step, self._before)

    def environment(self, *, settled: bool = True) -> dict[str, str]:
        """Return the variables that the verifier gets over the image's; `settled` means that no agent is at work."""
        if self._before is None or not self.hardening.does("pin_environment"):
            return {}
        ownership = self._ownership
        pins = pinned(self._before.env, ownership, self._user_base if settled or not self._guards_site else None)
        if self._ignores_hooks:
            pins |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "/dev/null"}
        home = self._before.env.get("HOME", "/root") if self._verifier[0] == 0 else "/"
        if self._verifier[0] != 0 and self._verifier[0] in self._uids:
            pins["HOME"] = FRESH_HOME
        elif self._verifier[0] == 0 and home != "/root" and ownership.is_agents(home):
            pins["HOME"] = "/root"
        return pins

    async def changes(self) -> list[FileChange]:
        """Return what the agent changed outside the workspace."""
        if not self._has_custody:
            return []
        top = self.sandbox.workdir.rstrip("/") + "/"
        found = await self._changes()
        return [
            change
            for change in found
            if change.path not in self._changed_before and not f"{change.path}/".startswith(top)
        ]

    async def _changes(self) -> Sequence[FileChange]:
        try:
            return await self._custody.changes()
        except SandboxError as error:
            # An agent decides how deep its directories are.
            raise spoiled_error(str(error)) if "too long" in str(error) else error from None

    async def _clean_system(self, step: TaskStep) -> SystemPlan:
        changes = await self._changes()
        homes = tuple(dict.fromkeys(["/root", *(user.home for user in self.users)]))
        plan = decide_system(self._changed_before, changes, self._context(step), homes)
        # A library that every program loads would run in the one that removes it.
        first = [path for path in plan.remove if path.startswith("/etc/ld.so")]
        await self._custody.restore_files([*plan.restore, *first])
        added = {change.path for change in changes if change.kind == "added"}
        removed = [path for path in plan.remove if path not in plan.restore or path in added]
        await self._run("make devices anew", _DEVICES)
        if removed:
            await self._remove(removed)
        if plan.hiding or plan.links:
            await self._remove_hiding(plan)
        if plan.relinks:
            await self._relink(self._context(step), plan)
        return plan

    async def _run(self, purpose: str, script: str, stdin: bytes | None = None) -> str:
        """Run something of ours after the agent, whose fault it is if that fails."""
        done = await exec_checked(
            self.sandbox, script, purpose, cwd="/", stdin=stdin, timeout_sec=_TIMEOUT_SEC, error=spoiled_error
        )
        return done.stdout

    async def _remove(self, paths: Iterable[str]) -> None:
        removal = b"\0".join(map(_bytes, dict.fromkeys(paths)))
        await self._run("remove what the agent added", "xargs -0 rm -rf --", removal)

    async def _remove_hiding(self, plan: SystemPlan) -> None:
        """Remove what stands before something of the image's, which only the sandbox can tell."""
        asked = [(path, pattern) for path, patterns in plan.hiding.items() for pattern in patterns]
        asked += [(path, "") for path in plan.links]
        words = b"".join(_bytes(word) + b"\0" for pair in asked for word in pair)
        for path in filter(
            None, (await self._run("remove what stands before others", _REMOVE_HIDING, words)).split("\0")
        ):
            message = f"{path} was taken before what the image has, and was removed"
            plan.findings.append(Finding(kind="system_file", message=message, paths=[path]))

    async def _relink(self, context: Context, plan: SystemPlan) -> None:
        """Make the loader's cache anew, without libraries that come before those of the image, whose cache is back."""
        own = await self._run("read the loader's cache", "ldconfig -p 2>/dev/null || :")
        for _ in range(_MOST_RELINKS):
            now = await self._run("make the loader's cache", "ldconfig 2>/dev/null; ldconfig -p 2>/dev/null || :")
            if not (before := shadowing_libraries(own, now, context)):
                return
            names = b"".join(_bytes(path) + b"\0" for path in before)
            await self._run("remove libraries", _REMOVE_LIBRARIES, names)
            for path in before:
                message = f"{path} was loaded in place of the image's own library; removed"
                plan.findings.append(Finding(kind="system_file", message=message, paths=[path]))

    async def _carry_out(self, plan: Plan) -> None:
        if plan.is_empty:
            return
        # The list of users is needed to run anything.
        gone = [path for path in (*plan.remove, *plan.write, *plan.link) if path != "/etc/passwd"]
        await self._remove(gone)
        if plan.write or plan.link:
            packed = _packed(plan.write, plan.link)
            await self._run("put back what the agent changed", "tar -xpf - -C /", packed)

    async def _ids(self, user: str | int | None) -> tuple[int, int]:
        done = await self.sandbox.exec(
            "echo $UID ${GROUPS[0]}", user=user, cwd="/", env=OWN_ENV, timeout_sec=_TIMEOUT_SEC
        )
        words = done.stdout.split()
        if done.return_code or len(words) != 2 or not all(word.isdigit() for word in words):
            raise SandboxError(f"the verifier's user is unknown: {one_line(done.stderr) or 'id printed nothing'}")
        return int(words[0]), int(words[1])

    def _uid(self, user: AgentUser, before: Scan) -> int:
        if user.name is None:
            return self._verifier[0]
        name = str(user.name)
        return int(name) if name.isdigit() else before.ids.get(name, 0)

    @property
    def _has_custody(self) -> bool:
        return self.sandbox.capabilities.custody

    @property
    def _custody(self) -> HasCustody:
        return cast("HasCustody", self.sandbox)

    @property
    def _is_trusted(self) -> bool:
        return bool(self.users) and all(user.is_trusted for user in self.users)

    @property
    def _may_change_system(self) -> bool:
        return self._has_custody and self.hardening.does("restore_system") and not self._is_trusted and 0 in self._uids

    @property
    def _places(self) -> list[str]:
        """Directories that the agent may write to whoever owns them."""
        homes = [user.home for user in self.users if user.home not in ("/", "/root") or user.name in (None, 0, "root")]
        homes = [] if self._is_trusted else homes
        places = dict.fromkeys([self.sandbox.workdir, *homes, *self.artifacts, *_TEMPORARY])
        return [place for place in places if place != "/"]

    @property
    def _roots(self) -> list[str]:
        workdir = self.sandbox.workdir
        return [
            root for root in (workdir, *_TEMPORARY, *(user.home for user in self.users)) if root not in ("/", "/root")
        ]

    def _tests(self, step: TaskStep) -> HiddenTests:
        if step.name not in self._hidden_tests:
            self._hidden_tests[step.name] = read_hidden_tests(step.tests_dirs, step.test_script, self.sandbox.workdir)
        return self._hidden_tests[step.name]

    def _tops(self, step: TaskStep) -> list[str]:
        """Directories in which Python looks for modules first: where the tests may stand, and those of PYTHONPATH."""
        tops = [self.sandbox.workdir, *_TEMPORARY]
        tops += self._tests(step).directories
        if self._before is not None:
            entries = [entry for entry in self._before.env.get("PYTHONPATH", "").split(":") if entry]
            tops += [posixpath.normpath(posixpath.join(self.sandbox.workdir, entry)) for entry in entries]
            tops += [entry for entry in self._before.added if self._ownership.is_agents(entry)]
        tops += [f"{self.sandbox.workdir}/{name}" for name in ("src", "lib")]
        return [top.rstrip("/") for top in dict.fromkeys(tops) if top.rstrip("/") and not top.startswith("/tests")]

    @property
    def _ownership(self) -> Ownership:
        assert self._before is not None
        return Ownership(self._before.owners, self._uids, self._places)

    def _context(self, step: TaskStep) -> Context:
        assert self._before is not None
        tests = self._tests(step)
        return Context(
            workdir=self.sandbox.workdir,
            instruction=step.instruction,
            hardening=self.hardening,
            solution="" if step.solution_dir is None else _text_of(step.solution_dir),
            tops=tuple(sorted(self._tops(step), key=len, reverse=True)),
            imports=tests.imports,
            own_modules=tests.own_modules,
            places=tests.places,
            brought=tests.names,
            copies=tests.copies,
            is_copy=not self.users,
            programs=self._programs,
            path=tuple(self._before.env.get("PATH", "").split(":")),
            installed=self._before.packages,
            known_programs=self._before.binaries,
        )


def _text_of(solution: Path) -> str:
    """Return the names and the texts of a solution's files, up to a limit."""
    texts: list[str] = []
    left = _SOLUTION_CHARS
    for path in sorted(solution.rglob("*")):
        if left <= 0:
            break
        if path.is_file() and path.stat().st_size <= _SOLUTION_CHARS:
            texts += [path.name, path.read_text("utf-8", errors="replace")[:left]]
            left -= len(texts[-1])
    return "\n".join(texts)


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _packed(files: Mapping[str, ScannedFile], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", errors="surrogateescape", format=tarfile.GNU_FORMAT) as archive:
        for path, file in files.items():
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size, info.mode, info.uid, info.gid = len(file.content), file.mode, file.uid, file.gid
            archive.addfile(info, io.BytesIO(file.content))
        for path, target in links.items():
            info = tarfile.TarInfo(path.lstrip("/"))
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return buffer.getvalue()
