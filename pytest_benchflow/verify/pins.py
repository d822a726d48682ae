"""The environment of a verifier: the image's own, without what leads into files that the agent could write."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence

#: Lists of directories: what an agent could write to is left out of them.
_LISTS = (
    "LD_LIBRARY_PATH",
    "PERL5LIB",
    "RUBYLIB",
    "LUA_PATH",
    "LUA_CPATH",
    "GCONV_PATH",
    "GUILE_LOAD_PATH",
    *("PERLLIB", "AWKPATH", "AWKLIBPATH", "TCLLIBPATH", "JULIA_LOAD_PATH", "CDPATH"),
)
#: Programs, libraries and settings that are loaded by themselves.
_LOADED = (
    *("LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "ENV", "ZDOTDIR", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONHOME"),
    *("PYTHONPYCACHEPREFIX", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "COVERAGE_PROCESS_START", "NODE_OPTIONS"),
    *("PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "MAKEFLAGS", "MAKEFILES", "GIT_CONFIG_GLOBAL"),
    *("GIT_CONFIG_SYSTEM", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_ASKPASS"),
    *("GIT_EDITOR", "GIT_PAGER", "PIP_CONFIG_FILE", "NPM_CONFIG_USERCONFIG", "npm_config_userconfig", "PAGER"),
    *("EDITOR", "LESSOPEN", "LESSCLOSE", "XDG_CONFIG_HOME", "RUSTC_WRAPPER", "CC_WRAPPER", "CURL_HOME", "WGETRC"),
    *(
        "OPENSSL_CONF",
        "OPENSSL_MODULES",
        "OPENSSL_ENGINES",
        "JDK_JAVA_OPTIONS",
        "MAVEN_OPTS",
        "GRADLE_OPTS",
        "SBT_OPTS",
    ),
    *("LUA_INIT", "R_PROFILE", "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER", "PHPRC", "PHP_INI_SCAN_DIR", "PERL5DB"),
    *(
        "GOFLAGS",
        "GOENV",
        "RUSTFLAGS",
        "RUSTC",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_RUSTC_WRAPPER",
        "GCC_EXEC_PREFIX",
    ),
    *("COMPILER_PATH", "CMAKE_TOOLCHAIN_FILE", "BASH_LOADABLES_PATH", "COVERAGE_RCFILE", "COVERAGE_PROCESS_CONFIG"),
    *("UV_CONFIG_FILE", "NPM_CONFIG_GLOBALCONFIG", "npm_config_globalconfig", "NPM_CONFIG_SCRIPT_SHELL", "INPUTRC"),
    *("npm_config_script_shell", "YARN_RC_FILENAME", "XDG_CONFIG_DIRS", "GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG_PARAMETERS", "GIT_SSH"),
    *("TAR_OPTIONS", "GREP_OPTIONS", "ZIPOPT", "RSYNC_RSH", "GIT_PROXY_COMMAND", "GIT_SEQUENCE_EDITOR", "VISUAL"),
    *("BROWSER", "MANPAGER", "SSH_ASKPASS", "SUDO_ASKPASS", "GLIBC_TUNABLES", "LD_ORIGIN_PATH", "PYTHONPLATLIBDIR"),
    *("PYTHONEXECUTABLE", "DOTNET_STARTUP_HOOKS", "DOTNET_ADDITIONAL_DEPS", "CORECLR_PROFILER_PATH", "JAVA_OPTS"),
    *("CORECLR_PROFILER_PATH_64", "ANT_OPTS", "BUNDLE_GEMFILE", "MAVEN_ARGS", "OCTAVE_SITE_INITFILE", "UV_ENV_FILE"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_TARGET", "PIP_PREFIX", "UV_INDEX", "UV_INDEX_URL"),
    *("UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "APT_CONFIG", "DPKG_ROOT", "DPKG_ADMINDIR"),
    *("TERMINFO", "TERMINFO_DIRS", "NLSPATH"),
    *("SQLITE_HISTORY", "PROMPT_COMMAND", "PYTHONINSPECT", "PYTHONBREAKPOINT", "LOCPATH", "HOSTALIASES"),
)
_WORD = re.compile(r"[^\s:=,;'\"]+")


class Ownership:
    """Tells which paths an agent could write to, from owners and modes of directories before it came."""

    def __init__(self, owners: Mapping[str, tuple[int, int]], uids: Sequence[int], places: Sequence[str]) -> None:
        """Count everything in `places` as the agent's, and what any of its users owns or everyone may write."""
        self._owners = owners
        self._uids = {*uids} - {0}
        self._places = [place.rstrip("/") for place in places if place.rstrip("/")]

    def is_agents(self, path: str) -> bool:
        """Return whether the agent could write to a path or put another in its place; relative ones are its own."""
        if not path.startswith("/"):
            return True
        if any(path == place or path.startswith(f"{place}/") for place in self._places):
            return True
        parent = path.rstrip("/")
        while parent:
            if parent in self._owners:
                uid, mode = self._owners[parent]
                open_to_all = bool(mode & stat.S_IWOTH) and (parent == path or not mode & stat.S_ISVTX)
                if uid in self._uids or open_to_all:
                    return True
            parent = parent.rpartition("/")[0]
        return False


def named_variables() -> str:
    """Return shell words for the values of all variables that may name something that is loaded."""
    return " ".join(f"${{{name}:-}}" for name in ("PATH", "PYTHONPATH", "NODE_PATH", "HOME", *_LISTS, *_LOADED))


def is_loaded(name: str) -> bool:
    """Return whether a variable says what programs load or run by themselves."""
    return name in _LISTS or name in _LOADED or name == "PYTHONWARNINGS"


def pinned(env: Mapping[str, str], ownership: Ownership, user_base: str | None = None) -> dict[str, str]:
    """Return the variables that a verifier gets instead of the image's; an empty one is as good as none.

    `user_base` is where the image installed packages for the verifier's user, if they are still the image's.
    """
    pins = {"PYTHONBREAKPOINT": "0"}
    for name in _LISTS:
        if env.get(name):
            kept = [part for part in env[name].split(":") if part and not ownership.is_agents(part)]
            if ":".join(kept) != env[name]:
                pins[name] = ":".join(kept)
    for name in _LOADED:
        value = env.get(name, "")
        paths = [word for word in _WORD.findall(value) if "/" in word]
        if any(ownership.is_agents(path) for path in paths):
            pins[name] = ""
    # A class of warnings is imported from its module.
    if re.search(r":[^:,]*:[^:,]*\.", env.get("PYTHONWARNINGS", "")):
        pins["PYTHONWARNINGS"] = ""
    values = [word for name in env if name.startswith("GIT_CONFIG_VALUE_") for word in _WORD.findall(env[name])]
    if any("/" in word and ownership.is_agents(word) for word in values):
        pins["GIT_CONFIG_COUNT"] = ""
    modules = [part for part in env.get("PYTHONPATH", "").split(":") if part]
    if env.get("PYTEST_PLUGINS") and any(map(ownership.is_agents, modules)):
        pins["PYTEST_PLUGINS"] = ""
    entries = [part for part in env.get("PATH", "").split(":") if part]
    kept = [part for part in entries if part.startswith("/")]
    if kept != entries:
        pins["PATH"] = ":".join(kept)
    return pins | ({"PYTHONUSERBASE": user_base} if user_base else {"PYTHONNOUSERSITE": "1"})
