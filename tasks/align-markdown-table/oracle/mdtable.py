"""Align the tables of a Markdown text: standard input to standard output."""

import re
import sys

MINIMUM = 3
DELIMITER = re.compile(":?-+:?")
BAR = re.compile(r"(?<!\\)\|")


def cells(line: str) -> list[str] | None:
    """Split a line of a table, or return None if it is none."""
    text = line.strip()
    if len(text) < 2 or not text.startswith("|") or not BAR.fullmatch(text, len(text) - 1):
        return None
    return [cell.strip() for cell in BAR.split(text)[1:-1]]


def aligned(header: list[str], marks: list[str], rows: list[list[str]]) -> list[str]:
    count = len(header)
    table = [header, *((row + [""] * count)[:count] for row in rows)]
    widths = [max(MINIMUM, *map(len, column)) for column in zip(*table)]
    lines = [[pad(*each) for each in zip(row, marks, widths)] for row in table]
    lines.insert(1, [rule(mark, width) for mark, width in zip(marks, widths)])
    return [f"| {' | '.join(line)} |\n" for line in lines]


def pad(cell: str, mark: str, width: int) -> str:
    if mark.endswith(":"):
        space = width - len(cell)
        left = space // 2 if mark.startswith(":") else space
        return " " * left + cell + " " * (space - left)
    return cell.ljust(width)


def rule(mark: str, width: int) -> str:
    start, end = mark.startswith(":"), mark.endswith(":")
    return ":" * start + "-" * (width - start - end) + ":" * end


def align(lines: list[str]) -> list[str]:
    result: list[str] = []
    place, fenced = 0, False
    while place < len(lines):
        if lines[place].startswith("```"):
            fenced = not fenced
        header = None if fenced else cells(lines[place])
        marks = cells(lines[place + 1]) if header and place + 1 < len(lines) else None
        if marks and len(marks) == len(header) and all(map(DELIMITER.fullmatch, marks)):
            end = place + 2
            rows = []
            while end < len(lines) and (row := cells(lines[end])) is not None:
                rows.append(row)
                end += 1
            table = aligned(header, marks, rows)
            if not lines[end - 1].endswith("\n"):
                table[-1] = table[-1].rstrip("\n")
            result += table
            place = end
        else:
            result.append(lines[place])
            place += 1
    return result


if __name__ == "__main__":
    sys.stdout.writelines(align(sys.stdin.readlines()))
