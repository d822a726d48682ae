"""What only the native layout has: shorthands of the front matter, and prompts that must fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.hints import did_you_mean

from .document import DocumentConfig
from .front_matter import FrontMatterSource
from .parsed import Parsed
from .problems import Problem
from .text import read_text
from .validate import validate
from .values import quoted

if TYPE_CHECKING:
    from .config import TaskConfig
    from .prompts import Prompts
    from .sources import Data

#: What `verifier: …` and `oracle: …` may say as a string: the place they have anyway.
_PLACES = {
    "verifier": {"verifier", "verifier/test.sh", "test.sh", "test-script"},
    "oracle": {"oracle", "oracle/solve.sh", "solve.sh"},
}


def parse_document(file: str) -> Parsed:
    """Read and validate a `task.md` without looking at its directory."""
    source = FrontMatterSource(file, read_text(file))
    data, problems = expand(source)
    document, more = validate(source, DocumentConfig, data)
    return Parsed(source, document, problems + more, source.body)


def expand(source: FrontMatterSource) -> tuple[Data, list[Problem]]:
    """Return the front matter with its shorthands written out, and what is wrong with them."""
    data, problems = without_empty(source.data), list[Problem]()

    def refuse(key: str, reason: str, fix: str) -> None:
        problems.append(Problem(source.file, source.line((key,)), key, reason, fix))

    if "environment" in data:
        refuse("environment", "is not a key of task.md", "rename it to sandbox")
        data.setdefault("sandbox", data.pop("environment"))
    if "image" in data:
        image, sandbox = data.pop("image"), data.get("sandbox", {})
        if not isinstance(image, str) or not image:
            refuse("image", f"is {quoted(image)}", "give the name of an image as a string")
        elif isinstance(sandbox, dict):
            data["sandbox"] = {"docker_image": image, **sandbox}
            if sandbox.get("docker_image", sandbox.get("image", image)) != image:
                refuse("image", f"is {quoted(image)} but sandbox names another", "keep one of them")
    for key, places in _PLACES.items():
        value = data.get(key)
        if isinstance(value, str):
            del data[key]
            if value.removeprefix("./").rstrip("/") not in places:
                fix = f"put it in the directory {key}/, and write {key} as a mapping of settings"
                refuse(key, f"is {quoted(value)}", fix)
    return data, problems


def without_empty(data: Data) -> Data:
    """Leave out keys that YAML gives no value, in nested mappings too: they say nothing."""
    return {
        key: without_empty(value) if isinstance(value, dict) else value
        for key, value in data.items()
        if value is not None
    }


def prompt_problems(file: str, config: TaskConfig, prompts: Prompts) -> list[Problem]:
    """Report a task that tells no agent what to do, and prompts for roles or scenes that it does not have."""
    found = []
    if not config.steps and not (prompts.base or prompts.roles or prompts.scenes):
        fix = "write below the front matter what the agent has to do"
        found.append(Problem(file, None, None, "has no prompt", fix))
    if document := config.as_document():
        roles, scenes = list(document.agents.roles), [scene.name for scene in document.scenes]
        for kind, given, known in (("role", prompts.roles, roles), ("scene", prompts.scenes, scenes)):
            for name in given:
                if known and name not in known:
                    reason = f"is the prompt of a {kind} that the front matter does not have"
                    hint = did_you_mean(name, known)
                    found.append(Problem(file, None, f"{kind}:{name}", reason, hint, "warning"))
    return found
