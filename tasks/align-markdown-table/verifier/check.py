"""Align hidden documents."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, succeed

EXAMPLE = """\
| Version |     Date      | Downloads |
| ------- | :-----------: | --------: |
| 1.0     |  2023-11-02   |      1204 |
| 1.1     |     soon      |           |
| 1.1.1   | never \\| ever |         7 |
"""


def aligns(source, want):
    got = succeed("python3", "/app/mdtable.py", stdin=source)
    equal(got.splitlines(), want.splitlines(), "aligned text")
    equal(got[-2:], want[-2:], "end of the text")


@check
def columns_get_one_width():
    aligns(
        "|a|bbbb|\n|-|-|\n|cc|d|\n||eeeee|\n", "| a   | bbbb  |\n| --- | ----- |\n| cc  | d     |\n|     | eeeee |\n"
    )


@check
def alignment_is_kept():
    want = [
        "| left   | mid  |  right |",
        "| :----- | :--: | -----: |",
        "| a      |  b   |      c |",
        "| aaaaaa | bbbb | cccccc |",
    ]
    aligns("|left|mid|right|\n|:-|:-:|-:|\n|a|b|c|\n|aaaaaa|bbbb|cccccc|\n", "\n".join(want) + "\n")


@check
def short_and_long_rows_fit_the_header():
    aligns("|a|b|\n|--|--|\n|1|\n|1|2|3|\n", "| a   | b   |\n| --- | --- |\n| 1   |     |\n| 1   | 2   |\n")


@check
def escaped_bars_stay():
    aligns("|x\\|y|b|\n|-|-|\n|\\||2|\n", "| x\\|y | b   |\n| ---- | --- |\n| \\|   | 2   |\n")


@check
def other_text_is_untouched():
    text = "a | b\n--|--\n\n|no|table|\n\n  trailing  \n|x|y|\n|-|\n|- -|-|\n\n| lonely |\n|::|\n\nend"
    aligns(text, text)


@check
def fenced_code_is_untouched():
    text = "```\n|a|b|\n|-|-|\n```\n"
    aligns(text + "|a|\n|-|\n```text\n|c|\n|-|\n```\n", text + "| a   |\n| --- |\n```text\n|c|\n|-|\n```\n")


@check
def several_tables_and_a_header_only():
    aligns("|a|\n|-|\n\ntext\n|bbbbb|\n|:-:|\n", "| a   |\n| --- |\n\ntext\n| bbbbb |\n| :---: |\n")


@check
def indented_lines_and_wide_letters():
    aligns("  |é|ß|  \n |-|-|\n|naïve|x|\n", "| é     | ß   |\n| ----- | --- |\n| naïve | x   |\n")


@check
def aligned_text_stays():
    aligns("x\n\n" + EXAMPLE + "\ny\n", "x\n\n" + EXAMPLE + "\ny\n")


finish()
