"""Write the suspicious backup: make_backup.py ARCHIVE."""

import io
import sys
import tarfile

MEMBERS = [
    ("home/", tarfile.DIRTYPE, 0o755, ""),
    ("home/notes.txt", tarfile.REGTYPE, 0o644, "call the bank\n"),
    ("home/run.sh", tarfile.REGTYPE, 0o4777, "#!/bin/sh\necho hi\n"),
    ("home/latest", tarfile.SYMTYPE, 0o777, "notes.txt"),
    ("home/passwd", tarfile.SYMTYPE, 0o777, "/etc/passwd"),
    ("../../root/.profile", tarfile.REGTYPE, 0o644, "evil\n"),
    ("/etc/cron.d/job", tarfile.REGTYPE, 0o644, "* * * * * root evil\n"),
    ("home/fifo", tarfile.FIFOTYPE, 0o644, ""),
    ("home/notes.txt", tarfile.REGTYPE, 0o600, "call the bank\nand the lawyer\n"),
    ("home/copy.txt", tarfile.LNKTYPE, 0o644, "home/notes.txt"),
]

with tarfile.open(sys.argv[1], "w") as archive:
    for name, kind, mode, content in MEMBERS:
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.mtime = kind, mode, 1700000000
        if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            member.linkname = content
            archive.addfile(member)
        else:
            data = content.encode()
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
