"""Links of an agent's: which must not lead a verifier where they do."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping

from pytest_benchflow.verify.plan import Context, Plan
from pytest_benchflow.verify.scan import Scan

SYSTEM_TARGETS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
#: Where everybody writes.
TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108
#: Directories that a scan does not look into, and names that mean something to the tools that look for them.
_NOT_SCANNED = re.compile(r"/node_modules/|\.git/(?:objects|refs)/")
_MEANINGFUL = re.compile(
    r"/(?:\.git|node_modules|(?:site|dist)-packages|[^/]+\.(?:dist|egg)-info)$|\.git/", re.IGNORECASE
)
_MOST_LINKS = 40
_HIDDEN = ("/tests", "/verifier", "/solution", "/oracle", "/logs", "/proc", "/root")
_OUTPUTS = frozenset({"/dev/stdout", "/dev/stderr"})


def candidates_of_aliases(before: Scan, after: Scan, context: Context) -> list[str]:
    """Return links that are new in the workspace and lead to some other place in it."""
    top = context.workdir.rstrip("/") + "/"
    return [
        path
        for path, target in sorted(after.links.items())
        if before.links.get(path) != target and path.startswith(top) and resolved(path, after.links).startswith(top)
    ]


def aliases(
    candidates: Collection[str], replaced: Collection[str], before: Scan, after: Scan, context: Context
) -> list[str]:
    """Return those of the links by which a tool finds other files under a name than a scan, which follows none.

    They stand in the place of what the image has, have a name that a tool looks for, or lead to where no scan looks.
    """
    return [
        path
        for path in candidates
        if (path in replaced and path not in before.links)
        or _MEANINGFUL.search(path)
        or (_NOT_SCANNED.search(resolved(path, after.links) + "/") and not _NOT_SCANNED.search(path))
        or any(f"{place}/".startswith(f"{path}/") for place in (*context.tops, *context.programs))
    ]


def leads_to_system(before: Scan, after: Scan, context: Context) -> list[str]:
    """Return links that are new in the workspace and lead into directories of the system, which no scan looks into."""
    top = context.workdir.rstrip("/") + "/"
    return [
        path
        for path, target in sorted(after.links.items())
        if path.startswith(top) and before.links.get(path) != target and is_of_system(resolved(path, after.links))
    ]


def decide_end(path: str, end: str, plan: Plan) -> None:
    """Take away a link that leads to what is hidden by way of others that no scan has seen; "" is nowhere."""
    if end and not is_hidden(end):
        return
    plan.drop(path)
    plan.report("escaping_link", f"{path} was a link to {end or 'nowhere'}, and was removed", path)


def is_hidden(path: str) -> bool:
    """Return whether a path is where only a verifier has anything."""
    return any(f"{path}/".startswith(f"{place}/") for place in _HIDDEN)


def parents(path: str) -> Iterator[str]:
    while (path := posixpath.dirname(path)) not in ("/", ""):
        yield path


def decide_links(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    top = context.workdir.rstrip("/") + "/"
    if context.workdir in after.links:
        plan.drop(context.workdir)
        plan.report("escaping_link", f"{context.workdir} itself was made a link; removed", context.workdir)
    for path, target in before.links.items() if context.is_copy else ():
        is_gone = not any(path in known for known in (after.links, after.files, after.facts))
        environment = posixpath.dirname(posixpath.dirname(path))
        if is_gone and f"{environment}/pyvenv.cfg" in after.files and is_of_system(resolved(path, before.links)):
            plan.link[path] = target
    for path, target in before.links.items():
        # An interpreter of a virtual environment, for example.
        if after.links.get(path) != target and (path in after.files or path in after.facts or path in after.links):
            end = resolved(path, after.links)
            if is_of_system(resolved(path, before.links)) and not (path in after.links and is_of_system(end)):
                plan.drop(path)
                plan.link[path] = target
                plan.report("changed_config", f"{path} led to {target}, and does again", path)
    _decide_shared_files(before, after, context, plan)
    for path, target in after.links.items():
        if posixpath.basename(path) == "__pycache__" and before.links.get(path) != target:
            plan.drop(path)
        is_new_in_tmp = path.startswith(TEMPORARY) and before.links.get(path) != target and path not in context.prose
        if is_new_in_tmp and f"{resolved(path, after.links)}/".startswith(top):
            plan.drop(path)  # verifiers write there, and would write to what it leads to
        if not path.startswith(top) or top == "/" or before.links.get(path) == target:
            continue
        end = resolved(path, after.links)
        if context.is_brought(path) or context.is_brought(end):
            plan.drop(path)  # what the tests copy to one of the two would be the other as well
            continue
        if end == context.workdir or f"{end}/".startswith(top) or end == "/dev/null":
            continue
        if end in _OUTPUTS and _IS_LOG.search(path):
            continue
        hidden = is_hidden(end)
        if not hidden and (is_of_system(end) or end in context.prose):
            continue
        plan.drop(path)
        if hidden:
            plan.report("escaping_link", f"{path} was a link to {end}, and was removed", path)


_IS_LOG = re.compile(r"(?:\.log|\.err|\.out|\blogs?/[^/]+)$|/log[^/]*$")


def _decide_shared_files(before: Scan, after: Scan, context: Context, plan: Plan) -> None:
    """Take away second names of the workspace's files where verifiers write, and pipes, at which they would wait."""
    top = context.workdir.rstrip("/") + "/"
    inside = {inode for path, inode in after.shared.items() if path.startswith(top)}
    for path, inode in after.shared.items():
        is_scratch = path.startswith(TEMPORARY) and not path.startswith(top)
        if inode in inside and (is_scratch or (context.is_brought(path) and path not in before.shared)):
            plan.drop(path)
    if re.search(r"\b(?:pipes?|fifos?)\b", context.prose, re.IGNORECASE) is None:
        for path in after.pipes - before.pipes:
            plan.drop(path)


def is_of_system(path: str) -> bool:
    return any(path.startswith(f"{place}/") for place in SYSTEM_TARGETS)


def resolved(path: str, links: Mapping[str, str]) -> str:
    """Return where a path leads, by the links that are known, each as the kernel follows it."""
    left = path.split("/")[::-1]
    at: list[str] = []
    followed = 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at[-1:] = []
            continue
        if (target := links.get("/".join(["", *at, part]))) is None:
            at.append(part)
            continue
        if (followed := followed + 1) > _MOST_LINKS:
            return "/proc"  # a ring of links leads nowhere that a verifier should follow
        if target.startswith("/"):
            at = []
        left += target.split("/")[::-1]
    return "/" + "/".join(at)
