"""Check the first step: add and list."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish
from todo import Store, default_list


@check
def default_store_holds_the_two_entries():
    equal(default_list(), ["1 [ ] buy milk", "2 [ ] call Ida"], "list")


@check
def new_store_is_empty():
    equal(Store()("list"), [], "list of a new store")


@check
def entries_are_numbered_and_kept():
    todo = Store()
    equal(todo("add", "water", "the  plants"), ["added 1"], "first add")
    equal(todo("add", "Grüße an Zoë"), ["added 2"], "second add")
    equal(todo("list"), ["1 [ ] water the  plants", "2 [ ] Grüße an Zoë"], "list")


@check
def stores_are_separate():
    first, second = Store(), Store()
    first("add", "one")
    equal(second("list"), [], "another store")


@check
def wrong_usage_changes_nothing():
    todo = Store()
    todo("add", "stay")
    for args in ((), ("add",), ("add", "  "), ("fly",)):
        status, out, err = todo.fail(*args)
        equal((status, out, bool(err.strip())), (2, "", True), f"status, output and message for {args}")
    equal(todo("list"), ["1 [ ] stay"], "list")


finish()
