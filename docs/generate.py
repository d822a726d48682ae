"""Write what the docs take from the code: tables of options and failures, JSON Schemas. `make docs` runs it."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_benchflow.core.errors import FAILURES
from pytest_benchflow.plugin.options import markdown_table
from pytest_benchflow.reporting import Report
from pytest_benchflow.rollout import rollout_schema
from pytest_benchflow.verify import rubric_schema

DOCS = Path(__file__).parent


def main() -> None:
    """Write them all."""
    page = DOCS / "options.md"
    text, _, _ = page.read_text("utf-8").partition("| option |")
    page.write_text(text + markdown_table(), "utf-8")
    page = DOCS / "errors.md"
    text, _, _ = page.read_text("utf-8").partition("| category |")
    page.write_text(text + failures_table(), "utf-8")
    schemas = {"report": Report.model_json_schema(), "rollout": rollout_schema(), "rubric": rubric_schema()}
    for name, schema in schemas.items():
        (DOCS / f"schemas/{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n", "utf-8")


def failures_table() -> str:
    """Return what each category of failures means as a Markdown table."""
    rows = ["| category | what failed | phases | tried again | what to do |", "|---|---|---|---|---|"]
    for category, failure in FAILURES.items():
        again = ("yes" if failure.is_transient else "no") + (f"; {failure.but}" if failure.but else "")
        rows.append(f"| `{category}` | {failure.what} | {failure.phases} | {again} | {failure.advice} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
