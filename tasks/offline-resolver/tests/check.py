"""Resolve hidden indexes and judge the locks by their properties; also see that there is no network but loopback."""

import itertools
import json
import random
import socket
import sys
import tempfile
import threading
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, run


def key(version):
    return tuple(map(int, version.split(".")))


def allows(constraint, version):
    for part in filter(None, constraint.split(",")):
        sign = part.rstrip("0123456789.")
        left, right = key(version), key(part[len(sign) :])
        if not {">=": left >= right, "<": left < right, "==": left == right, "!=": left != right}[sign]:
            return False
    return True


def flaw(index, wanted, lock):
    """Return what makes a lock invalid by rules 1 to 3, or None."""
    needed, queue = set(), [("the requirements", wanted)]
    for name, version in lock.items():
        if version not in index.get(name, {}):
            return f"{name} {version} is not in the index"
        if index[name][version].get("yanked"):
            return f"{name} {version} is yanked"
    while queue:
        source, requires = queue.pop()
        for name, constraint in requires.items():
            if name not in lock:
                return f"{name} is required by {source} and not locked"
            if not allows(constraint, lock[name]):
                return f"{name} {lock[name]} does not fit {constraint!r} of {source}"
            if name not in needed:
                needed.add(name)
                queue.append((f"{name} {lock[name]}", index[name][lock[name]]["requires"]))
    return f"not required: {sorted(lock.keys() - needed)}" if lock.keys() - needed else None


def judge(index, wanted, lock):
    """Fail unless a lock follows all four rules."""
    assert isinstance(lock, dict), f"the lock is no object: {lock!r:.100}"
    problem = flaw(index, wanted, lock)
    assert problem is None, f"{problem}; lock: {lock}"
    for name, version in lock.items():
        for newer in index[name]:
            if key(newer) > key(version) and flaw(index, wanted, lock | {name: newer}) is None:
                raise AssertionError(f"{name} {version} could be {newer}; lock: {lock}")


def resolve(index, wanted):
    """Run the program and return the finished process."""
    with tempfile.TemporaryDirectory() as folder:
        for name, versions in index.items():
            Path(folder, f"{name}.json").write_text(json.dumps({"name": name, "versions": versions}))
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps(wanted))
            file.flush()
            return run("python3", "/app/resolve.py", folder, file.name, cwd=folder)


def resolves(index, wanted):
    done = resolve(index, wanted)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr.strip()[-200:]}"
    judge(index, wanted, json.loads(done.stdout))


def fails(index, wanted):
    done = resolve(index, wanted)
    equal((done.returncode, done.stdout, bool(done.stderr.strip())), (1, "", True), "status, output and message")


def package(**versions):
    """Write an index entry: package(v1_2_0={...}) has the version 1.2.0 with these requirements."""
    return {name[1:].replace("_", "."): {"requires": requires} for name, requires in versions.items()}


@check
def no_outside_route():
    # Connecting a datagram socket sends nothing; it only asks the kernel for a route.
    for family, address in ((socket.AF_INET, "203.0.113.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
        except OSError:
            continue
        raise AssertionError(f"there is a route to {address}, although the task asks for no network")


@check
def loopback_works():
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"here"), daemon=True)
        thread.start()
        with socket.create_connection(server.getsockname(), timeout=2) as client:
            equal(client.recv(4), b"here", "what came over loopback")


@check
def delivered_lock_is_right():
    index = {}
    for name, versions in {
        "web": {"2.1.0": {"router": ">=3.0.0", "template": ">=1.2.0,<2.0.0"}, "2.0.0": {"router": ">=2.0.0,<3.0.0"}},
        "router": {"3.1.0": {"regexp": ">=2.0.0"}, "3.0.0": {"regexp": ">=1.0.0,<2.0.0"}, "2.4.0": {}},
        "template": {"1.10.0": {"regexp": "<2.0.0"}, "1.9.0": {"regexp": "<1.5.0"}, "2.0.0": {}},
        "regexp": {"2.0.0": {}, "1.6.0": {}, "1.5.2": {}, "1.4.0": {}},
    }.items():
        index[name] = {version: {"requires": requires} for version, requires in versions.items()}
    index["regexp"]["1.6.0"]["yanked"] = True
    judge(index, {"web": ">=2.0.0", "template": ""}, json.loads(Path("/app/lock.json").read_text(encoding="utf-8")))


@check
def versions_compare_as_numbers():
    resolves({"a": package(v1_9_0={}, v1_10_0={}, v1_2_11={})}, {"a": "<2.0.0,!=1.11.0"})


@check
def late_conflicts_are_taken_back():
    index = {
        "a": package(v2_0_0={"b": "", "c": ""}, v1_0_0={"c": ""}),
        "b": package(v3_0_0={"d": ">=2.0.0"}, v2_0_0={"d": ">=2.0.0"}, v1_0_0={"e": ""}),
        "c": package(v2_0_0={"d": "<2.0.0"}, v1_0_0={"d": "<1.0.0"}),
        "d": package(v2_0_0={}, v1_0_0={}),
        "e": package(v1_0_0={}, v2_0_0={"d": ">=2.0.0"}),
    }
    resolves(index, {"a": ">=2.0.0"})
    resolves(index, {"a": "", "b": ""})


@check
def nothing_needless_is_locked():
    index = {
        "a": package(v2_0_0={"b": "", "x": ""}, v1_0_0={"b": ""}),
        "b": package(v1_0_0={}),
        "x": package(v1_0_0={"y": ""}),
        "y": package(v1_0_0={"b": ">=2.0.0"}),
    }
    resolves(index, {"a": ""})


@check
def circles_are_fine():
    index = {
        "a": package(v1_0_0={"b": "==1.0.0"}, v2_0_0={"b": ">=2.0.0"}),
        "b": package(v1_0_0={"a": ""}, v2_0_0={"a": "<2.0.0"}),
    }
    resolves(index, {"a": ""})
    resolves({"a": package(v1_0_0={"a": ">=1.0.0"}, v2_0_0={"a": "==1.0.0"})}, {"a": ""})


@check
def yanked_versions_are_left_out():
    index = {"a": package(v1_0_0={}, v2_0_0={})}
    index["a"]["2.0.0"]["yanked"] = True
    resolves(index, {"a": ""})
    fails(index, {"a": "==2.0.0"})


@check
def impossible_requirements_are_reported():
    fails({"a": package(v1_0_0={})}, {"a": ">=2.0.0"})
    fails({"a": package(v1_0_0={"missing": ""})}, {"a": ""})
    fails(
        {
            "a": package(v1_0_0={"c": "<2.0.0"}),
            "b": package(v1_0_0={"c": ">=2.0.0"}),
            "c": package(v1_0_0={}, v2_0_0={}),
        },
        {"a": "", "b": ""},
    )


@check
def no_requirements_give_an_empty_lock():
    equal(json.loads(resolve({"a": package(v1_0_0={})}, {}).stdout), {}, "lock")


def solvable(index, wanted):
    """Try every combination; the random indexes are small enough."""
    names = sorted(index)
    for versions in itertools.product(*([None, *index[name]] for name in names)):
        lock = {name: version for name, version in zip(names, versions) if version}
        if flaw(index, wanted, lock) is None:
            return True
    return False


@check
def random_indexes_agree_with_brute_force():
    rng = random.Random(7)
    constraints = ["", ">=2.0.0", "<3.0.0", "!=2.0.0", "==1.0.0", ">=1.0.0,<2.0.0", "<2.0.0"]
    names = "abcde"
    outcomes = set()
    for _ in range(8):
        index = {
            name: {
                f"{n}.0.0": {
                    "requires": {other: rng.choice(constraints) for other in rng.sample(names, rng.randrange(3))}
                }
                for n in range(1, 4)
            }
            for name in names
        }
        wanted = {name: rng.choice(constraints) for name in rng.sample(names, 2)}
        possible = solvable(index, wanted)
        outcomes.add(possible)
        (resolves if possible else fails)(index, wanted)
    equal(outcomes, {True, False}, "outcomes tried")


@check
def large_index_is_resolved():
    rng = random.Random(30)
    index = {}
    for number in range(30):
        others = [f"p{n}" for n in range(number + 1, min(number + 4, 30))]
        index[f"p{number}"] = {
            f"{n}.0.0": {"requires": {other: f"<{rng.randrange(max(2, n - 1), n + 3)}.0.0" for other in others}}
            for n in range(1, 11)
        }
    resolves(index, {"p0": ""})


finish()
