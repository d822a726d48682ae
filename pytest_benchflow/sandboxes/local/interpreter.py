"""Interpret the instructions of a Dockerfile, with the host's own system and tools as what FROM names."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import UnsupportedError
from pytest_benchflow.sandboxes.dockerfile import Dockerfile, Heredoc, Instruction, json_words, without_heredoc_marks
from pytest_benchflow.sandboxes.local.standins import StandIn, StandInError, System, problem_of_command
from pytest_benchflow.sandboxes.startup import DEFAULT_SHELL, ImageHealthcheck, healthcheck_of, seconds

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.local.toolchains import ToolFiles


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """Settings that hold for everything run after them."""

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    shell: tuple[str, ...] = DEFAULT_SHELL
    dirs: tuple[str, ...] = ()
    """Every WORKDIR and VOLUME since the last step: they exist from then on."""
    entrypoint: tuple[str, ...] = ()
    healthcheck: ImageHealthcheck | None = None


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run a command."""

    line: int
    text: str
    argv: tuple[str, ...]
    image: ImageConfig
    args: Mapping[str, str]
    script: str | None = None
    """What the program reads from its standard input."""


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copy files of the build context."""

    line: int
    text: str
    sources: tuple[str, ...]
    target: str
    """Absolute; a slash at its end means a directory."""
    image: ImageConfig
    owner: str | None = None
    mode: int | None = None
    unpack: bool = False
    """ADD: local archives are unpacked."""
    files: tuple[tuple[str, str], ...] = ()
    """Names and contents of files that the Dockerfile itself holds."""
    stage: int | None = None
    """Take the sources from this stage or image, where they are absolute paths, instead of the build context."""


@dataclass(frozen=True, slots=True)
class ToolStep:
    """Put a tool of the host where the base image has it."""

    line: int
    text: str
    files: ToolFiles
    image: ImageConfig


BuildStep = RunStep | CopyStep | ToolStep


@dataclass(frozen=True, slots=True)
class BuildStage:
    """A stage that others copy from."""

    steps: tuple[BuildStep, ...]
    """From the host on."""
    dirs: tuple[str, ...]
    """Every WORKDIR after the last step."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """All of a Dockerfile: what to do and what comes out."""

    steps: tuple[BuildStep, ...]
    image: ImageConfig
    notes: tuple[str, ...]
    stages: tuple[BuildStage, ...] = ()
    """All that can be copied from: stages before the last, and images."""


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")


class SubstitutionError(ValueError):
    """A word that cannot be read."""


def split_words(text: str, escape: str = "\\") -> list[str]:
    """Split at unquoted blanks, leaving quotes and escapes in place."""
    words: list[str] = []
    current, quote, i = "", "", 0
    while i < len(text):
        char = text[i]
        if char == escape and quote != "'" and i + 1 < len(text):
            current += text[i : i + 2]
            i += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char.isspace():
            if current:
                words.append(current)
            current = ""
            i += 1
            continue
        current += char
        i += 1
    if quote:
        raise SubstitutionError(f"a {quote} is never closed")
    return [*words, current] if current else words


def expand(text: str, variables: Mapping[str, str], escape: str = "\\") -> str:
    """Replace variables and take quotes and escapes away, as a shell would."""
    return _Expander(text, variables, escape).run()


def expand_text(text: str, variables: Mapping[str, str], escape: str = "\\") -> str:
    """Replace variables as in a here-document, where quotes are ordinary characters."""
    return _Expander(text, variables, escape, quotes="").run()


class _Expander:
    def __init__(
        self, text: str, variables: Mapping[str, str], escape: str, depth: int = 0, quotes: str = "'\""
    ) -> None:
        if depth > 50:
            raise SubstitutionError("variables are nested too deeply")
        self._text = text
        self._variables = variables
        self._escape = escape
        self._depth = depth
        self._quotes = quotes
        self._i = 0

    def run(self) -> str:
        out: list[str] = []
        quote = ""
        while self._i < len(self._text):
            char = self._text[self._i]
            if char == self._escape and quote != "'":
                out.append(self._escaped(quote))
            elif char == "$" and quote != "'":
                out.append(self._variable())
            elif char in self._quotes and quote in ("", char):
                quote = "" if quote else char
                self._i += 1
            else:
                out.append(char)
                self._i += 1
        if quote:
            raise SubstitutionError(f"a {quote} is never closed")
        return "".join(out)

    def _escaped(self, quote: str) -> str:
        following = self._text[self._i + 1 : self._i + 2]
        self._i += 2
        # Inside double quotes and here-documents only these lose their escape.
        plain = ("$", self._escape) if not self._quotes else ('"', "$", self._escape) if quote else (following,)
        if following not in plain:
            return self._escape + following
        return following

    def _variable(self) -> str:
        self._i += 1
        if self._text[self._i : self._i + 1] == "{":
            return self._braced()
        match = _NAME.match(self._text, self._i)
        if match is None:
            return "$"
        self._i = match.end()
        return self._variables.get(match[0], "")

    def _braced(self) -> str:
        end = self._closing_brace()
        body = self._text[self._i + 1 : end]
        self._i = end + 1
        match = _NAME.match(body)
        if match is None:
            raise SubstitutionError(f"${{{body}}} does not name a variable")
        value, rest = self._variables.get(match[0]), body[match.end() :]
        if not rest:
            return value or ""
        operator = rest[: 2 if rest[0] == ":" else 1]
        word = rest[len(operator) :]
        present = bool(value) if operator.startswith(":") else value is not None
        if operator in (":-", "-"):
            return (value or "") if present else self._nested(word)
        if operator in (":+", "+"):
            return self._nested(word) if present else ""
        raise SubstitutionError(f"${{{body}}} is not supported; use ${{NAME:-default}} or ${{NAME:+value}}")

    def _nested(self, word: str) -> str:
        return _Expander(word, self._variables, self._escape, self._depth + 1).run()

    def _closing_brace(self) -> int:
        depth = 0
        for index in range(self._i, len(self._text)):
            if self._text[index] == "{":
                depth += 1
            elif self._text[index] == "}":
                depth -= 1
                if depth == 0:
                    return index
        raise SubstitutionError("a ${ is never closed")


#: The steps of a stage, the settings after them, and the distribution that it says it is.
_Stage = tuple[tuple[BuildStep, ...], ImageConfig, System]
#: What Docker calls the machine that a kernel names like this.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MAKE_USER = "useradd --create-home --user-group --shell /bin/bash --uid 1000 {user}"


@dataclass(frozen=True, slots=True)
class _Mount:
    """What is at a place while a command runs."""

    target: str
    source: str | None
    """None for an empty directory."""
    stage: str | None
    """Where the source is, if not in the build context."""


#: What is at the place of a mount already comes back after the command.
_SET_ASIDE = """for place in {places}; do
  if [ -e "$place" ] || [ -L "$place" ]; then mv -- "$place" "$place.aside" || exit 1; fi
  mkdir -p -- "$(dirname -- "$place")" || exit 1
done"""
_PUT_BACK = """for place in {places}; do
  rm -rf -- "$place" || exit 1
  if [ -e "$place.aside" ] || [ -L "$place.aside" ]; then mv -- "$place.aside" "$place" || exit 1; fi
done"""
_COPY_FLAGS = frozenset({"chown", "chmod", "from", "link"})


def _host_alone(image: str) -> StandIn:
    return StandIn(f"{image} is the host's own system here")


def make_plan(file: Dockerfile, path: str = "", stand_in: Callable[[str], StandIn] = _host_alone) -> BuildPlan:
    """Turn a Dockerfile into steps and the settings they leave; refuse what only an image build can do.

    `path` is the PATH of the base, which `ENV PATH=/mine:$PATH` adds to; `stand_in` finds what serves as an image.
    """
    return _Planner(file, path, stand_in).run()


class _Planner:
    def __init__(self, file: Dockerfile, path: str, stand_in: Callable[[str], StandIn]) -> None:
        self._file = file
        self._base = {"PATH": path}
        self._find_stand_in = stand_in
        self._system = System()
        """The distribution that the stage says it stands on."""
        self._image = ImageConfig()
        self._args: dict[str, str] = {}
        self._global_args = _platform_args(os.uname().machine)
        self._in_stage = False
        self._stages: list[_Stage] = []
        self._stage = 0
        """Which of them is being read."""
        self._count = 0
        """How many FROM there were."""
        self._names: dict[str, int] = {}
        """Stages by name and by number."""
        self._stand_ins: dict[str, StandIn] = {}
        self._errors: dict[int, UnsupportedError] = {}
        """Why a stage cannot be built, which matters only where it is needed."""
        self._steps: list[BuildStep] = []
        self._notes: list[str] = []
        self._ignored: list[str] = []

    def run(self) -> BuildPlan:
        for item in self._file.instructions:
            try:
                self._interpret(item)
            except SubstitutionError as error:
                raise self._file.error(item.line, f"{item.keyword} {item.text}: {error}") from None
        self._check(self._stage, self._steps)
        if self._ignored:
            self._notes.append(f"{', '.join(sorted(set(self._ignored)))} has no effect in the local sandbox")
        stages = tuple(BuildStage(steps, image.dirs) for steps, image, _ in self._stages)
        return BuildPlan(tuple(self._steps), self._image, tuple(dict.fromkeys(self._notes)), stages)

    def _check(self, stage: int, steps: Iterable[BuildStep]) -> None:
        """Refuse a stage that cannot be built here, or that copies from one."""
        if stage in self._errors:
            raise self._errors[stage]
        for step in steps:
            if isinstance(step, CopyStep) and step.stage is not None:
                self._check(step.stage, self._stages[step.stage][0])

    def _interpret(self, item: Instruction) -> None:
        match item.keyword:
            case "FROM":
                self._from(item)
            case "ARG":
                self._arg(item)
            case "ENV":
                self._image = replace(self._image, env={**self._image.env, **self._env(item)})
            case "WORKDIR":
                path = self._absolute(self._expand(item.text))
                self._image = replace(self._image, workdir=path, dirs=(*self._image.dirs, path))
            case "USER":
                self._image = replace(self._image, user=self._expand(item.text))
            case "SHELL":
                if item.words is None:
                    raise self._file.error(item.line, 'SHELL takes a list, for example SHELL ["/bin/bash", "-c"]')
                self._image = replace(self._image, shell=item.words)
            case "VOLUME":
                words = item.words or split_words(item.text, self._file.escape)
                places = tuple(self._absolute(self._expand(word)) for word in words)
                self._image = replace(self._image, dirs=(*self._image.dirs, *places))
            case "ENTRYPOINT":
                self._image = replace(self._image, entrypoint=self._entrypoint(item))
            case "HEALTHCHECK":
                self._image = replace(self._image, healthcheck=self._healthcheck(item))
            case "RUN":
                self._run(item)
            case "COPY" | "ADD":
                self._copy(item)
            case "ONBUILD":
                raise self._file.unsupported(item.line, "ONBUILD is not supported here")
            case _:
                self._ignored.append(item.keyword)

    def _from(self, item: Instruction) -> None:
        if self._in_stage:
            self._stages[self._stage] = (tuple(self._steps), self._image, self._system)
        self._in_stage = True
        base = expand(item.text, self._global_args, self._file.escape).split()
        if len(base) != 1 and not (len(base) == 3 and base[1].upper() == "AS"):
            raise self._file.error(item.line, f"FROM {item.text} is neither FROM IMAGE nor FROM IMAGE AS NAME")
        parent = self._names.get(base[0].lower())
        finished = self._stages[parent] if parent is not None else self._begin(item.line, "FROM ", base[0])
        steps, self._image, self._system = finished
        self._steps, self._args = list(steps), {}
        self._stage = len(self._stages)
        if parent in self._errors:
            self._errors[self._stage] = self._errors[parent]
        self._stages.append(finished)
        self._names[str(self._count)] = self._stage
        self._count += 1
        if len(base) == 3:
            self._names[base[2].lower()] = self._stage

    def _begin(self, line: int, keyword: str, image: str) -> _Stage:
        """Return the stage that only has what stands in for an image."""
        if image not in self._stand_ins:
            try:
                self._stand_ins[image] = self._find_stand_in(image)
            except StandInError as error:
                self._errors[len(self._stages)] = UnsupportedError(
                    f"{self._file.name}:{line}: {keyword}{image}: {error}", advice=error.advice
                )
                return (), ImageConfig(), System()
        stand_in = self._stand_ins[image]
        self._notes.append(f"{keyword}{stand_in.note}")
        env = dict(stand_in.env)
        if stand_in.path:
            env["PATH"] = ":".join([*stand_in.path, self._base["PATH"]])
        config = ImageConfig(env=env)
        steps: list[BuildStep] = [ToolStep(line, keyword + image, files, config) for files in stand_in.files]
        scripts = [stand_in.script, self._user_script(stand_in)]
        steps += [RunStep(line, keyword + image, (*DEFAULT_SHELL, script), config, {}) for script in scripts if script]
        if stand_in.workdir:
            config = replace(config, workdir=stand_in.workdir, dirs=(stand_in.workdir,))
        return tuple(steps), config, stand_in.system

    def _user_script(self, stand_in: StandIn) -> str | None:
        """Return what makes the image's user; one that nobody names is spared where nothing else has to be built."""
        user = stand_in.user
        if user is None:
            return None
        name = re.compile(rf"(?<![\w-]){user}(?![\w-])")
        others = (item.text for item in self._file.instructions if item.keyword != "FROM")
        if not stand_in.files and not any(name.search(text) for text in others):
            return None
        return _MAKE_USER.format(user=user)

    def _entrypoint(self, item: Instruction) -> tuple[str, ...]:
        if item.text.replace(" ", "") == "[]":
            return ()
        return item.words or (*self._image.shell, item.text)

    def _healthcheck(self, item: Instruction) -> ImageHealthcheck | None:
        kind, _, rest = item.text.partition(" ")
        if kind.upper() not in ("CMD", "NONE"):
            raise self._file.error(
                item.line, f"HEALTHCHECK {item.text} is neither HEALTHCHECK CMD … nor HEALTHCHECK NONE"
            )
        times = {name: item.flags.get(name.replace("_", "-")) for name in ("interval", "timeout", "start_period")}
        if wrong := next((text for text in times.values() if text and seconds(text) is None), None):
            raise self._file.error(item.line, f"HEALTHCHECK: {wrong} is not a duration, such as 10s or 1m30s")
        retries = item.flags.get("retries", "3")
        if not retries.isdecimal():
            raise self._file.error(item.line, f"HEALTHCHECK --retries={retries} is not a number")
        words = json_words(rest.strip())
        test = (kind.upper(), *words) if words else (f"{kind.upper()}-SHELL", rest.strip())
        known = {name: seconds(text) for name, text in times.items() if text}
        return healthcheck_of(test if rest else (), known, int(retries), self._image.shell)

    def _arg(self, item: Instruction) -> None:
        for word in split_words(item.text, self._file.escape):
            name, given, default = word.partition("=")
            if not self._in_stage:
                self._global_args[name] = expand(default, self._global_args, self._file.escape)
            elif given:
                self._args[name] = self._expand(default)
            elif name in self._global_args:
                self._args[name] = self._global_args[name]

    def _env(self, item: Instruction) -> dict[str, str]:
        words = split_words(item.text, self._file.escape)
        if "=" not in words[0]:
            # The old form: one name, and all the rest is its value.
            name, *value = item.text.split(maxsplit=1)
            if not value:
                raise self._file.error(item.line, f"ENV {item.text} has no value; write ENV {name}=value")
            return {name: self._expand(value[0])}
        if wrong := next((word for word in words if "=" not in word), None):
            raise self._file.error(item.line, f"ENV {wrong} has no value; write {wrong}=value")
        pairs = (word.partition("=") for word in words)
        return {self._expand(name): self._expand(value) for name, _, value in pairs}

    def _run(self, item: Instruction) -> None:
        mounts = self._mounts(item)
        if flag := next((flag for flag, value in item.flags.items() if flag != "mount" and value != "default"), None):
            raise self._file.unsupported(item.line, f"RUN --{flag} is not supported here")
        commands = "\n".join([item.text, *(heredoc.content for heredoc in item.heredocs)])
        if problem := problem_of_command(commands, self._system):
            self._errors.setdefault(self._stage, self._file.unsupported(item.line, f"RUN: {problem}"))
        argv, script = item.words, None
        if argv is None:
            argv, script = _command(item, self._image.shell)
        places = " ".join(shlex.quote(mount.target) for mount in mounts)
        if mounts:
            self._add_script(item, _SET_ASIDE.format(places=places))
        for mount in mounts:
            if mount.source is None:
                self._add_script(item, f"mkdir -m 1777 -- {shlex.quote(mount.target)}")
            else:
                self._add(self._mount_step(item, mount, mount.source))
        self._add(RunStep(item.line, item.text, argv, self._image, dict(self._args), script))
        if mounts:
            self._add_script(item, _PUT_BACK.format(places=places))

    def _mounts(self, item: Instruction) -> list[_Mount]:
        """Return what a RUN sees for its time only; without caches, secrets and agents it works too, or must fail."""
        mounts = []
        for word in item.flags.get("mount", "").split():
            facts = dict(_pair(part) for part in self._expand(word).split(","))
            kind = facts.get("type", "bind")
            target = facts.get("target") or facts.get("dst") or facts.get("destination")
            if kind in ("secret", "ssh") and facts.get("required", "false") == "false":
                continue
            if kind not in ("cache", "bind", "tmpfs") or (kind != "cache" and target is None):
                raise self._file.unsupported(item.line, f"RUN --mount={word} is not supported here")
            if kind != "cache":
                source = facts.get("source") or facts.get("src") or "."
                path = self._absolute(target or "")
                mounts.append(_Mount(path, None if kind == "tmpfs" else source, facts.get("from")))
        return mounts

    def _mount_step(self, item: Instruction, mount: _Mount, source: str) -> CopyStep:
        """Return the step that copies what is to be seen: what a RUN writes there does not stay in Docker either."""
        stage = None
        if mount.stage is not None:
            stage = self._stage_named(item, mount.stage)
            source = posixpath.normpath(f"/{source}").replace("//", "/")
        image = replace(self._image, user=None)
        return CopyStep(item.line, f"RUN {item.text}", (source,), mount.target, image, stage=stage)

    def _add_script(self, item: Instruction, script: str) -> None:
        image = replace(self._image, user=None, workdir="/")
        self._add(RunStep(item.line, item.text, (*DEFAULT_SHELL, script), image, {}))

    def _copy(self, item: Instruction) -> None:
        stage = self._source_stage(item)
        if unknown := sorted(set(item.flags) - _COPY_FLAGS):
            raise self._file.unsupported(item.line, f"{item.keyword} --{unknown[0]} is not supported here")
        raw = item.words or split_words(without_heredoc_marks(item.text), self._file.escape)
        words = [self._expand(word) for word in raw]
        if len(words) + len(item.heredocs) < 2 or not words:
            raise self._file.error(item.line, f"{item.keyword} {item.text} needs a source and a target")
        if url := next((word for word in words[:-1] if "://" in word or word.startswith("git@")), None):
            raise self._file.unsupported(item.line, f"{item.keyword} {url}: downloading is not supported here")
        sources, target = tuple(words[:-1]), self._target(words[-1])
        if len(sources) + len(item.heredocs) > 1 and not target.endswith("/"):
            raise self._file.error(
                item.line, f"{item.keyword} of several files needs a directory; write {words[-1]}/ as its target"
            )
        if stage is not None:
            sources = tuple(posixpath.normpath(f"/{word}").replace("//", "/") for word in sources)
        self._add(
            CopyStep(
                item.line,
                f"{item.keyword} {item.text}",
                sources,
                target,
                self._image,
                owner=self._expand(item.flags["chown"]) if "chown" in item.flags else None,
                mode=self._mode(item),
                unpack=item.keyword == "ADD",
                files=tuple((file.name, self._content(file)) for file in item.heredocs),
                stage=stage,
            )
        )

    def _add(self, step: BuildStep) -> None:
        self._steps.append(step)
        self._image = replace(self._image, dirs=())

    def _source_stage(self, item: Instruction) -> int | None:
        if "from" not in item.flags:
            return None
        if item.heredocs:
            raise self._file.error(item.line, f"{item.keyword} --from cannot take a here-document")
        return self._stage_named(item, item.flags["from"])

    def _stage_named(self, item: Instruction, name: str) -> int:
        stage = self._names.get(name.lower())
        if stage == self._stage:
            raise self._file.error(item.line, f"{item.keyword} --from={name} names the stage that it stands in")
        if stage is None:
            stage = self._names[name.lower()] = len(self._stages)
            self._stages.append(self._begin(item.line, f"{item.keyword} --from=", name))
        return stage

    def _content(self, file: Heredoc) -> str:
        if file.literal:
            return file.content
        return expand_text(file.content, {**self._base, **self._args, **self._image.env}, self._file.escape)

    def _mode(self, item: Instruction) -> int | None:
        if "chmod" not in item.flags:
            return None
        text = self._expand(item.flags["chmod"])
        try:
            return int(text, 8)
        except ValueError:
            raise self._file.error(item.line, f"--chmod={text} is not an octal number; write for example 755") from None

    def _target(self, path: str) -> str:
        full = self._absolute(path)
        is_directory = path in (".", "..") or path.endswith(("/", "/.", "/.."))
        return f"{full.rstrip('/')}/" if is_directory else full

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join("/", self._image.workdir or "/", path)).replace("//", "/")

    def _expand(self, text: str) -> str:
        return expand(text, {**self._base, **self._args, **self._image.env}, self._file.escape)


def _platform_args(machine: str) -> dict[str, str]:
    """Return the arguments that every build has without giving them a value."""
    architecture = _ARCHITECTURES.get(machine, machine)
    facts = {"PLATFORM": f"linux/{architecture}", "OS": "linux", "ARCH": architecture, "VARIANT": ""}
    return {f"{side}{name}": value for side in ("BUILD", "TARGET") for name, value in facts.items()}


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.lower(), value


def _command(item: Instruction, shell: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Return the program of a RUN in its shell form, and the script that it reads if that is not the shell's."""
    if not item.heredocs:
        return (*shell, item.text), None
    script = item.heredocs[0].content
    if without_heredoc_marks(item.text):
        # The shell itself reads what belongs to its command line.
        bodies = "".join(f"{file.content}{file.name}\n" for file in item.heredocs)
        return (*shell, f"{item.text}\n{bodies}"), None
    if not script.startswith("#!"):
        return (*shell, script), None
    first = script.partition("\n")[0]
    return (*first.removeprefix("#!").split(maxsplit=1), "/dev/stdin"), script
