"""Attacks in the docker sandbox: none gains anything, each would without hardening, and honest work is rewarded."""

import pytest
from attack_tests import test_a_control_succeeds, test_an_attack_gains_nothing, test_honest_work_is_rewarded

__all__ = ["test_a_control_succeeds", "test_an_attack_gains_nothing", "test_honest_work_is_rewarded"]

SANDBOX = "docker"
pytestmark = pytest.mark.docker
