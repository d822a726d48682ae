"""Rewriting a Dockerfile: its base image, and where its sources are."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.sandboxes.dockerfile import with_base, with_sources


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FROM a\nRUN x\n", "FROM new\nRUN x\n"),
        ("# FROM no\nfrom a:1 as b\n", "# FROM no\nfrom new as b\n"),
        ("FROM --platform=linux/amd64 a AS b\n", "FROM --platform=linux/amd64 new AS b\n"),
        ("ARG V=1\nFROM a:${V}\n", "ARG V=1\nFROM new\n"),
        (
            "FROM go AS build\nFROM a\nCOPY --from=build /x /x\n",
            "FROM go AS build\nFROM new\nCOPY --from=build /x /x\n",
        ),
        ("FROM a AS Base\nFROM base\nRUN x\n", "FROM new AS Base\nFROM base\nRUN x\n"),
        ("FROM a AS one\nFROM one AS two\nFROM two\n", "FROM new AS one\nFROM one AS two\nFROM two\n"),
        ("FROM debian AS debian\nRUN x\n", "FROM new AS debian\nRUN x\n"),
        ("FROM scratch\n", "FROM new\n"),
        ("FROM a\nRUN <<E\nFROM b\nE\n", "FROM new\nRUN <<E\nFROM b\nE\n"),
        ("RUN x\n", "RUN x\n"),
    ],
)
def test_the_last_stage_stands_on_the_new_image(before: str, after: str) -> None:
    assert with_base(before, "new") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("COPY a /x", "COPY new/a /x"),
        ("ADD a b /x/", "ADD new/a new/b /x/"),
        ("COPY --chown=1:1 --chmod=755 a /x", "COPY --chown=1:1 --chmod=755 new/a /x"),
        ("copy a \\\n  b \\\n  /x\nRUN y", "copy new/a \\\n  new/b \\\n  /x\nRUN y"),
        ('COPY ["a b", "c", "/x"]', 'COPY ["new/a b", "new/c", "/x"]'),
        ("FROM i AS s\nCOPY --from=s a /x", "FROM i AS s\nCOPY --from=s a /x"),
        ("ADD https://example.org/a /x", "ADD https://example.org/a /x"),
        ("COPY $A ${B}/c /x", "COPY $A ${B}/c /x"),
        ("COPY <<EOF /x\nCOPY a /y\nEOF\nCOPY b /z", "COPY <<EOF /x\nCOPY a /y\nEOF\nCOPY new/b /z"),
        ("RUN cat <<-'END'\nCOPY a /y\nEND\nCOPY b /z", "RUN cat <<-'END'\nCOPY a /y\nEND\nCOPY new/b /z"),
        ("RUN echo \\\n  COPY a b", "RUN echo \\\n  COPY a b"),
        ("# COPY a b\nCOPY a b\r\nRUN x", "# COPY a b\nCOPY new/a b\r\nRUN x"),
        ("# escape=`\nCOPY a `\n b /x", "# escape=`\nCOPY new/a `\n new/b /x"),
        ("COPY a \\\n# b c\n d /x", "COPY new/a \\\n# b c\n new/d /x"),
        ("COPY []", "COPY []"),
        ("COPY [1, 2]", "COPY [1, 2]"),
        ("COPY [not json", "COPY [not json"),
    ],
)
def test_only_sources_in_the_context_are_renamed(before: str, after: str) -> None:
    assert with_sources(before, lambda line, source: None if source == "[not" else f"new/{source}") == after


def test_the_line_of_a_source_is_known() -> None:
    seen: list[tuple[int, str]] = []
    with_sources("FROM a\n\n# x\nCOPY a \\\n b /x\nCOPY c /y\n", lambda line, source: seen.append((line, source)))
    assert sorted(seen) == [(4, "a"), (4, "b"), (6, "c")]


@given(st.lists(st.sampled_from(["COPY a b", "FROM x", "RUN <<E", "E", "\\", "#", "COPY [", "  ", "ADD \\", "é"])))
def test_a_file_of_which_nothing_is_renamed_stays_as_it_is(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert with_sources(text, lambda line, source: None) == text
