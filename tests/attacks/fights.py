"""Which attacks are fought where: a choice of them in every run of the tests, all of them with BF_ATTACKS=all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import chain

import catalogue_harness  # noqa: F401 - fills the list
import catalogue_indirect  # noqa: F401
import catalogue_places  # noqa: F401
import catalogue_python  # noqa: F401
import catalogue_shell  # noqa: F401
from arena import Fight
from attack import AGENT, ATTACKS, Attack
from honest import HONEST, Honest

IS_FULL = os.environ.get("BF_ATTACKS") == "all"

#: One of each kind; the others are variations, which cost minutes.
CHOSEN = frozenset(
    """
    conftest-beside-tests conftest-is-a-link ini-loads-a-plugin plugin-metadata-in-workspace
    shadow-json-inline shadow-compiled-module user-site-of-the-verifier user-site-that-the-image-fills
    pythonpath-of-the-image editable-install
    standard-library-changed cache-that-fits venv-python-replaced variable-path variable-bash-env variable-ld-preload
    variable-pytest-addopts preload-file interpreter-replaced shell-replaced profile-of-root
    git-fsmonitor git-hook makefile-before-makefile
    read-tests variables-of-the-verifier reward-written-ahead logs-is-a-link
    answer-is-a-link answer-link-out-and-out
    leader-is-a-zombie forks-ahead forged-mark holds-the-directory-open started-again-by-a-service
    asks-for-a-file says-that-it-passed
    conftest-for-the-next-step round-plants-a-conftest separate-conftest
    tests-link-to-packages venv-programs-are-a-link ini-with-other-line-ends package-of-tests-with-hidden-code
    metadata-is-a-link shadow-what-pytest-needs package-before-a-module git-common-directory git-hooks-are-links
    scratch-is-a-link perl-module-first programs-directory-is-a-link
    link-through-the-parent-of-a-link link-into-packages link-through-the-system second-link-for-what-tests-bring
    names-are-options plugin-of-the-settings helper-of-a-conftest project-called-like-a-package
    library-before-the-systems library-of-python-elsewhere module-that-a-package-adds metadata-of-the-system-is-a-link
    null-device-is-the-answer package-that-is-not-configured
    venv-with-a-pytest program-that-all-may-write-to variable-openssl-conf
    """.split()  # noqa: SIM905
)
CHOSEN_CONTROLS = {"conftest-beside-tests", "shadow-json-inline", "git-fsmonitor", "answer-is-a-link"}
CHOSEN_HONEST = frozenset(
    """
    honest-file honest-project-has-a-conftest honest-plugin-of-the-image honest-editable-install
    honest-packages-of-one-user-verified-as-agent honest-toolchain-in-opt honest-venv-on-the-path
    honest-venv-of-the-agent honest-git-hook honest-installs-a-package
    honest-configures-services honest-links-into-the-system honest-library-of-the-agent
    honest-steps honest-separate-verifier honest-hook-is-run honest-directory-moved honest-venv-as-artifact
    """.split()  # noqa: SIM905
)


def fights(sandbox: str) -> Iterator[Fight]:
    """Yield the attacks of a sandbox: as each of their users, or as one."""
    for attack in _here(sandbox):
        users = attack.users if IS_FULL else attack.users[:1]
        yield from (Fight(attack, user, sandbox) for user in users if IS_FULL or attack.name in CHOSEN)


def controls(sandbox: str) -> Iterator[Fight]:
    """Yield the same attacks with all hardening off, as far as that alone is what stops them."""
    for attack in _here(sandbox):
        if attack.has_control(sandbox) and (IS_FULL or attack.name in CHOSEN_CONTROLS):
            user = AGENT if AGENT in attack.users else attack.users[0]
            yield Fight(attack, user, sandbox, defended=False)


def honest(sandbox: str) -> Iterator[Honest]:
    """Yield the honest tasks of a sandbox."""
    for each in HONEST:
        if sandbox in each.sandboxes and not missing(each, sandbox) and (IS_FULL or each.name in CHOSEN_HONEST):
            yield each


def _here(sandbox: str) -> Iterator[Attack]:
    return (attack for attack in ATTACKS if sandbox in attack.sandboxes and not missing(attack, sandbox))


def missing(each: Attack | Honest, sandbox: str) -> list[str]:
    """Return what a sandbox cannot have: an image has its own programs, the local sandbox those of this host."""
    on_host = [name for name in each.needs if sandbox == "local" or name == "cc"]
    return [name for name in on_host if shutil.which(name) is None]


assert {*CHOSEN, *CHOSEN_CONTROLS} <= {each.name for each in ATTACKS}
assert {each.name for each in HONEST} >= CHOSEN_HONEST
assert len(names := [each.name for each in chain(ATTACKS, HONEST)]) == len({*names}), "two of one name"
