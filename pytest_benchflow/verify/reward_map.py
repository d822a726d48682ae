"""BenchFlow's richer `reward.json`: metrics and a policy that makes one reward of them, beside details for readers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pytest_benchflow.core.errors import RewardError
from pytest_benchflow.core.text import did_you_mean, one_line

METRICS, AGGREGATE = "metrics", "aggregate"
#: Keys that explain a reward and are no part of it; a number under one of them is a reward as any other.
DETAILS = frozenset({
    "artifacts", "debug", "details", "details_path", "errors", "evidence", "granularity", "items", "metadata",
    "participants", "raw", "reason", "reasons", "regressions", "rubric", "space", "winner",
})  # fmt: skip
_METHODS = ("mean", "weighted_mean", "weighted_sum", "all_pass", "any_pass", "threshold")
_PASS_MARK = 0.5
_THRESHOLD = 0.7
_TOLERANCE = 1e-9

Numbers = Mapping[str, float]


def metrics_of(value: object, number: Callable[[str, object], float]) -> dict[str, float]:
    """Return the metrics of a reward file; `number` reads one, or raises."""
    if not isinstance(value, dict):
        raise RewardError("reward.json: metrics is not an object", advice="give numbers by name")
    return {key: number(f"metrics.{key}", metric) for key, metric in value.items()}


def aggregated(rewards: Numbers, metrics: Numbers, own: object, declared: Mapping[str, object]) -> dict[str, float]:
    """Return the rewards with the one that a policy makes of the metrics; one that is there already has to agree.

    `own` is the file's policy, `declared` the verifier document's, which counts first.
    """
    own = {} if own is None else own
    if not isinstance(own, dict):
        raise RewardError("reward.json: aggregate is not an object", advice='write {"method": "mean"}')
    has_reward = "reward" in rewards
    method = declared.get("method") or own.get("method") or (None if has_reward else declared.get("fallback"))
    if method is None:
        if own:
            raise RewardError("reward.json: aggregate has no method", advice=f"known: {', '.join(_METHODS)}")
        return dict(rewards)
    field = declared.get("field") or own.get("primary") or "reward"
    if field != "reward":
        raise RewardError(f"the aggregate policy is for {one_line(str(field))}", advice="it can only make the reward")
    chosen = metrics or {key: value for key, value in rewards.items() if key != "reward"}
    if not chosen:
        raise RewardError("reward.json has an aggregate policy and no metrics", advice="give numbers in metrics")
    reward = _aggregate(chosen, method, {**own, **{key: value for key, value in declared.items() if value is not None}})
    if has_reward and abs(rewards["reward"] - reward) > _TOLERANCE:
        raise RewardError(
            f"reward.json says {rewards['reward']:g}, and its metrics give {reward:g}",
            advice="leave the reward out, or the aggregate",
        )
    return {**rewards, "reward": rewards["reward"] if has_reward else reward}


def _aggregate(metrics: Numbers, method: object, policy: Mapping[str, object]) -> float:
    word = str(method).replace("-", "_")
    if word not in _METHODS:
        raise RewardError(f"the aggregate policy has the method {one_line(word)}", advice=did_you_mean(word, _METHODS))
    values = metrics.values()
    if word == "all_pass":
        return float(all(value >= _PASS_MARK for value in values))
    if word == "any_pass":
        return float(any(value >= _PASS_MARK for value in values))
    weights = dict.fromkeys(metrics, 1.0) if word == "mean" else _weights(metrics, policy.get("weights"), word)
    total = math.fsum(weights[key] * value for key, value in metrics.items())
    if word == "weighted_sum":
        return total
    divisor = math.fsum(weights.values())
    if divisor <= 0:
        raise RewardError("the weights of the aggregate policy have no positive sum")
    threshold = policy.get("threshold", _THRESHOLD)
    if word == "threshold" and not _is_number(threshold):
        raise RewardError("the threshold of the aggregate policy is not a number")
    mean = total / divisor
    return float(mean >= threshold) if word == "threshold" and isinstance(threshold, int | float) else mean


def _weights(metrics: Numbers, given: object, method: str) -> dict[str, float]:
    if given is None and method != "weighted_sum":
        return dict.fromkeys(metrics, 1.0)
    if not isinstance(given, Mapping) or not all(_is_number(weight) for weight in given.values()):
        raise RewardError(f"{method} needs weights", advice="give a number for each metric")
    if given.keys() != metrics.keys():
        names = ", ".join(sorted(one_line(str(name)) for name in given.keys() ^ metrics.keys()))
        raise RewardError(f"weights and metrics differ in {names}", advice="give exactly one weight for each metric")
    return {key: float(weight) for key, weight in given.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
