from .report import Entry as Entry
from .report import Group as Group
from .report import Report as Report
from .report import entries_of as entries_of
from .report import group as group
from .report import write_report as write_report
from .stored import read_report as read_report
from .summary import summary_lines as summary_lines
