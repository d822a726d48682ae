"""Links of an agent's: which must not lead a verifier where they do."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from pytest_benchflow.verify.plan import Context, Plan
from pytest_benchflow.verify.scan import Scan

SYSTEM_TARGETS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")


_HIDDEN = ("/tests", "/verifier", "/solution", "/oracle", "/logs", "/proc", "/root")


_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"})


def parents(path: str) -> Iterator[str]:
    while (path := posixpath.dirname(path)) not in ("/", ""):
        yield path


def decide_links(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    top = context.workdir.rstrip("/") + "/"
    if context.workdir in after.links:
        plan.drop(context.workdir)
        plan.report("escaping_link", f"{context.workdir} itself was made a link; removed", context.workdir)
    for path, target in before.links.items():
        # An interpreter of a virtual environment, for example.
        if after.links.get(path) != target and (path in after.files or path in after.facts or path in after.links):
            end = resolved(path, after.links)
            if is_of_system(resolved(path, before.links)) and not (path in after.links and is_of_system(end)):
                plan.drop(path)
                plan.link[path] = target
                plan.report("changed_config", f"{path} led to {target}, and does again", path)
    for path, target in after.links.items():
        if posixpath.basename(path) == "__pycache__" and before.links.get(path) != target:
            plan.drop(path)
        if not path.startswith(top) or top == "/" or before.links.get(path) == target:
            continue
        end = resolved(path, after.links)
        if end == context.workdir or f"{end}/".startswith(top) or end in _HARMLESS_TARGETS:
            continue
        is_hidden = any(f"{end}/".startswith(f"{place}/") for place in _HIDDEN)
        if not is_hidden and is_of_system(end):
            continue
        if not is_hidden and end in context.prose:
            continue
        plan.drop(path)
        if is_hidden:
            plan.report("escaping_link", f"{path} was a link to {end}, and was removed", path)


def is_of_system(path: str) -> bool:
    return any(path.startswith(f"{place}/") for place in SYSTEM_TARGETS)


def resolved(path: str, links: Mapping[str, str]) -> str:
    """Return where a path leads, by the links that are known."""
    for _ in range(40):
        for step in (*reversed([*parents(path)]), path):
            if step in links:
                target = posixpath.join(posixpath.dirname(step), links[step])
                path = posixpath.normpath(target + path[len(step) :])
                path = "/" + path.lstrip("/")
                break
        else:
            return path
    return "/proc"  # a ring of links leads nowhere that a verifier should follow
