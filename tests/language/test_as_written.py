"""Problems name the line and column of the file, however YAML folds, quotes or indents a query."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SpecError
from headrace.language import load_pipeline
from headrace.language.pipeline.yaml_nodes import Document, read_yaml

HEAD = "streams: {r: {source: {format: rate}, schema: 'ts TIMESTAMP, k STRING', time: ts}}\nqueries:\n  q:\n"


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        pytest.param("    sql: SELECT kk FROM r\n", "4:17", id="plain"),
        pytest.param("    sql: SELECT k,\n      kk\n      FROM r\n", "5:7", id="plain, over several lines"),
        pytest.param("    sql: 'SELECT ''a'' AS a, kk FROM r'\n", "4:30", id="in single quotes"),
        pytest.param('    sql: "SELECT \\"a\\" AS a,\\n kk FROM r"\n', "4:32", id="in double quotes, with escapes"),
        pytest.param('    sql: "SELECT k, \\\n      kk FROM r"\n', "5:7", id="in double quotes, over several lines"),
        pytest.param("    sql: >\n      SELECT k,\n      kk FROM r\n", "6:7", id="folded"),
        pytest.param("    sql: >-\n\n      SELECT k\n\n      , kk FROM r\n", "8:9", id="folded, with blank lines"),
        pytest.param(
            "    sql: |  # as it is\n        SELECT k,\n          kk FROM r\n", "6:11", id="a block with a comment"
        ),
        pytest.param("    sql: &mine >\n      SELECT kk FROM r\n", "5:14", id="with an anchor"),
    ],
)
def test_a_wrong_column_is_where_the_file_has_it(sql: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "p.yml").write_text(HEAD + sql)
    with pytest.raises(SpecError, match=rf"p\.yml:{place}: query 'q': unknown column 'kk'"):
        load_pipeline(tmp_path / "p.yml")


TEXTS = st.lists(st.text("ab'\"\\:#&*>|-é,", min_size=1, max_size=6), min_size=1, max_size=12)


@given(TEXTS, st.sampled_from(["'", '"', "|", ">", None]), st.integers(15, 60), st.booleans())
def test_every_character_is_found_where_it_stands(words: list[str], style: str | None, width: int, wide: bool) -> None:
    text = (" " if wide else "\n").join(words)
    written = "key:\n  " + yaml.dump({"sql": text}, default_style=style, width=width, allow_unicode=wide).replace(
        "\n", "\n  "
    )
    document = Document("p.yml")
    root = read_yaml(written, document)
    assert root is not None
    value = root.mapping()["key"].mapping()["sql"]
    lines = written.splitlines()
    read = value.text() or ""
    for offset, letter in enumerate(read):
        line, column = value.place(offset)
        if not letter.isspace():
            assert column is not None
            there = lines[line - 1][column - 1 :]
            assert there.startswith((letter, "\\x", "\\u")) or there[1:2] == letter, (written, letter, there)
