"""Rotate files in scratch folders with every POSIX shell at hand and look at what is left."""

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, run

SHELLS = [["sh"]] + [[name] for name in ("dash",) if shutil.which(name)]
if shutil.which("busybox"):
    SHELLS.append(["busybox", "sh"])


def rotate(files, *args, want, status=0, times=1, modes=None):
    """Make files, rotate in each shell, and compare names and contents with `want`."""
    for shell in SHELLS:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.write_text(text)
                path.chmod((modes or {}).get(name, 0o644))
            for _ in range(times):
                done = run(*shell, "/app/rotate.sh", *args, cwd=folder)
                equal(done.returncode, status, f"exit status of {args}: {done.stderr[-200:]!r}; status")
                equal(done.stdout, "", "standard output")
            left = {path.name: path.read_text() for path in Path(folder).iterdir()}
            equal(left, want, f"files after {args}")
            for name, mode in (modes or {}).items():
                equal(oct((Path(folder) / name).stat().st_mode & 0o7777), oct(mode), f"mode of {name}")
    return done


@check
def one_file_is_rotated():
    rotate({"a.log": "new"}, "a.log", want={"a.log": "", "a.log.1": "new"})


@check
def old_files_move_up_and_the_oldest_goes():
    files = {"a.log": "0", "a.log.1": "1", "a.log.2": "2", "a.log.3": "3"}
    rotate(files, "a.log", want={"a.log": "", "a.log.1": "0", "a.log.2": "1", "a.log.3": "2"})


@check
def count_can_be_chosen():
    files = {"a.log": "0"} | {f"a.log.{n}": str(n) for n in range(1, 11)}
    want = {"a.log": "", "a.log.1": "0"} | {f"a.log.{n + 1}": str(n) for n in range(1, 11)}
    rotate(files, "-k", "11", "a.log", want=want)
    rotate({"a.log": "0", "a.log.1": "1"}, "-k", "1", "a.log", want={"a.log": "", "a.log.1": "0"})


@check
def smaller_count_removes_all_beyond():
    files = {"a.log": "0"} | {f"a.log.{n}": str(n) for n in (1, 2, 3, 7, 12)}
    rotate(files, "-k", "2", "a.log", want={"a.log": "", "a.log.1": "0", "a.log.2": "1"})


@check
def gaps_stay_gaps():
    rotate({"a.log": "0", "a.log.2": "2"}, "a.log", want={"a.log": "", "a.log.1": "0", "a.log.3": "2"})


@check
def empty_file_is_left_alone():
    files = {"a.log": "", "a.log.1": "1", "a.log.9": "9"}
    rotate(files, "a.log", want=files)
    rotate({"a.log": "x"}, "a.log", times=3, want={"a.log": "", "a.log.1": "x"})


@check
def other_names_are_never_touched():
    others = {f"a.log{end}": end for end in (".old", ".1.gz", ".01", ".5x", ".", ".1 2", "x.1", ".4.4")}
    rotate({"a.log": "0"} | others, "-k", "1", "a.log", want={"a.log": "", "a.log.1": "0"} | others)


@check
def strange_names_work():
    files = {
        "my app.log": "0",
        "my app.log.1": "1",
        "-n": "2",
        "[ab]*.log": "3",
        "[ab]*.log.9": "9",
        "a1.log.9": "keep",
    }
    want = {"my app.log": "", "my app.log.1": "0", "my app.log.2": "1", "-n": "", "-n.1": "2"}
    want |= {"[ab]*.log": "", "[ab]*.log.1": "3", "a1.log.9": "keep"}
    rotate(files, "--", "my app.log", "-n", "[ab]*.log", want=want)


@check
def permissions_are_kept():
    rotate({"a.log": "0"}, "a.log", want={"a.log": "", "a.log.1": "0"}, modes={"a.log": 0o640})
    rotate({"a.log": "0"}, "a.log", want={"a.log": "", "a.log.1": "0"}, modes={"a.log": 0o606})


@check
def missing_file_is_reported_and_the_rest_rotated():
    files = {"a.log": "a", "b.log": "b"}
    want = {"a.log": "", "a.log.1": "a", "b.log": "", "b.log.1": "b"}
    done = rotate(files, "a.log", "lost one.log", "b.log", want=want, status=1)
    assert "lost one.log" in done.stderr, f"standard error does not name the file: {done.stderr!r}"


@check
def wrong_usage_changes_nothing():
    files = {"a.log": "0", "a.log.1": "1"}
    for args in ((), ("-k", "0", "a.log"), ("-k", "two", "a.log"), ("-k", "", "a.log"), ("-k", "3"), ("-z", "a.log")):
        done = rotate(files, *args, want=files, status=2)
        assert done.stderr.strip(), f"{args} printed no usage line"


finish()
