"""A report as JUnit XML, for CI systems, from results on disk; pytest's own `--junitxml` does it for a run.

Every element and attribute is one that the schemas of Ant and of Jenkins both allow, and all that either requires are
there. So test cases have neither properties nor output of their own.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pytest_benchflow.core.text import printable
from pytest_benchflow.reporting.reasons import reason

if TYPE_CHECKING:
    from junit_xml import TestCase

    from pytest_benchflow.reporting.report import Entry, Report

_SUITE = "benchflow"


def junit_xml(report: Report) -> str:
    """Return the report as JUnit XML: one test case per rollout, its facts in the output of the suite."""
    from junit_xml import TestSuite

    cases = [_case(entry) for entry in report.rollouts]
    # Some schemas take no fraction and no zone, which is UTC in all of ours.
    began = report.started_at[: len("2026-01-31T12:00:00")]
    facts = {"hostname": "localhost", "id": "0", "package": _SUITE, "timestamp": began}
    suite = TestSuite(_SUITE, cases, **facts, properties=_properties(report)).build_xml_doc()
    suite.attrib.pop("disabled")
    suite.attrib["time"] = f"{float(suite.attrib['time']):.3f}"
    for case in suite.iter("testcase"):
        case.attrib.setdefault("time", "0.0")
    for skipped in suite.iter("skipped"):
        skipped.attrib.pop("type")
    ET.SubElement(suite, "system-out").text = "\n\n".join(map(_facts_text, report.rollouts))
    ET.SubElement(suite, "system-err").text = ""
    suites = ET.Element("testsuites")
    suites.append(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _properties(report: Report) -> dict[str, str]:
    facts = {"bf_tool_version": report.tool_version, "bf_job_dir": report.job_dir, "bf_finished_at": report.finished_at}
    return {name: value for name, value in facts.items() if value is not None}


def _case(entry: Entry) -> TestCase:
    from junit_xml import TestCase

    result = entry.result
    group, name = _names(entry)
    case = TestCase(name, group, result.timing.get("total", 0.0))
    if entry.status == "error":
        text = printable(reason(result))
        output = f"{text}\n\n{_facts_text(entry)}"
        case.add_error_info(text.partition("\n")[0], output, result.error and result.error.category.value)
    elif entry.status == "failed":
        output = "\n\n".join(filter(None, (printable(result.verifier_tail or ""), _facts_text(entry))))
        case.add_failure_info(printable(reason(result)), output, "reward")
    elif entry.status in ("skipped", "quarantined", "cancelled"):
        case.add_skipped_info(printable(": ".join(filter(None, (entry.status, reason(result))))))
    return case


def _names(entry: Entry) -> tuple[str, str]:
    """Return the class and the name of a test case, as `--junitxml` has them."""
    result = entry.result
    file, _, cell = entry.id.partition("::")
    if not cell:
        parts = (result.agent, result.model, result.scene, str(result.trial) if result.trial > 1 else None)
        file, cell = result.task_path, "/".join(part for part in parts if part)
    path = PurePosixPath(file.lstrip("/"))
    return printable(".".join(path.parts)), printable(f"{result.task_name}/{cell}")


def _facts_text(entry: Entry) -> str:
    return "\n".join((_names(entry)[1], *_facts(entry)))


def _facts(entry: Entry) -> Iterator[str]:
    """Yield a line for each fact."""
    result = entry.result
    facts: dict[str, object] = {
        "agent": result.agent,
        "model": result.model,
        "scene": result.scene,
        "trial": result.trial,
        "sandbox": result.sandbox,
        "reward": result.reward,
        "threshold": result.threshold,
        **{f"reward {name}": value for name, value in (result.rewards or {}).items() if name != "reward"},
        "agent outcome": result.agent_outcome and result.agent_outcome.value,
        "tool calls": result.n_tool_calls,
        "tokens in": result.tokens.input,
        "tokens out": result.tokens.output,
        "cost in USD": result.cost_usd,
        "task digest": result.task_digest,
        "directory": result.rollout_dir,
    }
    for name, value in facts.items():
        if value is not None:
            yield printable(f"{name}: {value}").replace("\n", " ")
