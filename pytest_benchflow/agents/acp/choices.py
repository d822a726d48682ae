"""What a session offers to choose: modes, models and configuration options, in the shapes agents use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pytest_benchflow.agents.acp.types import as_list, as_object, as_text
from pytest_benchflow.core.types import Json

_EFFORT_WORDS = ("thought_level", "effort", "reasoning_effort", "thinking", "reasoning")


@dataclass(frozen=True, slots=True)
class Option:
    """A configuration option that takes one of some values."""

    id: str
    category: str | None
    current: str | None
    values: tuple[str, ...]


@dataclass(slots=True)
class Choices:
    """The state of a session as its agent reports it."""

    name_pattern: str | None = None
    """Pattern of the name by which the agent reports its model; the first group is the model."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Short names by which the agent reports models."""
    options: dict[str, Option] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    current_model: str | None = None
    modes: tuple[str, ...] = ()
    current_mode: str | None = None

    def take(self, report: Json) -> None:
        """Take whatever of the state a result or an update contains."""
        state = as_object(report)
        if isinstance(state.get("configOptions"), list):
            options = [option for item in as_list(state["configOptions"]) if (option := _option(item)) is not None]
            self.options = {option.id: option for option in options}
        models = as_object(state.get("models"))
        if models:
            ids = [as_text(as_object(item).get("modelId")) for item in as_list(models.get("availableModels"))]
            self.models = tuple(name for name in ids if name) or self.models
            self.current_model = as_text(models.get("currentModelId")) or self.current_model
        modes = as_object(state.get("modes"))
        if modes:
            ids = [as_text(as_object(item).get("id")) for item in as_list(modes.get("availableModes"))]
            self.modes = tuple(name for name in ids if name) or self.modes
            self.current_mode = as_text(modes.get("currentModeId")) or self.current_mode
        self.current_mode = as_text(state.get("currentModeId")) or self.current_mode

    def model_option(self, name: str) -> Option | None:
        """Return the option that chooses the model."""
        return self.options.get(name) or self._of_category(("model",))

    def effort_option(self, name: str | None) -> Option | None:
        """Return the option that chooses the effort."""
        if name is not None:
            return self.options.get(name)
        known = next((self.options[word] for word in _EFFORT_WORDS if word in self.options), None)
        return self._of_category(_EFFORT_WORDS) or known

    def reported_model(self, option: str) -> str | None:
        """Return the model that the agent says it runs."""
        chosen = self.model_option(option)
        name = (chosen and chosen.current) or self.current_model
        match = re.match(self.name_pattern, name, re.IGNORECASE) if self.name_pattern and name else None
        name = match[1] if match else name
        return self.aliases.get(name, name) if name else None

    def known_models(self, option: str) -> list[str]:
        """Return the ids of all models that are offered, in either way, once each."""
        chosen = self.model_option(option)
        known = dict.fromkeys(chosen.values if chosen else ())
        return [*known, *(name for name in self.models if name not in known and _without_effort(name) not in known)]

    def assume(self, model: str, option: str) -> None:
        """Take a model for chosen that its agent accepted without a word on what it runs now."""
        self.current_model = model
        chosen = self.model_option(option)
        if chosen is not None:
            self.options[chosen.id] = replace(chosen, current=model)

    def _of_category(self, categories: tuple[str, ...]) -> Option | None:
        matches = [option for option in self.options.values() if option.category in categories]
        return matches[0] if len(matches) == 1 else None


def _option(item: Json) -> Option | None:
    entry = as_object(item)
    name = as_text(entry.get("id"))
    if name is None:
        return None
    return Option(
        name, as_text(entry.get("category")), as_text(entry.get("currentValue")), tuple(_values(entry.get("options")))
    )


#: How providers name the version of a model that answered to its plain name.
_SNAPSHOT = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d)")


def _values(options: Json) -> list[str]:
    """Return the values of an option, those in groups too."""
    values: list[str] = []
    for item in as_list(options):
        entry = as_object(item)
        if isinstance(entry.get("options"), list):
            values += _values(entry["options"])
        elif (value := as_text(entry.get("value"))) is not None:
            values.append(value)
    return values


def same_model(asked: str, reported: str) -> bool:
    """Return whether an agent means the model asked for; some add an effort, a provider or a date to its name."""
    if asked == reported:
        return True
    plain = _without_effort(reported)
    if _without_effort(asked) == plain and (plain == reported or "[" not in asked):
        return True
    if plain.startswith(asked) and _SNAPSHOT.fullmatch(plain, len(asked)):
        return True
    return plain.endswith((f"/{asked}", f":{asked}")) or asked.endswith((f"/{plain}", f":{plain}"))


def contradicts(asked: str, reported: str | None, *, at_launch: bool) -> bool:
    """Return whether what an agent reports shows that it runs another model.

    A word like "default" tells nothing of a model that was chosen at launch.
    """
    if reported is None or (at_launch and is_alias(reported)):
        return False
    return not same_model(asked, reported)


def other_model(asked: str, used: list[str], known: list[str]) -> str | None:
    """Return a model that answered beside or in place of the one asked for.

    Providers spell models in their own way: a single name that the agent does not know is the one asked for.
    """
    others = [name for name in used if not same_model(asked, name)]
    if is_alias(asked) or not others:
        return None
    if len(others) < len(used):
        return others[0]
    return next((name for name in others if name in known), others[1] if len(others) > 1 else None)


def is_alias(name: str) -> bool:
    """Return whether a name leaves the choice of the model to the agent."""
    return name.startswith(("auto", "default"))


def _without_effort(name: str) -> str:
    return name[: name.index("[")] if name.endswith("]") and "[" in name else name
