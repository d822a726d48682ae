"""Names of programs and modules that verifiers rely on, so that an agent may not put another in their place."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Programs that verifiers run; of these an agent may not put another before the system's.
PROGRAMS = _words("""
    [ arch awk basename bash cat chmod chown cmp cp curl cut dash date dd diff dirname du echo egrep env expr false
    fgrep find gawk git grep head hostname id install jq kill ldd ln ls make mawk md5sum mkdir mktemp mv nl node npm
    npx od perl pip pip3 printf ps pwd py.test pytest python python3 readlink realpath rm rmdir sed seq sh sha256sum
    sleep sort stat stty su sudo tail tar tee test timeout touch tr true uname uniq uv uvx wc wget which whoami xargs
    yes zsh cargo rustc gcc cc g++ go java sqlite3 psql unzip gzip openssl
""")
#: Modules of the standard library that Python or pytest import at every start, so that a file in their place runs.
ALWAYS_IMPORTED = _words("""
    abc argparse ast atexit bisect codecs collections contextlib copy csv dataclasses datetime decimal difflib dis
    doctest encodings enum errno fnmatch functools gc getpass glob hashlib http importlib inspect io itertools json
    keyword linecache locale logging math ntpath operator os pathlib pdb pickle platform posixpath pprint random re
    reprlib select selectors shlex shutil signal site socket sqlite3 stat string struct subprocess sys sysconfig
    tempfile textwrap threading time timeit token tokenize tomllib traceback types typing unittest urllib uuid warnings
    weakref xml zipfile zlib
""")
#: Modules that every Python imports at its start, if there are any.
CUSTOMIZE = frozenset({"sitecustomize", "usercustomize"})
#: What pytest is made of, and plugins that report for verifiers.
PYTEST_FAMILY = _words("""
    pytest _pytest pluggy iniconfig packaging py pytest_asyncio pytest_json_ctrf pytest_jsonreport xdist
""")
