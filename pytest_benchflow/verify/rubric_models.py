"""The dialects in which rubrics for judges are written, as strict models that all end in one `JudgeRubric`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool, field_validator, model_validator

from pytest_benchflow.configfile import NonEmpty, Number, Seconds, Table, quoted, rule_error
from pytest_benchflow.verify.rubric import Space

Dialect = Literal["benchflow", "rewardkit", "choices"]
Kind = Literal["binary", "likert", "numeric", "levels"]
Aggregation = Literal["weighted_mean", "weighted_sum", "all_pass", "any_pass", "threshold", "required_pass"]
Mode = Literal["individual", "batched"]
Guard = Literal["off", "flag", "penalize"]

#: Who judges where neither task nor rubric say it.
DEFAULT_MODEL = "claude-sonnet-4-6"
_MAX_CRITERIA = 200


@dataclass(frozen=True, slots=True)
class Criterion:
    """One question to the judge, and how its answer becomes a score between 0 and 1."""

    name: str
    description: str
    kind: Kind = "binary"
    weight: float = 1.0
    points: int = 5
    low: float = 0.0
    high: float = 1.0
    levels: tuple[str, ...] = ()
    """From worst to best."""
    files: tuple[str, ...] = ()
    is_negated: bool = False
    is_required: bool = True
    space: Space = "output"

    @property
    def id(self) -> str:
        """The name, as BenchFlow calls it."""
        return self.name

    @property
    def type(self) -> Kind:
        """The kind, as rubrics call it."""
        return self.kind

    @property
    def min(self) -> float:
        """The lowest number."""
        return self.low

    @property
    def max(self) -> float:
        """The highest number."""
        return self.high

    def value(self, raw: float) -> float:
        """Return the score of a verdict, which is a number within the criterion's range."""
        match self.kind:
            case "binary":
                share = 1.0 if raw >= 0.5 else 0.0
            case "likert":
                share = (raw - 1) / (self.points - 1)
            case "numeric":
                share = (raw - self.low) / (self.high - self.low)
            case "levels":
                share = raw / (len(self.levels) - 1)
        share = min(max(share, 0.0), 1.0)
        return 1.0 - share if self.is_negated else share


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """The `[judge]` of a rubric."""

    model: str
    mode: Mode
    files: tuple[str, ...]
    timeout: float


@dataclass(frozen=True, slots=True)
class ScoringConfig:
    """The `[scoring]` of a rubric."""

    aggregation: Aggregation
    threshold: float


@dataclass(frozen=True, slots=True)
class JudgeRubric:
    """Everything a judge needs to know, in whichever dialect it was written."""

    criteria: tuple[Criterion, ...]
    dialect: Dialect = "benchflow"
    file: str | None = None
    title: str | None = None
    model: str | None = None
    mode: Mode = "individual"
    files: tuple[str, ...] = ()
    timeout_sec: float = 120.0
    samples: int = 1
    min_agreement: float = 0.7
    """Verdicts that agree less than this are warned of."""
    temperature: float | None = 0.0
    seed: int = 0
    reference: str | None = None
    """A file that the judge compares with, beside the rubric."""
    final_message: bool = False
    trajectory: bool = False
    max_file_chars: int = 30_000
    max_chars: int = 200_000
    instructions: str | None = None
    """A file with more instructions, beside the rubric."""
    guard: Guard = "off"
    aggregation: Aggregation = "weighted_mean"
    threshold: float = 0.7
    pass_mark: float = 0.5
    """The score at which a criterion passes, where that is all that counts."""
    mapped: tuple[str, ...] = ()
    """Keys of the dialect that are called otherwise here, and what they became."""

    @property
    def judge(self) -> JudgeConfig:
        """What is said of the judge, with what holds where nothing is said."""
        return JudgeConfig(self.model or DEFAULT_MODEL, self.mode, self.files, self.timeout_sec)

    @property
    def scoring(self) -> ScoringConfig:
        """How criteria become a reward."""
        return ScoringConfig(self.aggregation, self.threshold)

    def score(self, values: Mapping[str, float]) -> float:
        """Return the reward for the scores of all criteria."""
        passed = {each.name: values[each.name] >= self.pass_mark for each in self.criteria}
        weights = math.fsum(each.weight for each in self.criteria)
        total = math.fsum(each.weight * values[each.name] for each in self.criteria)
        match self.aggregation:
            case "weighted_mean":
                return total / weights
            case "weighted_sum":
                return total
            case "all_pass":
                return float(all(passed.values()))
            case "any_pass":
                return float(any(passed.values()))
            case "threshold":
                return float(total / weights >= self.threshold)
            case "required_pass":
                return float(all(passed[each.name] for each in self.criteria if each.is_required))


def _aggregation(value: object) -> object:
    """Return an aggregation by its usual name: both spellings of words, and BenchFlow's `mean`."""
    word = value.replace("-", "_") if isinstance(value, str) else value
    return "weighted_mean" if word == "mean" else word


_Aggregation = Annotated[Aggregation, BeforeValidator(_aggregation)]
_Patterns = tuple[NonEmpty, ...]
_Samples = Annotated[int, Field(ge=1, le=99)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Temperature = Annotated[float, Field(ge=0, le=2)]
_Chars = Annotated[int, Field(ge=1_000, le=2_000_000)]
_Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Points = Annotated[int, Field(ge=2, le=1000)]
_Levels = Annotated[tuple[NonEmpty, ...], Field(min_length=2, max_length=20)]


_NUMBERS = (
    "weight", "points", "min", "max", "samples", "seed", "temperature", "min_agreement", "max_chars", "max_file_chars",
    "timeout", "threshold"
)  # fmt: skip


class _Strict(Table):
    """A table whose numbers are numbers: true and "2" would be taken for some."""

    @field_validator(*_NUMBERS, mode="before", check_fields=False)
    @classmethod
    def _is_number(cls, value: object) -> object:
        if isinstance(value, bool | str):
            raise rule_error(f"is {quoted(value)}", "give a number")
        return value


class _JudgeTable(_Strict):
    """What every dialect's `[judge]` may say."""

    files: _Patterns = ()
    samples: _Samples = 1
    reference: NonEmpty | None = None
    guard: Guard = "off"
    temperature: _Temperature = 0.0
    seed: int = 0
    min_agreement: _Share = 0.7
    final_message: StrictBool = False
    trajectory: StrictBool = False
    max_chars: _Chars = 200_000
    max_file_chars: _Chars = 30_000


class BenchflowJudge(_JudgeTable):
    """`[judge]` in BenchFlow's dialect."""

    model: NonEmpty | None = None
    mode: Mode = "individual"
    timeout: Seconds = 120.0
    instructions: NonEmpty | None = None


class RewardkitJudge(_JudgeTable):
    """`[judge]` in rewardkit's dialect; what only its agent judges have is refused."""

    judge: NonEmpty | None = None
    model: NonEmpty | None = None
    mode: Mode = "batched"
    timeout: Seconds = 300.0
    weight: _Weight = 1.0
    atif_trajectory: NonEmpty | None = None
    prompt_template: NonEmpty | None = None
    reasoning_effort: NonEmpty | None = None
    version: str | None = None
    isolated: StrictBool = False
    cwd: str | None = None
    mcp_servers: tuple[dict[str, object], ...] = ()

    _OF_AGENTS: ClassVar = ("version", "isolated", "cwd", "mcp_servers")
    _AGENTS: ClassVar = ("claude-code", "codex", "gemini-cli", "opencode", "openhands", "jev")

    @model_validator(mode="after")
    def _asks_a_model(self) -> Self:
        fix = "name a model, for example anthropic/claude-sonnet-4-6"
        if self.judge in self._AGENTS:
            raise rule_error(f"is {quoted(self.judge)}, and agents do not judge here", fix, "judge")
        for key in self._OF_AGENTS:
            if getattr(self, key):
                raise rule_error("is for agents as judges, which do not judge here", "remove it", key)
        return self


class _Scoring(_Strict):
    aggregation: _Aggregation | None = None
    method: _Aggregation | None = None
    threshold: _Share | None = None

    @model_validator(mode="after")
    def _says_it_once(self) -> Self:
        if self.aggregation is not None and self.method is not None and self.aggregation != self.method:
            raise rule_error("contradicts aggregation, which is the same key", "keep one of them", "method")
        return self


class _CriterionTable(_Strict):
    """What every dialect's criteria may say."""

    type: Literal["binary", "likert", "numeric", "levels", "rubric"] = "binary"
    points: _Points = 5
    levels: _Levels | None = None
    weight: _Weight = 1.0
    files: _Patterns = ()
    negate: StrictBool = False

    def kind(self) -> Kind:
        """Return how the criterion is answered; naming levels is enough to ask for one of them."""
        return "levels" if self.levels is not None else "binary" if self.type == "rubric" else self.type

    def problem(self) -> tuple[str, str, str] | None:
        """Return what does not go together: reason, fix, key."""
        if self.levels is None and self.type in ("levels", "rubric"):
            return (
                "is missing",
                'list the levels from worst to best, for example ["absent", "partial", "full"]',
                "levels",
            )
        if self.levels is not None and self.type in ("likert", "numeric"):
            return f"has no meaning for the type {self.type}", "remove it, or the type", "levels"
        if self.levels is not None and len(set(self.levels)) < len(self.levels):
            return "names a level twice", "give each its own name", "levels"
        return None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (problem := self.problem()) is not None:
            raise rule_error(*problem)
        return self


def _span_problem(low: float, high: float) -> tuple[str, str, str] | None:
    if high <= low or not math.isfinite(high - low):
        return f"is {high:g}, not above min = {low:g}", "give the highest score", "max"
    return None


class BenchflowCriterion(_CriterionTable):
    """A criterion in BenchFlow's dialect, whose numbers end at 100."""

    description: NonEmpty | None = None
    match_criteria: NonEmpty | None = None
    name: NonEmpty | None = None
    id: NonEmpty | None = None
    title: NonEmpty | None = None
    min: Number = 0.0
    max: Number = 100.0
    space: Space = "output"
    required: StrictBool = True

    def problem(self) -> tuple[str, str, str] | None:
        """Return what does not go together."""
        if self.text() is None:
            return "is missing", "say what the judge has to look for", "description"
        return super().problem() or _span_problem(self.min, self.max)

    def own_name(self) -> str | None:
        """Return what it is called, by any of the keys for that."""
        return self.name or self.id or self.title

    def text(self) -> str | None:
        """Return what the judge is asked."""
        return self.match_criteria or self.description or self.title


class RewardkitCriterion(_CriterionTable):
    """A criterion in rewardkit's dialect, whose numbers end at 1."""

    description: NonEmpty
    weight: Number = 1.0
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    id: NonEmpty | None = None
    min: Number = 0.0
    max: Number = 1.0
    optional: StrictBool | None = None
    annotations: dict[str, object] = Field(default_factory=dict)
    space: Space = "output"

    def problem(self) -> tuple[str, str, str] | None:
        """Return what does not go together."""
        return super().problem() or _span_problem(self.min, self.max)

    def is_annotated(self, key: str, word: str) -> bool:
        """Return whether an imported rubric's notes say so."""
        return word in str(self.annotations.get(key, "")).lower()


class ChoicesCriterion(_Strict):
    """A criterion with choices from worst to best, as verifiers' rubric judge has them."""

    text: NonEmpty
    name: NonEmpty | None = None
    weight: _Weight = 1.0
    choices: _Levels = ("no", "yes")


class _RubricTable(Table):
    dialect: Dialect | None = None


class BenchflowRubric(_RubricTable):
    """A rubric in BenchFlow's dialect, TOML or JSON."""

    title: str | None = None
    judge: BenchflowJudge = Field(default_factory=BenchflowJudge)
    criterion: tuple[BenchflowCriterion, ...] = Field(default=(), max_length=_MAX_CRITERIA)
    criteria: tuple[BenchflowCriterion, ...] = Field(default=(), max_length=_MAX_CRITERIA)
    scoring: _Scoring = Field(default_factory=_Scoring)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.criterion and self.criteria:
            raise rule_error("stands beside criterion, which is the same key", "keep one of them", "criteria")
        items = self.criterion or self.criteria
        _require_criteria([each.weight for each in items], "criterion")
        _require_distinct([each.own_name() for each in items])
        return self

    def to_rubric(self, file: str) -> JudgeRubric:
        """Return it as the judge takes it."""
        items, judge, scoring = self.criterion or self.criteria, self.judge, self.scoring
        names = _unique_names([item.own_name() for item in items], [item.text() or "" for item in items])
        criteria = tuple(
            Criterion(
                name=name,
                description=_with_title(item),
                kind=item.kind(),
                weight=item.weight,
                points=item.points,
                low=item.min,
                high=item.max,
                levels=item.levels or (),
                files=item.files,
                is_negated=item.negate,
                is_required=item.required,
                space=item.space,
            )
            for name, item in zip(names, items, strict=True)
        )
        return JudgeRubric(
            criteria=criteria,
            dialect="benchflow",
            file=file,
            title=self.title,
            model=judge.model,
            mode=judge.mode,
            timeout_sec=judge.timeout,
            instructions=judge.instructions,
            aggregation=scoring.aggregation or scoring.method or "weighted_mean",
            threshold=0.7 if scoring.threshold is None else scoring.threshold,
            mapped=tuple(self._mapped()),
            **_shared(judge),  # type: ignore[arg-type]
        )

    def _mapped(self) -> Iterator[str]:
        if self.criteria:
            yield "criteria = criterion"
        keys = {key for item in self.criterion or self.criteria for key in item.model_fields_set}
        yield from (f"{key} = {ours}" for key, ours in _BENCHFLOW_WORDS.items() if key in keys)
        if self.scoring.method is not None:
            yield "method = aggregation"
        if self.judge.mode == "batched":
            yield 'mode = "batched" asks all criteria in one call, which BenchFlow does not'
        if self.dialect is None and _REWARDKIT_TOO & (keys | self.judge.model_fields_set):
            yield from self._unlike_rewardkit()

    def _unlike_rewardkit(self) -> Iterator[str]:
        """Yield what would be scored otherwise in the dialect that has such keys as well."""
        if any(
            item.kind() == "numeric" and "max" not in item.model_fields_set for item in self.criterion or self.criteria
        ):
            yield "numbers end at 100 without max"
        if self.scoring.aggregation == "threshold" and self.scoring.threshold is None:
            yield "the threshold is 0.7"
        if self.scoring.aggregation in ("all_pass", "any_pass", "required_pass"):
            yield "a criterion passes at 0.5"


#: Keys of rewardkit's that may stand in this dialect as well: a file that has them may be meant for it.
_REWARDKIT_TOO = frozenset({"samples", "guard", "reference", "negate", "levels", "mode"})
_BENCHFLOW_WORDS = {"match_criteria": "description", "id": "name", "title": "name"}


def _with_title(item: BenchflowCriterion) -> str:
    text = item.text() or ""
    named = item.name is not None or item.id is not None
    return f"{item.title}: {text}" if named and item.title and item.title != text else text


class RewardkitRubric(_RubricTable):
    """A rubric in the dialect of rewardkit's judge files."""

    judge: RewardkitJudge = Field(default_factory=RewardkitJudge)
    criterion: tuple[RewardkitCriterion, ...] = Field(default=(), max_length=_MAX_CRITERIA)
    scoring: _Scoring = Field(default_factory=_Scoring)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        _require_criteria([each.weight for each in self.criterion], "criterion")
        _require_distinct([each.name for each in self.criterion])
        if any(each.weight < 0 for each in self.criterion) and self.scoring.aggregation != "weighted_sum":
            raise rule_error("has a negative weight", 'that needs aggregation = "weighted-sum"', "criterion")
        required = [each for each in self.criterion if not _is_optional(each)]
        if self.scoring.aggregation == "required_pass" and not required:
            raise rule_error("needs a criterion that is not optional", "make one of them required", "scoring")
        return self

    def to_rubric(self, file: str) -> JudgeRubric:
        """Return it as the judge takes it."""
        judge, scoring = self.judge, self.scoring
        names = _unique_names([item.name for item in self.criterion], [item.description for item in self.criterion])
        criteria = tuple(
            Criterion(
                name=name,
                description=item.description,
                kind=item.kind(),
                weight=item.weight,
                points=item.points,
                low=item.min,
                high=item.max,
                levels=item.levels or (),
                files=item.files,
                is_negated=item.negate if "negate" in item.model_fields_set else item.is_annotated("type", "negative"),
                is_required=not _is_optional(item),
                space=item.space,
            )
            for name, item in zip(names, self.criterion, strict=True)
        )
        shared = _shared(judge)
        shared["trajectory"] = judge.trajectory or judge.atif_trajectory is not None
        return JudgeRubric(
            criteria=criteria,
            dialect="rewardkit",
            file=file,
            model=judge.judge or judge.model,
            mode=judge.mode,
            timeout_sec=judge.timeout,
            instructions=judge.prompt_template,
            aggregation=scoring.aggregation or scoring.method or "weighted_mean",
            threshold=0.5 if scoring.threshold is None else scoring.threshold,
            pass_mark=1.0,
            mapped=tuple(self._mapped()),
            **shared,  # type: ignore[arg-type]
        )

    def _mapped(self) -> Iterator[str]:
        words = {"judge": "model", "atif_trajectory": "trajectory", "prompt_template": "instructions"}
        yield from (f"{key} = {ours}" for key, ours in words.items() if getattr(self.judge, key))
        if self.judge.reasoning_effort is not None:
            yield "reasoning_effort has no effect"
        if any(item.type == "rubric" for item in self.criterion):
            yield 'type "rubric" = "levels"'
        if any(item.optional is not None for item in self.criterion):
            yield "optional = not required"
        if any(item.kind() == "numeric" and "max" not in item.model_fields_set for item in self.criterion):
            yield "numbers end at 1 without max"
        if self.scoring.aggregation == "threshold" and self.scoring.threshold is None:
            yield "the threshold is 0.5"
        if self.scoring.aggregation in ("all_pass", "any_pass", "required_pass"):
            yield "a criterion passes at 1"


def _is_optional(item: RewardkitCriterion) -> bool:
    return item.is_annotated("importance", "optional") if item.optional is None else item.optional


class ChoicesRubric(_RubricTable):
    """A rubric of criteria with choices."""

    judge: BenchflowJudge = Field(default_factory=lambda: BenchflowJudge(mode="batched"))
    criteria: tuple[ChoicesCriterion, ...] = Field(default=(), max_length=_MAX_CRITERIA)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        _require_criteria([each.weight for each in self.criteria], "criteria")
        _require_distinct([each.name for each in self.criteria])
        return self

    def to_rubric(self, file: str) -> JudgeRubric:
        """Return it as the judge takes it."""
        names = _unique_names([item.name for item in self.criteria], [item.text for item in self.criteria])
        criteria = tuple(
            Criterion(name, item.text, "levels", item.weight, levels=item.choices)
            for name, item in zip(names, self.criteria, strict=True)
        )
        judge = self.judge
        return JudgeRubric(
            criteria=criteria,
            dialect="choices",
            file=file,
            model=judge.model,
            mode=judge.mode,
            timeout_sec=judge.timeout,
            instructions=judge.instructions,
            mapped=("text = description", "choices = levels"),
            **_shared(judge),  # type: ignore[arg-type]
        )


def _shared(judge: _JudgeTable) -> dict[str, object]:
    """Return the fields that all dialects call the same."""
    return {name: getattr(judge, name) for name in _JudgeTable.model_fields}


def _require_criteria(weights: Sequence[float], key: str) -> None:
    if not weights:
        raise rule_error("is missing", "a rubric has at least one [[criterion]] with a description", key)
    if not any(weights):
        raise rule_error("has no positive weight", "give at least one criterion a weight above 0", key)


def _require_distinct(names: Sequence[str | None]) -> None:
    given = [name for name in names if name is not None]
    for name in given:
        if given.count(name) > 1:
            raise rule_error(f"has two criteria named {quoted(name)}", "give each its own name", "criterion")


def _unique_names(names: Sequence[str | None], texts: Sequence[str]) -> list[str]:
    """Return a name for each criterion, made from its text where it has none."""
    given = {name for name in names if name is not None}
    unique: list[str] = []
    for name, text in zip(names, texts, strict=True):
        base = name or re.sub(r"[^a-z0-9]+", "_", text[:40].lower()).strip("_") or "criterion"
        taken = {*unique, *(given if name is None else ())}
        candidates = (base if n == 1 else f"{base}_{n}" for n in range(1, 2 * len(names) + 2))
        unique.append(next(candidate for candidate in candidates if candidate not in taken))
    return unique
