"""Read the reward a verifier left, strictly: whatever is not a finite number is an error, never a zero.

Its checks are named from a CTRF report, so that a failure says which of them failed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.core.errors import RewardError
from pytest_benchflow.core.text import one_line
from pytest_benchflow.verify.reward_map import AGGREGATE, DETAILS, METRICS, aggregated, metrics_of

_MAX_CTRF_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Checks:
    """The named checks a verifier ran."""

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """How many checks ran."""
        return len(self.passed) + len(self.failed)


def read_checks(directory: Path) -> Checks | None:
    """Return what `ctrf.json` says; None if there is none or it cannot be read, for it is only a help to the reader."""
    path = directory / "ctrf.json"
    try:
        if path.is_symlink() or path.stat().st_size > _MAX_CTRF_BYTES:
            return None
        tests = json.loads(path.read_bytes())["results"]["tests"]
        by_status = [(str(test["status"]), one_line(str(test["name"]))) for test in tests]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Checks(
        passed=tuple(name for status, name in by_status if status == "passed"),
        failed=tuple(name for status, name in by_status if status == "failed"),
    )


REWARD_TXT = "reward.txt"
REWARD_JSON = "reward.json"
_MAX_BYTES = 1_000_000
_TOLERANCE = 1e-9
_LARGEST = 1e100
"""Beyond this, sums over many rollouts would overflow."""


def read_rewards(
    directory: Path,
    within: tuple[float, float] | None = None,
    ending: str | None = None,
    policy: Mapping[str, object] | None = None,
) -> dict[str, float]:
    """Return the rewards in a verifier's log directory, all of them within the range that the task declares.

    `ending` is how the verifier ended, which the error tells if it left none. With a `policy`, metrics and details may
    stand in the file as BenchFlow lets them; it says what makes a reward of metrics, if the file does not.
    """
    rewards = _read(directory, ending, policy)
    for key, value in rewards.items():
        if within is not None and not within[0] <= value <= within[1]:
            raise RewardError(
                f"{one_line(key)} is {value:g}, outside [{within[0]:g}, {within[1]:g}]",
                advice="scale it, or widen [verifier] reward_range",
            )
    return rewards


def _read(directory: Path, ending: str | None, policy: Mapping[str, object] | None) -> dict[str, float]:
    """Read the files; `reward.json` beats `reward.txt`, and both must agree."""
    as_json, as_txt = directory / REWARD_JSON, directory / REWARD_TXT
    has_json, has_txt = _is_file(as_json), _is_file(as_txt)
    if not has_json and not has_txt:
        raise RewardError(_nothing_found(directory, ending), advice="let test.sh write /logs/verifier/reward.txt")
    if not has_json:
        return {"reward": parse_txt(_text(as_txt))}
    rewards = parse_json(_text(as_json), policy)
    if has_txt:
        _refuse_disagreement(primary_reward(rewards), parse_txt(_text(as_txt)))
    return rewards


def primary_reward(rewards: dict[str, float]) -> float:
    """Return the one number that a threshold looks at: the key `reward`, else the mean of all keys."""
    return rewards["reward"] if "reward" in rewards else math.fsum(rewards.values()) / len(rewards)


def parse_txt(text: str) -> float:
    """Parse the content of reward.txt."""
    if not text:
        raise RewardError("reward.txt is empty", advice="write one number to it")
    try:
        value = float(text)
    except ValueError:
        raise RewardError(f"reward.txt holds {_shown(text)}", advice="write one number to it") from None
    return _finite(value, "reward.txt")


def parse_json(text: str, policy: Mapping[str, object] | None = None) -> dict[str, float]:
    """Parse the content of reward.json: numbers, and with a policy what BenchFlow lets stand beside them."""
    if not text:
        raise RewardError("reward.json is empty", advice='write an object of numbers, for example {"reward": 1.0}')
    try:
        data: object = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise RewardError(f"reward.json is not JSON: {_shown(text)}") from None
    if not isinstance(data, dict):
        raise RewardError(f"reward.json holds {_kind(data)}", advice='write an object, for example {"reward": 1.0}')
    if not data:
        raise RewardError("reward.json holds no key", advice='write at least {"reward": NUMBER}')
    if policy is None:
        return {key: _number(key, value) for key, value in data.items()}
    metrics = metrics_of(data.pop(METRICS), _number) if METRICS in data and not _is_number(data[METRICS]) else {}
    own = data.pop(AGGREGATE) if AGGREGATE in data and not _is_number(data[AGGREGATE]) else None
    numbers = {key: _number(key, value) for key, value in data.items() if key not in DETAILS or _is_number(value)}
    if twice := sorted(numbers.keys() & metrics.keys()):
        raise RewardError(f"reward.json has {one_line(twice[0])} among its metrics and beside them", advice="keep one")
    rewards = aggregated({**metrics, **numbers}, metrics, own, policy)
    if not rewards:
        raise RewardError("reward.json holds no number", advice='write at least {"reward": NUMBER}')
    return rewards


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON; a key that stands there twice would hide a value."""
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise RewardError(f"reward.json has the key {one_line(key)} {count} times", advice="write it once")
    return dict(pairs)


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RewardError(f"reward.json: {one_line(key)} is {_kind(value)}", advice="give a number")
    try:
        return _finite(float(value), f"reward.json: {one_line(key)}")
    except OverflowError:
        raise RewardError(f"reward.json: {one_line(key)} is too large for a number") from None


def _finite(value: float, where: str) -> float:
    if not abs(value) <= _LARGEST:
        raise RewardError(f"{where} is {value}", advice="give a finite number")
    return value


def _refuse_disagreement(from_json: float, from_txt: float) -> None:
    if abs(from_json - from_txt) > _TOLERANCE:
        raise RewardError(
            f"reward.json says {from_json:g} and reward.txt says {from_txt:g}",
            advice="write only one of them, or the same number to both",
        )


def _nothing_found(directory: Path, ending: str | None) -> str:
    names = sorted(one_line(p.name) for p in directory.iterdir()) if directory.is_dir() else []
    seen = f"it holds {', '.join(names[:8])}" if names else "it is empty"
    how = f"; it {ending}" if ending else ""
    return f"the verifier left no reward.txt or reward.json in /logs/verifier ({seen}){how}"


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _text(path: Path) -> str:
    raw = path.read_bytes()
    if len(raw) > _MAX_BYTES:
        raise RewardError(f"{path.name} has {len(raw)} bytes", advice="write numbers only")
    return raw.decode("utf-8", "replace")


def _kind(value: object) -> str:
    names: dict[type, str] = {bool: "a boolean", type(None): "null", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a bare number")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
