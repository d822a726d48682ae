"""Restore hidden archives and look at what is on the disk."""

import io
import json
import os
import stat
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, run

WHEN = 1_600_000_000


def regular(name, text="", mode=0o644, mtime=WHEN):
    return name, tarfile.REGTYPE, mode, text, mtime


def folder(name, mode=0o755):
    return name, tarfile.DIRTYPE, mode, "", WHEN


def symbolic(name, target):
    return name, tarfile.SYMTYPE, 0o777, target, WHEN


def hard(name, target):
    return name, tarfile.LNKTYPE, 0o644, target, WHEN


def special(name, kind):
    return name, kind, 0o644, "", WHEN


def write_archive(path, members, form="w"):
    with tarfile.open(path, form) as archive:
        for name, kind, mode, content, mtime in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = kind, mode, mtime
            info.uid = info.gid = 4711
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = content
                archive.addfile(info)
            else:
                data = content.encode()
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


def survey(root):
    """Describe a tree: name to (mode, content) of files, ('link', target) or mode of folders."""
    found = {}
    for path in sorted(Path(root).rglob("*")):
        name, status = path.relative_to(root).as_posix(), path.lstat()
        mode = oct(stat.S_IMODE(status.st_mode))
        if stat.S_ISLNK(status.st_mode):
            found[name] = ("link", os.readlink(path))
        elif stat.S_ISDIR(status.st_mode):
            found[name] = mode
        else:
            found[name] = (mode, path.read_text() if stat.S_ISREG(status.st_mode) else "special")
    return found


class Restored:
    """Archive the members, restore them in a scratch folder, and keep what came out."""

    def __init__(self, *members, form="w", mask=0o022):
        self._scratch = tempfile.TemporaryDirectory()
        scratch = Path(self._scratch.name)
        (scratch / "outside").mkdir()
        (scratch / "outside/victim").write_text("untouched")
        write_archive(scratch / "backup", members, form)
        self.root = scratch / "deep" / "destination"
        self.root.parent.mkdir()
        command = f'umask {mask:03o} && exec python3 /app/restore.py "$0" "$1" "$2"'
        paths = (str(scratch / "backup"), str(self.root), str(scratch / "report"))
        done = run("sh", "-c", command, *paths, cwd=scratch)
        equal(done.returncode, 0, f"exit status ({done.stderr.strip()[-200:]})")
        report = json.loads((scratch / "report").read_text(encoding="utf-8"))
        self.refused = [(entry["name"], entry["reason"]) for entry in report]
        self.tree = survey(self.root)
        outside = sorted(path.relative_to(scratch).as_posix() for path in scratch.rglob("*"))
        outside = [name for name in outside if not name.startswith("deep/destination")]
        equal(outside, ["backup", "deep", "outside", "outside/victim", "report"], "files beside the destination")
        equal((scratch / "outside/victim").read_text(), "untouched", "file outside")


@check
def delivered_restore_is_right():
    want = {
        "home": "0o755",
        "home/copy.txt": ("0o600", "call the bank\nand the lawyer\n"),
        "home/latest": ("link", "notes.txt"),
        "home/notes.txt": ("0o600", "call the bank\nand the lawyer\n"),
        "home/run.sh": ("0o755", "#!/bin/sh\necho hi\n"),
    }
    equal(survey("/app/restored"), want, "/app/restored")
    report = json.loads(Path("/app/report.json").read_text(encoding="utf-8"))
    refused = [
        ("home/passwd", "link"),
        ("../../root/.profile", "path"),
        ("/etc/cron.d/job", "path"),
        ("home/fifo", "type"),
    ]
    equal([(entry["name"], entry["reason"]) for entry in report], refused, "report.json")


@check
def files_folders_and_times():
    done = Restored(folder("a/", 0o700), regular("a/b c.txt", "ü\n"), regular("x/y/z", "deep", mtime=WHEN + 5))
    want = {"a": "0o700", "a/b c.txt": ("0o644", "ü\n"), "x": "0o755", "x/y": "0o755", "x/y/z": ("0o644", "deep")}
    equal((done.tree, done.refused), (want, []), "tree and report")
    equal(int((done.root / "x/y/z").stat().st_mtime), WHEN + 5, "modification time")


@check
def dangerous_bits_are_cleared():
    modes = {
        0o4755: "0o755",
        0o2775: "0o755",
        0o1777: "0o755",
        0o666: "0o644",
        0o000: "0o400",
        0o222: "0o600",
        0o511: "0o511",
    }
    done = Restored(*(regular(f"f{mode:o}", mode=mode) for mode in modes), mask=0o077)
    equal(done.tree, {f"f{mode:o}": (want, "") for mode, want in modes.items()}, "files")
    modes = {0o3777: "0o755", 0o000: "0o700", 0o555: "0o755", 0o770: "0o750"}
    done = Restored(
        *(folder(f"d{mode:o}", mode) for mode in modes), regular("d0/x", mode=0o640), regular("n/x"), mask=0
    )
    want = {f"d{mode:o}": bits for mode, bits in modes.items()}
    equal(done.tree, want | {"d0/x": ("0o640", ""), "n": "0o755", "n/x": ("0o644", "")}, "folders")


@check
def names_that_lead_out_are_refused():
    names = ["../outside/victim", "/tmp/bad-restore", "a/../../outside/new", "a/../b", ".."]
    done = Restored(*(regular(name, "evil") for name in names), regular("..fine", "ok"), regular("./dot", "ok"))
    equal(done.tree, {"..fine": ("0o644", "ok"), "dot": ("0o644", "ok")}, "tree")
    equal(done.refused, [(name, "path") for name in names], "report")
    assert not Path("/tmp/bad-restore").exists(), "an absolute name was written"


@check
def special_files_are_refused():
    done = Restored(special("p", tarfile.FIFOTYPE), special("/c", tarfile.CHRTYPE), special("b", tarfile.BLKTYPE))
    equal((done.tree, done.refused), ({}, [("p", "type"), ("/c", "type"), ("b", "type")]), "tree and report")


@check
def symbolic_links_stay_inside():
    good = {"a/up": "../b", "a/same": "b/c", "dangling": "nowhere", "a/b/far": "../../x", "dot": "."}
    bad = {
        "out": "../outside",
        "abs": "/etc/passwd",
        "a/out": "../../outside",
        "a/sly": "b/../../../x",
        "a/b/sly": "../../../deep/destination/x",
    }
    done = Restored(*(symbolic(*pair) for pair in (good | bad).items()))
    links = {name: value for name, value in done.tree.items() if value[0] == "link"}
    equal(links, {name: ("link", target) for name, target in good.items()}, "links")
    equal(done.refused, [(name, "link") for name in bad], "report")


@check
def nothing_is_written_through_links():
    done = Restored(
        folder("real"),
        symbolic("l", "real"),
        regular("l/x", "evil"),
        folder("l/sub"),
        symbolic("l/s", "x"),
        regular("real/ok", "fine"),
        symbolic("chain", "l"),
        regular("chain/y"),
        hard("l/h", "real/ok"),
    )
    want = {"real": "0o755", "real/ok": ("0o644", "fine"), "l": ("link", "real"), "chain": ("link", "l")}
    equal(done.tree, want, "tree")
    equal(done.refused, [(name, "through-link") for name in ("l/x", "l/sub", "l/s", "chain/y", "l/h")], "report")


@check
def later_members_replace_earlier_ones():
    done = Restored(
        regular("a", "first", 0o600),
        hard("kept", "a"),
        regular("a", "second, and longer", 0o644),
        symbolic("s", "a"),
        regular("s", "now a file"),
        regular("t", "file"),
        symbolic("t", "a"),
        regular("ro", "1", 0o400),
        regular("ro", "2", 0o400),
    )
    want = {
        "a": ("0o644", "second, and longer"),
        "kept": ("0o600", "first"),
        "s": ("0o644", "now a file"),
        "t": ("link", "a"),
        "ro": ("0o400", "2"),
    }
    equal((done.tree, done.refused), (want, []), "tree and report")


@check
def hard_links_need_a_restored_file():
    done = Restored(
        regular("a", "text", 0o4640),
        hard("b", "a"),
        hard("c", "missing"),
        hard("d", "/etc/passwd"),
        hard("e", "../outside/victim"),
        folder("f"),
        hard("g", "f"),
        symbolic("s", "a"),
        hard("h", "s"),
        hard("i", "later"),
        regular("later"),
        hard("sub/j", "./b"),
    )
    bad = [(name, "link") for name in "cdeghi"]
    equal(done.refused, bad, "report")
    files = {name: done.tree.get(name) for name in ("a", "b", "sub/j")}
    equal(files, dict.fromkeys(files, ("0o640", "text")), "files")


@check
def conflicts_are_refused():
    done = Restored(
        folder("d"),
        regular("d", "no"),
        symbolic("d", "x"),
        regular("f", "yes"),
        folder("f"),
        regular("f/x", "no"),
        regular("f/y/z", "no"),
        symbolic("s", "d"),
        folder("s"),
        folder("d", 0o700),
        hard("d", "f"),
    )
    equal(done.tree, {"d": "0o700", "f": ("0o644", "yes"), "s": ("link", "d")}, "tree")
    equal(done.refused, [(name, "conflict") for name in ("d", "d", "f", "f/x", "f/y/z", "s", "d")], "report")


@check
def compressed_archives_are_read():
    for form in ("w:gz", "w:bz2", "w:xz"):
        equal(Restored(regular("a", "x" * 5000), form=form).tree, {"a": ("0o644", "x" * 5000)}, f"tree from {form}")


@check
def failures_create_nothing():
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "garbage").write_bytes(b"this is no archive" * 100)
        write_archive(root / "good", [regular("a", "x")])
        (root / "taken").mkdir()
        before = survey(root)
        for archive, destination in (("garbage", "new"), ("absent", "new"), ("good", "taken")):
            done = run("python3", "/app/restore.py", archive, destination, "report", cwd=root)
            equal((done.returncode, bool(done.stderr)), (1, True), f"status and message for {archive} to {destination}")
            equal(survey(root), before, "files afterwards")


finish()
