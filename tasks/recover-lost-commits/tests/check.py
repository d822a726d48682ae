"""Read the history with git's plumbing, without the repository's hooks or the user's settings."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, succeed

OPTIONS = ["safe.directory=*", "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat"]
KEPT = "25e60515ed0035893e39208737a92837d3f5b83c"
LOST = [
    ("Jonas", "jonas@example.org", "1714564800 +0200", "Add hummus"),
    ("Mira", "mira@example.org", "1714568400 +0200", "Correct the bread: water, salt and yeast"),
    ("Jonas", "jonas@example.org", "1714572000 +0200", "Weigh the tahini and list the dishes"),
]
README = "# Recipes\n\nOne file per dish.\n"
LISTED = README + "\n- bread\n- hummus\n"
OLD_BREAD = "flour 300 g\nwater 200 ml\nsalt\n"
NEW_BREAD = "flour 300 g\nwater 210 ml\nsalt 6 g\nyeast 2 g\n"
DAL = "lentils 250 g\ncumin\n"
OLD_HUMMUS = "chickpeas 400 g\ntahini\nlemon\n"
NEW_HUMMUS = "chickpeas 400 g\ntahini 80 g\nlemon\ngarlic 1\n"
TREES = [
    {"README.md": README, "bread.txt": OLD_BREAD, "dal.txt": DAL, "hummus.txt": OLD_HUMMUS},
    {"README.md": README, "bread.txt": NEW_BREAD, "dal.txt": DAL, "hummus.txt": OLD_HUMMUS},
    {"README.md": LISTED, "bread.txt": NEW_BREAD, "dal.txt": DAL, "hummus.txt": NEW_HUMMUS},
]


def git(*args):
    settings = [part for option in OPTIONS for part in ("-c", option)]
    return succeed("git", *settings, *args, cwd="/app/recipes", env={"GIT_CONFIG_GLOBAL": "/dev/null"})


def tree(commit):
    names = git("ls-tree", "-r", "-z", "--name-only", commit).split("\0")[:-1]
    return {name: git("cat-file", "blob", f"{commit}:{name}") for name in names}


@check
def main_is_checked_out_and_alone():
    equal(git("symbolic-ref", "HEAD").strip(), "refs/heads/main", "HEAD")
    equal(git("for-each-ref", "--format=%(refname)", "refs/heads").split(), ["refs/heads/main"], "branches")


@check
def history_is_linear_on_the_kept_commits():
    parents = git("rev-list", "--parents", "main").splitlines()
    equal([len(line.split()) for line in parents], [2, 2, 2, 2, 2, 1], "commits and parents per line of main")
    equal(parents[3].split()[0], KEPT, '"Add dal"')


@check
def lost_commits_keep_author_date_and_message():
    log = git("log", "-3", "--reverse", "--date=raw", "--format=%an%x00%ae%x00%ad%x00%B%x01", "main")
    got = [tuple(entry.strip().split("\0")) for entry in log.split("\x01") if entry.strip()]
    equal(got, LOST, "the last three commits")


@check
def lost_commits_keep_their_changes():
    for place, want in enumerate(TREES):
        equal(tree(f"main~{2 - place}"), want, f"files in main~{2 - place}")


@check
def working_tree_is_clean():
    main_is_checked_out_and_alone()
    equal(git("status", "--porcelain"), "", "git status")
    equal(git("rev-list", "--count", "main").strip(), "6", "number of commits")


finish()
