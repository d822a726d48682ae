"""Which keys of a repository's own configuration git may be given: those that only say what, none that say run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

_HEADER = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(.*)', re.DOTALL)
_KEY = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?\s*", re.DOTALL)

#: What agents and git itself write down in honest work.
_HARMLESS = (
    *("core.repositoryformatversion", "core.filemode", "core.bare", "core.logallrefupdates", "core.ignorecase"),
    *("core.symlinks", "core.precomposeunicode", "core.autocrlf", "core.eol", "core.sharedrepository"),
    *("core.abbrev", "core.quotepath", "core.safecrlf", "core.sparsecheckout", "core.sparsecheckoutcone"),
    *("user.name", "user.email", "user.useconfigonly", "branch.*.remote", "branch.*.merge", "branch.*.rebase"),
    *("branch.*.description", "branch.autosetup*", "remote.*.fetch", "remote.*.push", "remote.*.mirror"),
    *("remote.*.prune", "remote.*.tagopt", "remote.pushdefault", "init.defaultbranch", "push.default"),
    *("push.autosetupremote", "pull.rebase", "pull.ff", "merge.ff", "merge.conflictstyle", "rebase.autostash"),
    *("rerere.enabled", "gc.*", "pack.*", "advice.*", "color.*", "commit.gpgsign", "tag.gpgsign", "index.*"),
    *("submodule.*.active", "submodule.active", "extensions.worktreeconfig", "extensions.objectformat"),
    *("extensions.refstorage", "receive.deny*", "receive.fsckobjects", "transfer.fsckobjects", "http.receivepack"),
    *("feature.*", "fetch.prune*", "fetch.fsckobjects", "log.*", "status.*", "diff.renames", "diff.algorithm"),
    *("lfs.repositoryformatversion", "uploadpack.allow*", "daemon.*", "safe.directory", "column.ui", "help.*"),
)
_PROGRAMS = re.compile(
    r"core\.(?:fsmonitor|hookspath|sshcommand|editor|pager|askpass|gitproxy|alternaterefscommand|attributesfile"
    r"|worktree)|filter\.|diff\..*\.(?:textconv|command)|diff\.external|merge\..*\.driver|alias\.|include|pager\."
    r"|credential|gpg\.|sequence\.editor|remote\..*\.(?:uploadpack|receivepack|vcs)|uploadpack\.packobjectshook"
    r"|difftool|mergetool|man\.|browser\.|web\.|trailer\..*command|interactive\.difffilter|submodule\..*\.update"
    r"|sendemail|imap|url\."
)


@dataclass(frozen=True, slots=True)
class GitKey:
    """One line of a configuration."""

    name: str
    value: str
    header: str

    @property
    def is_program(self) -> bool:
        """Whether git may run what it names."""
        return _PROGRAMS.match(self.name) is not None or (
            self.name.endswith(".url") and self.value.strip().strip('"').startswith(("ext::", "-"))
        )


def cleaned_git_config(text: str, before: str) -> tuple[str, list[GitKey]]:
    """Return a configuration without the keys that it must not have, and those keys; what was there before may stay."""
    known = {(key.name, key.value) for key in _keys(before)}
    keys = list(_keys(text))
    dropped = [key for key in keys if (key.name, key.value) not in known and not _is_harmless(key)]
    if not dropped:
        return text, []
    lines: list[str] = []
    header = ""
    for key in keys:
        if key in dropped:
            continue
        if key.header != header:
            header = key.header
            lines.append(header)
        name = key.name.rpartition(".")[2]
        lines.append(f"\t{name} = {key.value}" if key.value else f"\t{name}")
    return "\n".join([*lines, ""]), dropped


def _is_harmless(key: GitKey) -> bool:
    if key.is_program:
        return False
    if fnmatchcase(key.name, "remote.*.url") or fnmatchcase(key.name, "remote.*.pushurl"):
        return True
    if fnmatchcase(key.name, "submodule.*.url"):
        return True
    return any(fnmatchcase(key.name, pattern) for pattern in _HARMLESS)


def _keys(text: str) -> Iterator[GitKey]:
    section = header = ""
    for line in _logical_lines(text):
        rest = line
        while match := _HEADER.match(rest):
            name, sub, rest = match[1].lower(), match[2], match[3]
            section = f"{name}.{sub}" if sub is not None else name
            header = f'[{match[1]} "{sub}"]' if sub is not None else f"[{match[1]}]"
        if not rest.strip() or rest.lstrip()[0] in "#;":
            continue
        if match := _KEY.fullmatch(rest):
            yield GitKey(f"{section}.{match[1].lower()}", (match[2] or "").strip(), header)
        else:
            # What is no line of a configuration makes git refuse the file, unless this reader is wrong about it.
            yield GitKey("include.unreadable", rest.strip(), header or "[include]")


def _logical_lines(text: str) -> Iterator[str]:
    held = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        if line.endswith("\\"):
            held += line[:-1]
            continue
        yield held + line
        held = ""
    if held:
        yield held
