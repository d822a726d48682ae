"""Check the second step: done, remove, and the first step's store."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish
from todo import Store, default_list


def filled(*texts):
    todo = Store()
    for text in texts:
        todo("add", text)
    return todo


@check
def default_store_survived_and_is_marked():
    equal(default_list(), ["1 [x] buy milk", "2 [ ] call Ida"], "list")
    equal(default_list("--open"), ["2 [ ] call Ida"], "list --open")


@check
def done_marks_an_entry():
    todo = filled("a", "b", "c")
    equal(todo("done", "2"), ["done 2"], "done 2")
    equal(todo("done", "2"), ["done 2"], "done 2, again")
    equal(todo("list"), ["1 [ ] a", "2 [x] b", "3 [ ] c"], "list")
    equal(todo("list", "--open"), ["1 [ ] a", "3 [ ] c"], "list --open")


@check
def remove_keeps_the_other_numbers():
    todo = filled("a", "b", "c")
    equal(todo("remove", "2"), ["removed 2"], "remove 2")
    equal(todo("list"), ["1 [ ] a", "3 [ ] c"], "list")


@check
def numbers_are_never_used_again():
    todo = filled("a", "b")
    todo("remove", "2")
    equal(todo("add", "c"), ["added 3"], "add after removing the last entry")
    todo("remove", "1")
    todo("remove", "3")
    equal(todo("add", "d"), ["added 4"], "add to an emptied list")


@check
def unknown_entries_are_reported():
    todo = filled("a", "b")
    todo("remove", "1")
    for args in (("done", "1"), ("done", "9"), ("remove", "0"), ("remove", "-1"), ("done", "x"), ("remove", "1")):
        status, out, err = todo.fail(*args)
        equal((status, out, bool(err.strip())), (1, "", True), f"status, output and message for {args}")
    equal(todo("list"), ["2 [ ] b"], "list")


@check
def first_step_still_works():
    todo = filled("a")
    equal(todo.fail("add", " ")[0], 2, "status of an empty add")
    equal(todo("list"), ["1 [ ] a"], "list")


finish()
