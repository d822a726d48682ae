from .report import (
    Entry as Entry,
    Group as Group,
    Report as Report,
    entries_of as entries_of,
    group as group,
    write_report as write_report,
)
from .summary import (
    summary_lines as summary_lines,
)
