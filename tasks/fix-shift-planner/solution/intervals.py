"""Half-open intervals: (start, end) holds start but not end."""

Interval = tuple[int, int]


def merge(intervals: list[Interval]) -> list[Interval]:
    """Join intervals that overlap or touch.

    Returns a new sorted list; the argument stays as it was. Empty intervals (start == end) are dropped.
    """
    merged: list[Interval] = []
    for start, end in sorted(pair for pair in intervals if pair[0] < pair[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def gaps(intervals: list[Interval], start: int, end: int) -> list[Interval]:
    """Return the parts of (start, end) that no interval covers, sorted.

    Intervals may reach beyond the period or lie outside it; nothing outside the period is returned.
    """
    found: list[Interval] = []
    cursor = start
    for left, right in merge(intervals):
        if cursor < min(left, end):
            found.append((cursor, min(left, end)))
        cursor = max(cursor, right)
    if cursor < end:
        found.append((cursor, end))
    return found
