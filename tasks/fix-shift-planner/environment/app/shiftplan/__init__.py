"""Plan duty rosters in minutes since midnight."""

from shiftplan.intervals import gaps, merge
from shiftplan.roster import Shift, on_duty, parse_shift, uncovered

__all__ = ["Shift", "gaps", "merge", "on_duty", "parse_shift", "uncovered"]
