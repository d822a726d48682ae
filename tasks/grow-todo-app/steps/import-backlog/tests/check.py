"""Check the third step: import, and what came before."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish
from todo import Store, default_list


def importing(text):
    """Return a store with one entry and a file to import."""
    todo = Store()
    todo("add", "first")
    path = todo.folder / "to import.txt"
    path.write_bytes(text.encode())
    return todo, str(path)


@check
def backlog_is_in_the_default_store():
    want = [
        "1 [x] buy milk",
        "2 [ ] call Ida",
        "3 [ ] order new badges",
        "4 [x] renew the domain",
        "5 [ ] book the room",
    ]
    equal(default_list(), want, "list")


@check
def open_and_finished_entries_are_imported():
    todo, path = importing("- naïve\n\n  # note\nx  two words \n\t- - dash\r\n- x")
    equal(todo("import", path), ["imported 4"], "import")
    equal(todo("list"), ["1 [ ] first", "2 [ ] naïve", "3 [x] two words", "4 [ ] - dash", "5 [ ] x"], "list")
    equal(todo("done", "5"), ["done 5"], "done 5")


@check
def numbers_go_on_after_a_removed_entry():
    todo, path = importing("- a\n")
    todo("remove", "1")
    todo("import", path)
    equal(todo("list"), ["2 [ ] a"], "list")


@check
def empty_file_imports_nothing():
    todo, path = importing("# nothing\n\n")
    equal(todo("import", path), ["imported 0"], "import")
    equal(todo("list"), ["1 [ ] first"], "list")


@check
def one_bad_line_stops_the_import():
    for text in ("- ok\n\n\n* star\n- more\n", "- ok\n#\n\nxmas\n", "- ok\n\n\n-\n", "x ok\n- ok\n\nX no\n"):
        todo, path = importing(text)
        status, out, err = todo.fail("import", path)
        equal((status, out), (1, ""), f"status and output for {text!r}")
        assert "4" in err.replace(path, ""), f"the message for {text!r} does not name line 4: {err!r:.200}"
        equal(todo("list"), ["1 [ ] first"], f"list after {text!r}")


@check
def unreadable_file_is_an_error():
    todo, _ = importing("")
    equal(todo.fail("import", str(todo.folder / "none"))[:2], (1, ""), "status and output")


@check
def earlier_steps_still_work():
    todo = Store()
    todo("add", "a")
    todo("add", "b")
    todo("done", "1")
    equal(todo("list", "--open"), ["2 [ ] b"], "list --open")
    equal(todo.fail("done", "7")[0], 1, "status of an unknown entry")
    equal(todo.fail("fly")[0], 2, "status of an unknown command")


finish()
