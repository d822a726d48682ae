"""Parse a task file for its head, with the models only if the file needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .plain_head import plain_head
from .text import read_text
from .toml_source import TomlSource

if TYPE_CHECKING:
    from .heads import TaskHead
    from .needs import Need


def parse_head(directory: str, file: str) -> tuple[TaskHead, tuple[Need, ...], tuple[Need, ...]] | None:
    """Return head, needs and oracle needs; None if the file is some other tool's."""
    source = None if file.endswith(".md") else TomlSource(file, read_text(file))
    if source is not None and (plain := plain_head(directory, file, source.data)) is not None:
        return plain
    from .full_head import full_head

    return full_head(directory, file, source)
