"""Files that nobody writes by hand: too large, too deep, of other encodings, or no files at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.language import include_patterns, load_pipeline
from headrace.language.pipeline import queries_section as section

GOOD = """\
streams:
  packets: {source: {format: parquet, path: in}, schema: 'ts TIMESTAMP, src STRING', time: ts}
queries:
  q: {sql: 'SELECT COUNT(*) AS n FROM packets [WINDOW 1 min]'}
"""
SQL = "SELECT COUNT(*) AS n FROM packets [WINDOW 1 min]"
NINES = "9" * 5000


def with_option(text: str) -> str:
    return GOOD.replace("path: in", f"path: in, options: {{{text}}}")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(
            with_option(f"maxFilesPerTrigger: {NINES}"),
            "p.yml:2: streams.packets.source.options.maxFilesPerTrigger is a number of 5000 characters; the most is 40",
            id="an option of 5000 digits",
        ),
        pytest.param(
            with_option(f"maxFilesPerTrigger: '{NINES}'"),
            "p.yml:2: streams.packets.source.options.maxFilesPerTrigger should be a whole number from 1 to 2147483647, "
            "not '9999999999999999999999999999999999999999...' (5000 characters)",
            id="an option of 5000 digits, as a text",
        ),
        pytest.param(
            GOOD.replace("time: ts", f"time: ts, ahead: {NINES} s"),
            "p.yml:2: streams.packets.ahead: a duration of 5002 characters; write a number and a unit",
            id="a duration of 5000 digits",
        ),
        pytest.param(
            GOOD.replace("min]'", f"min]', priority: {NINES}"),
            "p.yml:4: queries.q.priority is a number of 5000 characters",
            id="a priority of 5000 digits",
        ),
        pytest.param(
            GOOD.replace("min]'", f"min]', weight: 1.{NINES}e-3"),
            "p.yml:4: queries.q.weight is a number of 5005 characters",
            id="a weight of 5000 digits",
        ),
        pytest.param(GOOD + f"output: {'a' * 5000}\n", "p.yml:5: output: 'aaaa", id="a path of 5000 characters"),
        pytest.param(
            GOOD + f"output: {'a' * 300}\n", "is longer than file systems take", id="a folder's name of 300 characters"
        ),
        pytest.param(
            GOOD + f"name: {'a' * 5000}\n", "at most 200 printable characters", id="a name of 5000 characters"
        ),
        pytest.param(
            GOOD.replace("  q:", f"  {'q' * 300}:"),
            "p.yml:4: 'qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq...' (300 characters) cannot name a query",
            id="a query's name of 300 characters",
        ),
        pytest.param(GOOD + "output: " + "[" * 100 + "]" * 100, "p.yml:5: the file is too large", id="deep lists"),
        pytest.param(GOOD + "output: " + "{a: " * 100 + "}" * 100, "p.yml:5: the file is too", id="deep mappings"),
        pytest.param("- " * 5000, "p.yml:1: the file is too large or too deep", id="thousands of dashes"),
        pytest.param("? " * 5000, "p.yml:1: the file is too large or too deep", id="thousands of question marks"),
        pytest.param("# x\n" * 300_000, "it is larger than 1000000 bytes", id="a megabyte of comments"),
        pytest.param(GOOD.encode("utf-16"), "it is not UTF-8 text; save it as UTF-8", id="UTF-16"),
        pytest.param(GOOD.encode("utf-32-le"), "characters that YAML does not allow", id="UTF-32"),
        pytest.param(GOOD.encode() + b"name: caf\xe9\n", "it is not UTF-8 text", id="Latin-1"),
        pytest.param(GOOD.encode("cp500"), "it is not UTF-8 text", id="EBCDIC"),
        pytest.param(b"\0" * 1000, "characters that YAML does not allow", id="nothing but NUL"),
        pytest.param(GOOD.encode() + b"\0", "characters that YAML does not allow", id="a NUL at the end"),
        pytest.param(b"PAR1" + bytes(range(200)), "it is not UTF-8 text", id="a Parquet file"),
        pytest.param(b"", "p.yml:1: the file is empty", id="an empty file"),
        pytest.param(b"\xef\xbb\xbf", "p.yml:1: the file is empty", id="nothing but a byte order mark"),
    ],
)
def test_a_hostile_text_is_one_sentence(content: str | bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(SpecError) as caught:
        load_pipeline(path)
    (problem,) = caught.value.problems
    assert expected in str(problem)
    assert str(problem).startswith(str(path))
    assert len(str(problem)) < 500


def test_byte_order_marks_and_line_ends_of_windows_are_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    text = GOOD + "include: queries/*.sql\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "a.sql").write_bytes(b"\xef\xbb\xbf" + SQL.replace(" FROM", "\r\nFROM").encode())
    a = load_pipeline(path).queries[1]
    assert a.sql == SQL.replace(" FROM", "\nFROM")


@pytest.mark.parametrize("word", ["no", "on", "off", "yes", "null", "y"])
def test_words_that_older_yaml_takes_for_something_else_are_words(word: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text(with_option(f"country: {word}a, code: 010, at: 1:30").replace("  q:", f"  {word}:"))
    pipeline = load_pipeline(path)
    assert pipeline.queries[0].name == word
    assert pipeline.streams[0].source is not None
    assert pipeline.streams[0].source.options == (("country", f"{word}a"), ("code", "010"), ("at", "1:30"))


def a_folder(place: Path) -> None:
    place.mkdir()


def a_pipe(place: Path) -> None:
    os.mkfifo(place)


def a_device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def a_loop(place: Path) -> None:
    place.symlink_to(place)


def a_dangling_link(place: Path) -> None:
    place.symlink_to(place.parent / "nowhere")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(a_folder, "it is a folder", id="a folder"),
        pytest.param(a_pipe, "it is a pipe or a device, not a regular file", id="a pipe that nobody writes to"),
        pytest.param(a_device, "it is a pipe or a device, not a regular file", id="a device without an end"),
        pytest.param(a_loop, "symbolic links", id="a link to itself"),
        pytest.param(a_dangling_link, "No such file", id="a link to nothing"),
    ],
)
def test_what_is_no_file_is_refused_and_not_waited_for(
    make: Callable[[Path], None], expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.yml"
    make(path)
    with pytest.raises(SpecError, match=f"p.yml: cannot read the file: .*{expected}"):
        load_pipeline(path)
    assert include_patterns(path) == ()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(a_folder, "include 'queries/*.sql' matches no files", id="a folder"),
        pytest.param(a_pipe, "cannot read .*/queries/a.sql: it is a pipe", id="a pipe that nobody writes to"),
        pytest.param(a_device, "cannot read .*/queries/a.sql: it is a pipe or a device", id="a device without an end"),
        pytest.param(a_loop, "cannot read .*/queries/a.sql: Too many levels", id="a link to itself"),
        pytest.param(a_dangling_link, "cannot read .*/queries/a.sql: No such file", id="a link to nothing"),
        pytest.param(lambda place: place.write_bytes(b"\xff"), "a.sql: it is not UTF-8 text", id="no text"),
        pytest.param(lambda place: place.write_bytes(b" " * 1_000_001), "a.sql: it is larger than", id="a large one"),
        pytest.param(lambda place: place.with_name("a\x1b.sql").touch(), r"'a\\x1b.sql' cannot name", id="odd names"),
    ],
)  # fmt: skip
def test_an_included_file_that_cannot_be_read_is_named(
    make: Callable[[Path], None], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "queries").mkdir()
    make(tmp_path / "queries" / "a.sql")
    path = tmp_path / "p.yml"
    path.write_text(GOOD + "include: queries/*.sql\n")
    with pytest.raises(SpecError, match=rf"p.yml:5: .*{expected.replace('*.', '[*].')}") as caught:
        load_pipeline(path)
    assert len(caught.value.problems) == 1


def test_folders_that_link_to_themselves_are_walked_once(tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "again").symlink_to(tmp_path / "queries")
    (tmp_path / "queries" / "a.sql").write_text(SQL)
    path = tmp_path / "p.yml"
    path.write_text(GOOD + "include: '**/*.sql'\n")
    assert [query.name for query in load_pipeline(path).queries] == ["q", "a"]


def test_includes_are_bounded_in_number_and_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queries").mkdir()
    for i in range(4):
        (tmp_path / "queries" / f"q{i}.sql").write_text(SQL)
    path = tmp_path / "p.yml"
    path.write_text(GOOD + "include: queries/*.sql\n")
    assert len(load_pipeline(path).queries) == 5
    monkeypatch.setattr(section, "MOST_INCLUDED_BYTES", 3 * len(SQL))
    with pytest.raises(SpecError, match=r"p.yml:5: include 'queries/\*.sql' has more than"):
        load_pipeline(path)
    monkeypatch.setattr(section, "MOST_INCLUDED", 3)
    with pytest.raises(SpecError, match=r"p.yml:5: include 'queries/\*.sql' matches more than 3 files"):
        load_pipeline(path)
