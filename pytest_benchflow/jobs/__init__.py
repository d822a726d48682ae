"""Jobs: many rollouts, their concurrency, directory and statistics."""

from pytest_benchflow.jobs.directory import claim_job_directory
from pytest_benchflow.jobs.engine import Engine
from pytest_benchflow.jobs.statistics import wilson_interval

__all__ = ["Engine", "claim_job_directory", "wilson_interval"]
