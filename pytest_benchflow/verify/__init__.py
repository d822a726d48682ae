"""Verifying: hidden tests in, reward out."""

from pytest_benchflow.verify.checks import Checks, read_checks
from pytest_benchflow.verify.rewards import headline, read_rewards
from pytest_benchflow.verify.verifier import OUTPUT, Verification, Verifier, output_tail

__all__ = ["OUTPUT", "Checks", "Verification", "Verifier", "headline", "output_tail", "read_checks", "read_rewards"]
