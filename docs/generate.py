"""Write what the docs take from the code: the table of options and the JSON Schemas. `make docs` runs it."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_benchflow.plugin.options import markdown_table
from pytest_benchflow.reporting import Report
from pytest_benchflow.rollout import rollout_schema

DOCS = Path(__file__).parent


def main() -> None:
    """Write them all."""
    page = DOCS / "options.md"
    text, _, _ = page.read_text("utf-8").partition("| option |")
    page.write_text(text + markdown_table(), "utf-8")
    for name, schema in (("report", Report.model_json_schema()), ("rollout", rollout_schema())):
        (DOCS / f"schemas/{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
