"""Reports: what a run leaves for people and machines to read."""

from pytest_benchflow.reporting.report import Entry, Group, Report, group, write_report
from pytest_benchflow.reporting.summary import summary_lines

__all__ = ["Entry", "Group", "Report", "group", "summary_lines", "write_report"]
