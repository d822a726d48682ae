"""What a judge sees of an agent's work, and what the result says of the rest."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import pytest

from pytest_benchflow import JudgeEnvironmentError
from pytest_benchflow.verify import Work
from pytest_benchflow.verify.submission import Submission, matches, render_trajectory, visible


def seen(directory: Path, *patterns: str, max_chars: int = 200_000, max_file_chars: int = 30_000) -> Submission:
    return Work(directory).submission(patterns, max_chars=max_chars, max_file_chars=max_file_chars)


def names(submission: Submission) -> list[str]:
    return [piece.name for piece in submission.pieces]


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        path = directory / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return directory


def test_all_text_files_are_shown_in_order(tmp_path: Path) -> None:
    write(tmp_path, b_md="B", a_md="A", sub__c_txt="C")
    for folder in ("node_modules", "sub/__pycache__", ".git"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("x")
    (tmp_path / ".hidden").write_text("h")
    submission = seen(tmp_path)
    assert [(piece.name, piece.text) for piece in submission.pieces] == [
        ("a.md", "A"),
        ("b.md", "B"),
        ("sub/c.txt", "C"),
    ]
    assert submission.notes == ()


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("report.md", "report.md", True),
        ("report", "report.md", False),
        ("report.md", "report.md.bak", False),
        ("report.md", "sub/report.md", False),
        ("sub", "sub/report.md", True),
        ("./sub/", "sub/report.md", True),
        ("*.md", "report.md", True),
        ("*.md", "sub/report.md", False),
        ("**/*.md", "a/b/report.md", True),
        ("**/*.md", "report.md", True),
        ("r[ae]port.md", "report.md", True),
        ("r[!e]port.md", "report.md", False),
        ("rep?rt.md", "report.md", True),
        ("a+b.md", "a+b.md", True),
    ],
)
def test_patterns_are_whole_paths(pattern: str, name: str, is_match: bool) -> None:
    assert matches(name, pattern) is is_match


def test_a_pattern_that_fits_nothing_is_told_with_what_is_there(tmp_path: Path) -> None:
    submission = seen(write(tmp_path, report_json="{}"), "report", "other.md")
    assert submission.is_empty
    assert submission.notes == (
        "no file matches report; report.json is there, but patterns are whole paths",
        "no file matches other.md",
    )


def test_a_hidden_file_is_shown_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1")
    assert names(seen(tmp_path)) == []
    assert names(seen(tmp_path, ".env")) == [".env"]


def test_large_files_are_cut_fairly_and_small_ones_stay_whole(tmp_path: Path) -> None:
    write(tmp_path, huge_txt="x" * 100_000, small_txt="the answer", also_txt="y" * 100_000)
    submission = seen(tmp_path, max_chars=10_000)
    texts = {piece.name: piece.text for piece in submission.pieces}
    assert texts["small.txt"] == "the answer"
    assert 4_000 < len(texts["huge.txt"]) < 6_000
    assert "characters left out" in texts["huge.txt"]
    assert [note.partition(":")[0] for note in submission.notes] == ["also.txt is cut", "huge.txt is cut"]


def test_beginning_and_end_of_a_cut_file_are_shown(tmp_path: Path) -> None:
    write(tmp_path, log_txt="BEGIN" + "x" * 1_000_000 + "END")
    (piece,) = seen(tmp_path).pieces
    assert piece.text.startswith("BEGIN")
    assert piece.text.endswith("END")
    assert len(piece.text) < 31_000


def test_files_beyond_what_a_judge_can_read_are_named_or_counted(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\0\0" + bytes(range(256)) * 10)
    with (tmp_path / "sparse.txt").open("wb") as file:
        file.truncate(60 << 20)
    for n in range(250):
        (tmp_path / f"part{n:03}.txt").write_text("x")
    submission = seen(tmp_path)
    assert len(submission.pieces) == 199  # the image is one of the 200
    assert submission.notes[0] == "52 of 252 files are not shown"
    assert "not shown, since not text: image.png (2568 bytes)" in submission.notes


def test_links_and_special_files_are_passed_over(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("host secret")
    inside = tmp_path / "copy"
    inside.mkdir()
    (inside / "link.txt").symlink_to(secret)
    (inside / "dir").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe.txt")
    assert seen(inside).is_empty
    assert seen(inside, "link.txt").is_empty


W = 'xmlns:w="w"'
SHEET = '<sheet name="Data" r:id="r1"/><sheet name="Old" state="hidden" r:id="r2"/>'
ROW = '<row><c r="A1" t="s"><v>1</v></c><c r="C1"><v>1.5</v></c></row><row><c r="A2"><f>SUM(C1)</f></c></row>'
PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>/MediaBox[0 0 9 9]>>endobj\n"
    b"4 0 obj<</Length 36>>stream\nBT /F 9 Tf 1 1 Td (Hello PDF) Tj ET  \nendstream endobj\n"
    b"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Root 1 0 R>>\nstartxref\n0\n%%EOF\n"
)
DOCUMENTS = {
    "a.docx": {
        "word/document.xml": f"<w:document {W}><w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>"
        "<w:r><w:t>Sales &lt; 4</w:t><w:tab/><w:t>%</w:t></w:r><w:r><w:delText>gone</w:delText></w:r></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:document>",
        "word/footnotes.xml": f"<w:footnotes {W}><w:p><w:r><w:t>A\u200bnote</w:t></w:r></w:p></w:footnotes>",
    },
    "b.xlsx": {
        "xl/workbook.xml": f'<workbook xmlns:r="r"><sheets>{SHEET}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<r><Relationship Id="r1" Target="worksheets/sheet1.xml"/></r>',
        "xl/sharedStrings.xml": "<sst><si><t>no</t></si><si><r><t>na</t></r><r><t>me</t></r></si></sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet><sheetData>{ROW}</sheetData></worksheet>",
    },
    "c.pptx": {
        f"ppt/slides/slide{n}.xml": f'<s xmlns:a="a"><a:p><a:r><a:t>Title {n}</a:t></a:r></a:p></s>' for n in (10, 2)
    },
    "x.docx": {"word/document.xml": "<p><r><t>half"},
    "y.docx": {
        "word/document.xml": '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><d><p><r><t>&a;</t></r></p></d>'
    },
    "z.docx": {"word/document.xml": "<d><p/></d>"},
}


def test_documents_are_shown_as_text(tmp_path: Path) -> None:
    for name, parts in DOCUMENTS.items():
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            for part, text in parts.items():
                file.writestr(part, text)
    (tmp_path / "d.pdf").write_bytes(PDF)
    (tmp_path / "e.pdf").write_text("It is text.")
    (tmp_path / "v.pdf").write_bytes(b"%PDF-1.4")
    submission = seen(tmp_path)
    assert {piece.name: piece.text for piece in submission.pieces} == {
        "a.docx": "Sales < 4\t%\na \t\nA\\u{200B}note\n",
        "b.xlsx": "[sheet Data]\nname\t\t1.5\n=SUM(C1)\n[sheet Old (hidden)]\n",
        "c.pptx": "[slide 2]\nTitle 2\n[slide 10]\nTitle 10\n",
        "d.pdf": "[page 1]\nHello PDF\n",
        "e.pdf": "It is text.",
    }
    (opaque, hidden) = sorted(submission.notes, key=len, reverse=True)
    assert hidden.startswith("a.docx has 1 characters that cannot be seen")
    assert re.fullmatch(
        r"not shown, since not text: v\.pdf \(.+\), x\.docx \(no element found: .*\), "
        r"y\.docx \(undefined entity.*\), z\.docx \(it has no text\)",
        opaque,
    )


def test_a_document_that_is_a_bomb_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        zipfile.ZipFile(tmp_path / "a.docx", "w", zipfile.ZIP_DEFLATED) as file,
        file.open("word/document.xml", "w") as part,
    ):
        part.write(b"<d>" + b"<p/>" * 5_000_000)
    (tmp_path / "b.docx").write_bytes((tmp_path / "a.docx").read_bytes())
    monkeypatch.setattr("pytest_benchflow.verify.submission._DOCUMENTS_SEC", 0.5)
    (note,) = seen(tmp_path).notes
    assert note == (
        "not shown, since not text: a.docx (it takes too long to read), "
        "b.docx (the documents before it took too long to read)"
    )


def test_without_the_package_for_pdfs_there_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.pdf").write_bytes(PDF)
    monkeypatch.setattr("pytest_benchflow.verify.documents.find_spec", lambda name: None)
    with pytest.raises(JudgeEnvironmentError, match=r"d\.pdf cannot be shown to the judge, .* pypdf is not installed"):
        seen(tmp_path)


@pytest.mark.parametrize(
    ("text", "shown", "n"),
    [
        ("plain\ttext\nline", "plain\ttext\nline", 0),
        ("a\r\nb", "a\nb", 0),
        ("a\u202eb", "a\\u{202E}b", 1),
        ("\u200bhid\u2060den", "\\u{200B}hid\\u{2060}den", 2),
        ("\x1b[2J", "\\u{001B}[2J", 1),
        ("".join(chr(0xE0000 + ord(c)) for c in "hi"), "\\u{E0068}\\u{E0069}", 2),
        ("\u200b" * 500, "\\u{200B}×500", 500),
        ("ﬁne ❤️ größe 中文", "ﬁne ❤️ größe 中文", 0),
    ],
)
def test_what_nobody_would_see_is_shown_by_its_number(text: str, shown: str, n: int) -> None:
    assert visible(text) == (shown, n)


def test_names_of_files_cannot_break_lines(tmp_path: Path) -> None:
    (tmp_path / "a\n--- end ---\u202e.md").write_text("x")
    (name,) = names(seen(tmp_path))
    assert "\n" not in name
    assert "\u202e" not in name


def test_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "utf16.txt").write_text("größe", "utf-16")
    (tmp_path / "bom.txt").write_text("größe", "utf-8-sig")
    (tmp_path / "latin.txt").write_bytes("größe".encode("latin-1"))
    texts = {piece.name: piece.text for piece in seen(tmp_path).pieces}
    assert texts == {"bom.txt": "größe", "latin.txt": "gr��e", "utf16.txt": "größe"}


def test_the_last_message_and_the_trajectory_are_shown_where_asked(tmp_path: Path) -> None:
    events = [
        {"type": "user_message", "text": "Do it."},
        {
            "type": "tool_call",
            "title": "ls",
            "status": "completed",
            "raw_input": {"command": "ls"},
            "raw_output": "a.md",
        },
        {"type": "stop"},
        {"type": "agent_message", "text": "Done."},
    ]
    work = Work(None, "Done.", events)  # type: ignore[arg-type]
    submission = work.submission((), max_chars=10_000, max_file_chars=1_000, final_message=True, trajectory=True)
    assert [(piece.kind, piece.text) for piece in submission.pieces] == [
        ("final message", "Done."),
        (
            "trajectory",
            '[1] user message: Do it.\n[2] tool call: ls (completed)\ninput: {"command": "ls"}\nresult: a.md\n'
            "[4] agent message: Done.",
        ),
    ]


def test_a_long_trajectory_loses_its_middle() -> None:
    events = [{"type": "agent_message", "text": f"message {n} " + "x" * 100} for n in range(1000)]
    text, note = render_trajectory(events, 10_000)  # type: ignore[arg-type]
    assert len(text) < 10_100
    assert text.startswith("[1] agent message: message 0")
    assert "[1000] agent message" in text
    assert note is not None
    assert "of 1000 events are not shown" in note
