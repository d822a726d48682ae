"""What a task says about files of an agent's, and what is to be done about them before its verifier runs."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_benchflow.verify.integrity import Finding, FindingKind
from pytest_benchflow.verify.scan import ScannedFile

if TYPE_CHECKING:
    from pytest_benchflow.tasks import Hardening

#: What nobody writes into a test configuration who only wants to test.
INCRIMINATING = re.compile(
    r"/logs/verifier|reward\.(?:txt|json)|ctrf\.json|(?<![\w./-])/(?:tests|verifier|solution|oracle)\b|test_outputs|LD_PRELOAD"
    r"|pytest_(?:runtest_makereport|runtest_logreport|runtest_call|runtest_protocol|pyfunc_call|collection_modifyitems"
    r"|sessionfinish|unconfigure|report_teststatus|cmdline|itemcollected|ignore_collect|terminal_summary)"
    r"|os\._exit|sys\.settrace|sys\.addaudithook|\.outcome\s*=|atexit"
)
_COMMAND = re.compile(r"[<>|;$={}()\[\]\\\"]|^\s*[#+]|^\s*(?:cp|mv|ln|rm|mkdir|touch|install|chmod|sed|cat|echo)\s")
_PROSE = re.compile(r"\b(?:the|a|an|that|so|your|must|should|please|with|and|is|are|to|in|of|it|you)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Context:
    """What the task says that decides whether a file is an agent's business."""

    workdir: str
    instruction: str
    hardening: Hardening
    solution: str = ""
    """The task's own solution, as far as it is text: what it changes, agents are asked to change."""
    tops: tuple[str, ...] = ()
    """Directories in which Python may look for modules first."""
    imports: frozenset[str] = frozenset()
    """Names of modules that the tests import."""
    own_modules: frozenset[str] = frozenset()
    """Names of modules that the tests bring along."""
    places: frozenset[str] = frozenset()
    """Directories that the tests name where they copy or run something: tests may come to stand in them."""
    brought: frozenset[str] = frozenset()
    """Names of files that the tests bring along."""
    copies: frozenset[str] = frozenset()
    """Where the tests copy files to."""
    is_copy: bool = False
    """Whether the workspace is a copy in another sandbox, where links into the system did not come along."""
    programs: tuple[str, ...] = ()
    """Directories of programs that the agent may write to."""
    path: tuple[str, ...] = ()
    """The directories of the image's PATH."""
    installed: frozenset[str] = frozenset()
    """Names of what is installed for the system's interpreters."""
    known_programs: frozenset[str] = frozenset()
    """Names of programs that are elsewhere on the path."""

    @property
    def prose(self) -> str:
        """The sentences of the instruction: what only looks like a command is not what a task asks for."""
        lines = self.instruction.splitlines()
        return "\n".join(line for line in lines if not _COMMAND.search(line) and len(_PROSE.findall(line)) > 1)

    def is_place_of_tests(self, directory: str) -> bool:
        """Return whether tests stand in a directory or may come to stand in it."""
        top = self.workdir.rstrip("/")
        if directory == top or directory in self.places:
            return True
        parts = directory.removeprefix(top).split("/")
        return any(re.fullmatch(r"tests?|test_\w+|\w+_tests?", part) for part in parts)

    def is_brought(self, path: str) -> bool:
        """Return whether the tests copy one of their files to a path, as far as one can see."""
        directory, name = posixpath.split(path)
        return path in self.copies or (name in self.brought and directory in self.copies)

    def asks_for(self, name: str) -> bool:
        """Return whether the instruction or the solution speaks of `NAME.py`, or of a package `NAME/`."""
        word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?!\w)")
        return any(map(word.search, (self.prose, self.solution)))

    def names(self, path: str) -> bool:
        """Return whether the instruction or the solution speaks of a file of this name, so that it is asked for."""
        name = re.compile(rf"(?<![\w.-]){re.escape(posixpath.basename(path))}(?![\w-])")
        return name.search(self.prose) is not None or name.search(self.solution) is not None


@dataclass(slots=True)
class Plan:
    """What is to be removed and written before the verifier runs."""

    remove: dict[str, None] = field(default_factory=dict)
    write: dict[str, ScannedFile] = field(default_factory=dict)
    link: dict[str, str] = field(default_factory=dict)
    restore: dict[str, None] = field(default_factory=dict)
    """What only the image can give back, if it has it."""
    findings: list[Finding] = field(default_factory=list)
    ignores_hooks: bool = False
    """Whether git must not run hooks: they may stay, for tests may look at them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.remove or self.write or self.link)

    def drop(self, path: str) -> None:
        """Have a path removed."""
        self.remove[path] = None

    def report(self, kind: FindingKind, message: str, *paths: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(kind=kind, message=message, paths=list(paths)))
