"""Configuration of test runners, and of tools that share its files: told apart from what an agent may change."""

from __future__ import annotations

import configparser
import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Mapping

from iniconfig import IniConfig, ParseError

from pytest_benchflow.verify.scan import ScannedFile

_PACKAGE_KEYS = ("jest", "mocha", "ava", "nyc", "c8", "tap", "vitest")
#: Settings of pytest that load nothing and leave nothing out.
_HARMLESS_KEYS = frozenset(
    {"minversion", "markers", "asyncio_mode", "asyncio_default_fixture_loop_scope", "xfail_strict"}
    | {"console_output_style", "log_cli", "log_level", "log_cli_level", "timeout", "addopts", "pythonpath"}
)
_HARMLESS_OPTION = re.compile(
    r"-q+|-v+|-r\w*|-l|-s|--tb=\w+|--strict(?:-markers|-config)?|--color=\w+|--durations=\d+|--no-header|-x|--verbose"
    r"|--quiet|--showlocals|-n\s*\w+"
)


def is_harmless_ini(text: str) -> bool:
    """Return whether a pytest.ini only says how to print and where tests are."""
    sections = _sections_for_pytest(text)
    if sections is None or not {*sections} <= {"pytest"}:
        return False
    return are_harmless_settings(sections.get("pytest", {}))


def is_harmless_toml(text: str) -> bool:
    """Return whether a pytest.toml only says how to print and where tests are."""
    try:
        data = tomllib.loads(text)
    except ValueError:
        return False
    return {*data} <= {"pytest"} and are_harmless_settings(_table(data.get("pytest")))


def are_harmless_settings(settings: Mapping[str, object]) -> bool:
    """Return whether settings of pytest load nothing, and leave out no tests."""
    settings = {key: value for key, value in settings.items() if key != "testpaths" or not _names_tests(value)}
    if not {*settings} <= _HARMLESS_KEYS:
        return False
    options = settings.get("addopts", "")
    words = options.split() if isinstance(options, str) else [str(word) for word in _list(options)]
    paths = settings.get("pythonpath", "")
    places = paths.split() if isinstance(paths, str) else [str(place) for place in _list(paths)]
    return all(map(_HARMLESS_OPTION.fullmatch, words)) and {*places} <= {".", "src", "lib"}


def _names_tests(value: object) -> bool:
    words = value.split() if isinstance(value, str) else [str(word) for word in _list(value)]
    return {*words} <= {"tests", "test", "."}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def adds_only_harmless(old: ScannedFile | None, file: ScannedFile) -> bool:
    """Return whether a file that is new has only settings of pytest that do no harm."""
    if old is not None:
        return False
    try:
        if posixpath.basename(file.path) == "pyproject.toml":
            tool = _toml_of_tests(file.text)
            pytest = _table(_table(tool).get("pytest"))
            return {*_table(tool)} <= {"pytest"} and are_harmless_settings(_table(pytest.get("ini_options", pytest)))
        sections = _ini(file.text)
        if any("coverage" in name for name in sections):
            return False
        return all(are_harmless_settings(values) for name, values in sections.items())
    except (ValueError, configparser.Error):
        return False


def with_scripts_of(
    old: ScannedFile | None, file: ScannedFile, *, may_rename: Callable[[str], bool] = lambda name: False
) -> str | None:
    """Return a package.json whose scripts and runner settings are those from before; None if there is no before.

    So is its name, by which node would find the project itself before any package, unless another one is asked for;
    and so is what its own aliases for packages mean.
    """
    if old is None:
        return None
    try:
        before, now = json.loads(old.text), json.loads(file.text)
    except ValueError:
        return old.text
    if not isinstance(before, dict) or not isinstance(now, dict):
        return old.text
    now = _with_names_of(before, now, may_rename)
    if all(before.get(key) == now.get(key) for key in ("scripts", *_PACKAGE_KEYS)):
        return file.text if now == json.loads(file.text) else json.dumps(now, indent=2, ensure_ascii=False) + "\n"
    own = {key: value for key, value in now.items() if key not in ("scripts", *_PACKAGE_KEYS)}
    kept = {key: before[key] for key in ("scripts", *_PACKAGE_KEYS) if key in before}
    # Commands that the agent has added beside those from before are its work, except for those that npm runs by itself.
    added, known = _table(now.get("scripts")), _table(before.get("scripts"))
    hooks = {f"{when}{name}" for name in (*known, "test", "install") for when in ("pre", "post")}
    more = {name: text for name, text in added.items() if name not in known and name not in (*hooks, "prepare")}
    if known or more:
        kept["scripts"] = {**known, **more}
    return json.dumps({**own, **kept}, indent=2, ensure_ascii=False) + "\n"


def _with_names_of(
    before: dict[str, object], now: dict[str, object], may_rename: Callable[[str], bool]
) -> dict[str, object]:
    changed = dict(now)
    name = now.get("name")
    if "exports" in now and name != before.get("name") and not (isinstance(name, str) and may_rename(name)):
        changed.pop("name", None)
        if "name" in before:
            changed["name"] = before["name"]
    aliases = _table(before.get("imports"))
    if aliases and _table(now.get("imports")) | aliases != _table(now.get("imports")):
        changed["imports"] = {**_table(now.get("imports")), **aliases}
    return changed


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


_TOML_HEADER = re.compile(r"^\s*\[{1,2}\s*([^\]]+?)\s*\]{1,2}\s*(?:#.*)?$")


def _toml_of_tests(text: str) -> object:
    data = tomllib.loads(text)
    tool = data.get("tool", {}) if isinstance(data.get("tool", {}), dict) else {}
    return {key: tool[key] for key in ("pytest", "coverage") if key in tool}


def with_toml_of(old: ScannedFile | None, file: ScannedFile) -> str | None:
    """Return a pyproject.toml whose settings of pytest are those from before."""
    before = "" if old is None else old.text
    try:
        wanted = _toml_of_tests(before)
    except ValueError:
        return before
    try:
        if _toml_of_tests(file.text) == wanted:
            return file.text
        text = _without_sections(file.text, _TOML_HEADER, _is_toml_of_tests) + _only_sections(before)
        if _toml_of_tests(text) == wanted:
            return text
    except ValueError:
        pass
    return before


def _is_toml_of_tests(header: str) -> bool:
    return re.match(r"tool\s*\.\s*[\"']?(?:pytest|coverage)\b", header) is not None


def _only_sections(text: str) -> str:
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if match := _TOML_HEADER.match(line):
            inside = _is_toml_of_tests(match[1])
        if inside:
            kept.append(line)
    return "".join(kept)


def _without_sections(text: str, header: re.Pattern[str], is_dropped: object) -> str:
    assert callable(is_dropped)
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if match := header.match(line):
            inside = is_dropped(match[1])
        if not inside:
            kept.append(line)
    joined = "".join(kept)
    return joined if not joined or joined.endswith("\n") else joined + "\n"


_INI_OF_TESTS = frozenset({"pytest", "tool:pytest", "coverage:run", "tool:coverage"})


def with_ini_of(old: ScannedFile | None, file: ScannedFile) -> str | None:
    """Return a setup.cfg or tox.ini whose settings of pytest are those from before."""
    before = "" if old is None else old.text
    try:
        was, now = _ini(before), _ini(file.text)
    except configparser.Error:
        return before
    if was == now:
        return file.text
    header = re.compile(r"^\[([^\]]+)\]")
    own = _without_sections(file.text, header, lambda name: name.strip() in _INI_OF_TESTS)
    kept = _without_sections(before, header, lambda name: name.strip() not in _INI_OF_TESTS)
    text = own + (kept[kept.index("[") :] if "[" in kept else "")
    try:
        return text if _ini(text) == was else before
    except configparser.Error:
        return before


def _ini(text: str) -> dict[str, dict[str, str]]:
    """Return the sections that say how tests run, as pytest reads them and, for coverage, as Python does."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string("\n".join(text.splitlines()))
    sections = {name: dict(parser[name]) for name in parser.sections() if name.strip() in _INI_OF_TESTS}
    for_pytest = _sections_for_pytest(text) or {}
    return sections | {f"{name} for pytest": for_pytest[name] for name in _INI_OF_TESTS & {*for_pytest}}


def _sections_for_pytest(text: str) -> dict[str, dict[str, str]] | None:
    """Return all sections as pytest sees them, None for a file that it refuses."""
    try:
        config = IniConfig("", text.replace("\r\n", "\n").replace("\r", "\n"))
    except ParseError:
        return None
    return {section.name: dict(section.items()) for section in config}
