"""Read manifests from TOML; what is wrong with one is one error that names the file and every bad key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_benchflow.agents.legacy import from_config, is_config
from pytest_benchflow.agents.manifest import EARLY_NAMES, LATE_NAMES, AgentManifest, Quirks, build
from pytest_benchflow.agents.template import names_in
from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.providers import PROVIDERS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def read_manifest(path: Path | str) -> AgentManifest:
    """Return the manifest in a file."""
    import tomli

    try:
        data = tomli.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not valid TOML: {error}"
        raise UsageError(f"{path}: {reason}") from None
    return parse_manifest(data, str(path))


def parse_manifest(data: Mapping[str, object], source: str) -> AgentManifest:
    """Return the manifest that a table describes; `source` is how messages name it."""
    problems: list[str] = []
    manifest = from_config(data, problems) if is_config(data) else build(AgentManifest, data, problems)
    if manifest is not None:
        problems += _wrong(manifest)
    if manifest is None or problems:
        raise UsageError("\n".join(f"{source}: {problem}" for problem in problems))
    return manifest


def check_manifest(manifest: AgentManifest, source: str) -> None:
    """Refuse a manifest made in Python for the same reasons as one in a file."""
    if problems := [*_wrong(manifest)]:
        raise UsageError("\n".join(f"{source}: {problem}" for problem in problems))


def _wrong(manifest: AgentManifest) -> Iterator[str]:
    """Yield what types cannot tell."""
    for name in (manifest.name, *manifest.aliases):
        if not _NAME.fullmatch(name):
            yield f"{name!r} cannot name an agent; use letters, digits, dots and dashes"
    if not manifest.launch or not manifest.launch[0].strip():
        yield "launch is empty; give the program that speaks ACP"
    if manifest.provider is not None and manifest.provider not in PROVIDERS:
        yield f"provider {manifest.provider!r} is not known; {did_you_mean(manifest.provider, PROVIDERS)}"
    yield from _wrong_install(manifest)
    yield from _wrong_patterns(manifest.quirks)
    for credential in manifest.credentials:
        if (credential.kind == "file") != (credential.path is not None):
            yield f"[[credentials]] {credential.env}: path and kind = 'file' belong together"
    for where, content, known in _templates(manifest):
        for name in names_in(content):
            if name not in known:
                yield f"{where} uses {{{name}}}, which is not known; {did_you_mean(name, known)}"
    for path in _paths(manifest):
        if path.startswith(("/", "~")) or ".." in path.split("/") or not path.strip("./"):
            yield f"{path!r} is not a path in the home directory; write it relative to that"


def _wrong_install(manifest: AgentManifest) -> Iterator[str]:
    install = manifest.install
    for runtime, packages in (("node", install.npm), ("python", install.pip)):
        if bool(getattr(install, runtime)) != bool(packages):
            kind = "npm" if runtime == "node" else "pip"
            yield f"[install] {runtime} and {kind} belong together; give both or none"
    for package in install.npm:
        if "@" not in package[1:]:
            yield f"[install] npm package {package!r} has no version; pin it, for example {package}@1.2.3"
    for package in install.pip:
        if "==" not in package:
            yield f"[install] pip package {package!r} has no version; pin it, for example {package}==1.2.3"


def _wrong_patterns(quirks: Quirks) -> Iterator[str]:
    patterns = [("notices", pattern) for pattern in quirks.notices]
    patterns += [("opening_notices", pattern) for pattern in quirks.opening_notices]
    if quirks.reported_model is not None:
        patterns.append(("reported_model", quirks.reported_model))
    for key, pattern in patterns:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            yield f"[quirks] {key} {pattern!r} is not a regular expression: {error}"
        else:
            if key == "reported_model" and not groups:
                yield f"[quirks] {key} {pattern!r} has no group; put the part that is the model in parentheses"


def _templates(manifest: AgentManifest) -> Iterator[tuple[str, object, frozenset[str]]]:
    yield "[env]", manifest.env, EARLY_NAMES
    yield "launch", manifest.launch, frozenset({"model", "effort"})
    yield "[model] name", manifest.model.name, frozenset({"model", "api", "provider"})
    for protocol, dialect in manifest.protocols.items():
        yield f"[protocols.{protocol}] env", dialect.env, EARLY_NAMES
    for file in manifest.files:
        yield f"[[files]] {file.path}", file.content, EARLY_NAMES
    if manifest.companion is not None:
        yield "[companion]", [*manifest.companion.launch, manifest.companion.env], LATE_NAMES


def _paths(manifest: AgentManifest) -> Iterator[str]:
    yield from (file.path for file in manifest.files)
    yield from (credential.path for credential in manifest.credentials if credential.path is not None)
    yield from manifest.home_dirs
    if manifest.login is not None:
        yield from (manifest.login.detect, *manifest.login.files)
