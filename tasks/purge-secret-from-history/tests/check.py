"""Compare the rewritten history with the expected one, and look for the keys in every object."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, run, succeed

OPTIONS = ["safe.directory=*", "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat"]
KEYS = [b"sk-live-4f9a17c2d0", b"sk-live-77b1e06a35"]
START = 1700000000
TOTALS = "def total(lines):\n    return sum(lines)\n"
TAXED = "def total(lines, tax=0):\n    return sum(lines) + tax\n"
INVOICE = 'def invoice(lines):\n    return f"total {sum(lines)}"\n'
DEPLOY = "Deploy with deploy/run.sh\n"
ASK = "Deploy with deploy/run.sh, after asking Rui.\n"
IGNORE = "deploy/credentials.env\n"
FIRST = [
    ("Tove", 1, "Add totals", {"billing.py": TOTALS}),
    ("Rui", 2, "Describe the deployment", {"billing.py": TOTALS, "deploy/README": DEPLOY}),
    ("Tove", 4, "Add tax", {"billing.py": TAXED, "deploy/README": DEPLOY}),
]
INVOICES = [
    *FIRST,
    ("Ines", 5, "Print invoices", {"billing.py": TAXED, "deploy/README": DEPLOY, "invoice.py": INVOICE}),
]
IGNORED = [
    *FIRST,
    ("Rui", 6, "Ignore the credentials", {".gitignore": IGNORE, "billing.py": TAXED, "deploy/README": DEPLOY}),
]
MAIN = [*IGNORED, ("Tove", 7, "Say whom to ask", {".gitignore": IGNORE, "billing.py": TAXED, "deploy/README": ASK})]


def arguments(*args):
    return ["git", *(part for option in OPTIONS for part in ("-c", option)), *args]


def git(*args, stdin=""):
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_NO_REPLACE_OBJECTS": "1"}
    return succeed(*arguments(*args), cwd="/app/billing", env=environment, stdin=stdin)


def history(ref):
    """Return the commits of a ref, oldest first, in the form of the tables above."""
    found = []
    for line in git("rev-list", "--reverse", "--parents", ref).splitlines():
        commit, *parents = line.split()
        equal(len(parents), min(len(found), 1), f"parents of a commit of {ref}")
        text = git("log", "-1", "--date=raw", "--format=%an|%ae|%ad%n%cn|%ce|%cd%n%B", commit)
        author, committer, message = text.split("\n", 2)
        equal(committer, author, f"committer of {message.strip()!r}")
        name, email, date = author.split("|")
        equal(email, f"{name.lower()}@example.org", f"address of {name}")
        seconds, zone = date.split()
        equal(zone, "+0100", f"time zone of {message.strip()!r}")
        names = git("ls-tree", "-r", "-z", "--name-only", commit).split("\0")[:-1]
        files = {path: git("cat-file", "blob", f"{commit}:{path}") for path in names}
        found.append((name, (int(seconds) - START) / 3600, message.strip(), files))
    return found


@check
def refs_are_the_same():
    want = ["refs/heads/invoices", "refs/heads/main", "refs/tags/v1.0", "refs/tags/v1.1"]
    equal(git("for-each-ref", "--format=%(refname)").split(), want, "refs")


@check
def main_has_its_history():
    equal(history("refs/heads/main"), MAIN, "main")


@check
def invoices_has_its_history():
    equal(history("refs/heads/invoices"), INVOICES, "invoices")


@check
def tags_point_to_the_rewritten_commits():
    equal(history("refs/tags/v1.0"), FIRST, "v1.0")
    equal(history("refs/tags/v1.1"), IGNORED, "v1.1")
    fork = git("merge-base", "refs/heads/main", "refs/heads/invoices")
    equal(git("rev-parse", "refs/tags/v1.0^{commit}"), fork, "where invoices branches off")


@check
def release_tag_is_still_annotated():
    equal(git("cat-file", "-t", "refs/tags/v1.0").strip(), "tag", "type of v1.0")
    lines = git("cat-file", "tag", "refs/tags/v1.0").split("\n")
    equal(lines[3], f"tagger Tove <tove@example.org> {START + 4 * 3600} +0100", "tagger")
    equal("\n".join(lines[5:]).strip(), "First release", "message of v1.0")


@check
def no_object_contains_the_keys():
    listing = git("cat-file", "--batch-check=%(objectname)", "--batch-all-objects", "--unordered")
    assert len(listing.split()) >= 20, "objects of the history are missing"
    everything = git("cat-file", "--batch", stdin=listing).encode()
    for key in KEYS:
        assert key not in everything, f"an object in .git contains {key.decode()}"


@check
def no_other_file_contains_the_keys():
    for path in Path("/app/billing").rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            assert not any(key in content for key in KEYS), f"{path} contains a key"


@check
def reflog_and_objects_are_consistent():
    equal(git("rev-parse", "--is-shallow-repository").strip(), "false", "shallow repository")
    done = run(*arguments("fsck", "--strict"), cwd="/app/billing", env={"GIT_CONFIG_GLOBAL": "/dev/null"})
    equal(done.returncode, 0, f"git fsck: {done.stderr.strip()[-200:]!r}; status")


@check
def main_is_checked_out_and_clean():
    refs_are_the_same()
    equal(git("symbolic-ref", "HEAD").strip(), "refs/heads/main", "HEAD")
    equal(git("status", "--porcelain", "--ignored"), "", "git status")
    assert "deploy/credentials.env" not in git("log", "--all", "--name-only", "--format="), "the file is in the history"


finish()
