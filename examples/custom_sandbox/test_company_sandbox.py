"""Hold it to what every sandbox promises: `pytest test_company_sandbox.py`."""

from pytest_benchflow.testing.conformance import SandboxConformance


class TestCompanySandbox(SandboxConformance):
    factory = "company_sandbox:CompanyBackend"
    # Control groups are not to be had everywhere.
    enforces_memory = enforces_cpus = enforces_pids = False
