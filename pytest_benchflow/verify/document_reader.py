"""Print the text of an office document or a PDF on standard input, in a process of its own with bounds.

Run as a script, by `documents.py`: what it reads was made by an agent, and may be a bomb. It imports nothing of ours.
"""

from __future__ import annotations

import re
import resource
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator
from typing import BinaryIO

MAX_CHARS = 2_000_000
_MAX_MEMORY = 1 << 30
_MAX_CPU_SEC = 20
_MAX_COLUMNS = 200


def read(kind: str, file: BinaryIO) -> Iterator[str]:
    """Yield the text of a document in pieces."""
    if kind == "pdf":
        yield from _pdf(file)
        return
    with zipfile.ZipFile(file) as parts:
        yield from {"docx": _docx, "xlsx": _xlsx, "pptx": _pptx}[kind](parts)


def _docx(parts: zipfile.ZipFile) -> Iterator[str]:
    names = [name for name in parts.namelist() if re.fullmatch(r"word/(?:header|footer)\d*\.xml", name)]
    for name in ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml", "word/comments.xml", *sorted(names)):
        if name in parts.namelist():
            yield from _paragraphs(parts, name)


def _pptx(parts: zipfile.ZipFile) -> Iterator[str]:
    for title, folder in (("slide", "slides/slide"), ("notes", "notesSlides/notesSlide")):
        numbers = sorted(int(n[0]) for name in parts.namelist() if (n := re.findall(rf"ppt/{folder}(\d+)\.xml$", name)))
        for number in numbers:
            yield f"[{title} {number}]\n"
            yield from _paragraphs(parts, f"ppt/{folder}{number}.xml")


def _paragraphs(parts: zipfile.ZipFile, name: str) -> Iterator[str]:
    """Yield the text of runs, a line for each paragraph and for each row of a table."""
    inside: list[str] = []
    for event, tag, element in _elements(parts, name):
        if event == "start":
            inside.append(tag)
            continue
        inside.pop()
        parent = inside[-1] if inside else ""
        if "Fallback" in inside:  # says again what stands beside it, for older programs
            pass
        elif tag == "t":
            yield element.text or ""
        elif tag in ("tab", "br", "cr") and parent in ("r", "p"):
            yield "\t" if tag == "tab" else "\n"
        elif tag == "p":
            yield " " if "tc" in inside else "\n"
        elif tag in ("tc", "tr"):
            yield "\t" if tag == "tc" else "\n"
        element.clear()


def _xlsx(parts: zipfile.ZipFile) -> Iterator[str]:
    strings = [*_strings(parts)] if "xl/sharedStrings.xml" in parts.namelist() else []
    targets = {
        element.get("Id", ""): element.get("Target", "")
        for event, tag, element in _elements(parts, "xl/_rels/workbook.xml.rels")
        if event == "end" and tag == "Relationship"
    }
    for event, tag, element in _elements(parts, "xl/workbook.xml"):
        if event == "start" or tag != "sheet":
            continue
        key = next((value for name, value in element.attrib.items() if name.endswith("}id")), "")
        hidden = "" if element.get("state", "visible") == "visible" else " (hidden)"
        yield f"[sheet {element.get('name', '')}{hidden}]\n"
        target = targets.get(key, "")
        path = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
        if path in parts.namelist():
            yield from _rows(parts, path, strings)


def _strings(parts: zipfile.ZipFile) -> Iterator[str]:
    text: list[str] = []
    for event, tag, element in _elements(parts, "xl/sharedStrings.xml"):
        if event == "start":
            continue
        if tag == "t":
            text.append(element.text or "")
        elif tag == "rPh":  # how the text before it is pronounced
            text.pop()
        elif tag == "si":
            yield "".join(text)
            text.clear()
            element.clear()


def _rows(parts: zipfile.ZipFile, name: str, strings: list[str]) -> Iterator[str]:
    """Yield the rows of a sheet: values in their columns, a formula where its value is not known."""
    cells: dict[int, str] = {}
    for event, tag, element in _elements(parts, name):
        if event == "start":
            continue
        if tag == "c":
            column = _column(element.get("r", ""), len(cells))
            if column < _MAX_COLUMNS and (value := _value(element, strings)):
                cells[column] = value
            element.clear()
        elif tag == "row":
            if cells:
                yield "\t".join(cells.get(column, "") for column in range(max(cells) + 1)) + "\n"
            cells.clear()
            element.clear()


def _column(reference: str, otherwise: int) -> int:
    letters = re.match(r"[A-Z]{1,3}", reference)
    if letters is None:
        return otherwise
    number = 0
    for letter in letters[0]:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _value(cell: ET.Element, strings: list[str]) -> str:
    texts = {child.tag.rpartition("}")[2]: child for child in cell}
    kind, value = cell.get("t"), _text(texts.get("v"))
    if kind == "s" and value is not None:
        return strings[int(value)] if int(value) < len(strings) else ""
    if kind == "inlineStr" and "is" in texts:
        return "".join(part.text or "" for part in texts["is"].iter() if part.tag.endswith("}t"))
    if value is not None:
        return value
    formula = _text(texts.get("f"))
    return f"={formula}" if formula else ""


def _text(element: ET.Element | None) -> str | None:
    return None if element is None else element.text


def _elements(parts: zipfile.ZipFile, name: str) -> Iterator[tuple[str, str, ET.Element]]:
    """Yield where elements begin and end, with their names without a namespace."""
    with parts.open(name) as file:
        for event, element in ET.iterparse(file, events=("start", "end")):  # noqa: S314 - in a process with bounds
            yield event, element.tag.rpartition("}")[2], element


def _pdf(file: BinaryIO) -> Iterator[str]:
    from pypdf import PdfReader

    reader = PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it is encrypted")
    for number, page in enumerate(reader.pages, 1):
        if text := page.extract_text().strip():
            yield f"[page {number}]\n{text}\n"


def main() -> int:
    """Print the text; the reason why there is none goes to standard error."""
    kind = sys.argv[1]
    if kind == "pdf":
        import pypdf  # noqa: F401 - before the limits, which are for the document
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_SEC, _MAX_CPU_SEC))
    left = MAX_CHARS
    sys.stdin.buffer.seek(0)
    try:
        for piece in read(kind, sys.stdin.buffer):
            sys.stdout.buffer.write(piece[:left].encode("utf-8", "replace"))
            left -= len(piece)
            if left < 0:
                sys.stdout.write("\n[… the rest of the document was not read …]\n")
                break
    except MemoryError:
        print("it needs too much memory", file=sys.stderr)
        return 1
    except Exception as error:  # whatever parsers raise for what is broken
        print(str(error).partition("\n")[0] or type(error).__name__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
