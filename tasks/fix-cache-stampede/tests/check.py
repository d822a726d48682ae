"""Run each scenario in a process of its own and judge what it observed."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from checks import check, equal, finish, succeed


def observe(scenario):
    return json.loads(succeed("python3", "-I", str(HERE / "scenarios.py"), scenario, timeout=20))


@check
def values_live_for_their_time():
    equal(observe("ages"), [1, 1, 2, 2, 3], "values at ages 0, 9.5, 10, 9.999 and 10.001 with a ttl of 10")


@check
def empty_values_are_remembered():
    equal(
        observe("empty_values"),
        [[None, None, 1], [False, False, 1], [0, 0, 1], ["", "", 1]],
        "values and number of loads",
    )


@check
def age_counts_from_the_end_of_the_load():
    equal(observe("slow_load_is_young"), [1, 1], "values")


@check
def one_load_serves_all_threads():
    equal(observe("stampede"), [[1] * 8, 1, 1], "results, number of loads, value afterwards")


@check
def one_load_serves_all_after_expiry():
    equal(observe("expired_stampede"), [[2] * 6, 2], "results and number of loads")


@check
def different_keys_load_side_by_side():
    equal(observe("keys_side_by_side"), ["a", "b"], "results")


@check
def loads_may_need_other_keys():
    equal(observe("nested_load"), [3, [2, [1, []]]], "result")


@check
def exceptions_reach_all_and_are_not_remembered():
    error = "LookupError: no database"
    equal(observe("errors_reach_all_and_are_forgotten"), [[error] * 4, 1, 2, 2], "outcomes, loads, next two values")


@check
def invalidate_makes_a_running_load_stale():
    want = ["new 2", "old", "old", "new 2", "new 2", 2]
    equal(
        observe("invalidate_during_load"),
        want,
        "later get while loading; first, waiting and later result; next value; loads",
    )
    equal(observe("invalidated_and_nobody_came"), [1, 2, 2], "values")


@check
def invalidate_forgets_and_ignores_unknown_keys():
    equal(observe("invalidate_simple"), [1, 1, 2], "values")


@check
def least_recently_used_go_first():
    equal(observe("least_recently_used"), "abcdebcd", "keys loaded for abcadaebacd with maxsize 3")
    equal(observe("reloading_evicts_nothing"), "aba", "keys loaded when an expired one is loaded again with maxsize 2")


@check
def many_threads_agree():
    equal(observe("many_threads"), [[True] * 8, 1], "results, and most loads of a key at once")


finish()
