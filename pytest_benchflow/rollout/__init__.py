"""Rollouts: one agent configuration on one task, once.

`rollout` goes through the phases: `checks` before anything is paid for, `setup` of the sandbox, `sessions` with the
agents as the `scenes` say (`outbox` for messages between roles, `user_loop` and `users` for rounds with a user), and
`step_run` with `artifacts` to verify each step. `recorder` collects what happens, and makes the `result` from it.
`settings` declares every setting, `config` is one rollout's, `files` reads them from YAML; `resources` is what the
rollouts of a run share.
"""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
