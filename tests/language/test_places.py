"""No two queries write to one place, and none writes where state is or where its streams read, in any spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query, load_pipeline, parse_schema
from headrace.language.pipeline.places import clashes, place_of_path
from headrace.model import Query, SinkSpec, Source, Stream

SCHEMA = parse_schema("ts TIMESTAMP, k STRING")
LINKS = {"/link": "/srv/out/a", "/link/b": "/srv/out/a/b"}
JDBC = "jdbc:postgresql://h/db"


def resolved(path: str) -> str:
    """A file system with a link in it."""
    import posixpath

    plain = posixpath.normpath("/" + path.lstrip("/"))
    return LINKS.get(plain, plain)


def query(name: str, sink: SinkSpec) -> Query:
    stream = Stream("r", SCHEMA, "ts")
    return bind_query(name, "SELECT COUNT(*) AS n FROM r [WINDOW 1 min]", {"r": stream}, sink=sink)


def files(path: str) -> SinkSpec:
    return SinkSpec("parquet", path)


def table(url: str, name: str) -> SinkSpec:
    return SinkSpec("jdbc", None, (("url", url), ("dbtable", name)))


def topic(servers: str, name: str) -> SinkSpec:
    return SinkSpec("kafka", None, (("kafka.bootstrap.servers", servers), ("topic", name)))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        pytest.param(files("/srv/out/a"), files("/srv/out/a"), id="the same path"),
        pytest.param(files("/srv/out/a"), files("/srv/out/b/../a"), id="by way of its parent"),
        pytest.param(files("/srv/out/a"), files("/srv/out/a/"), id="a slash at the end"),
        pytest.param(files("/srv/out/a"), files("//srv//out/./a"), id="more slashes and dots"),
        pytest.param(files("/srv/out/a"), files("file:/srv/out/a"), id="with a scheme"),
        pytest.param(files("/srv/out/a"), files("file:///srv/out/a"), id="with a scheme and three slashes"),
        pytest.param(files("/srv/out/a"), files("FILE:///srv/out/a"), id="a scheme in capitals"),
        pytest.param(files("/srv/out/a"), files("file://localhost/srv/out/a"), id="on this host by name"),
        pytest.param(files("/srv/out/a"), files("/link"), id="by a link"),
        pytest.param(files("/srv/out/a"), files("/link/b"), id="inside it by a link"),
        pytest.param(files("/srv/out/a"), files("/srv/out/a/b"), id="one inside the other"),
        pytest.param(files("/srv/out/a/b"), files("/srv/out/a"), id="one around the other"),
        pytest.param(files("/srv/out/a"), SinkSpec("delta", "/srv/out/a"), id="a table in a folder of files"),
        pytest.param(files("/srv/out/a"), SinkSpec("text", "/srv/out/a"), id="another format's"),
        pytest.param(files("s3a://bucket/a"), files("S3A://Bucket/x/../a/"), id="a bucket in capitals"),
        pytest.param(files("s3a://bucket/a"), files("s3://key:secret@bucket/a"), id="a bucket by another client"),
        pytest.param(files("hdfs://nn:9000/srv/a"), files("/srv/a"), id="the default file system by its name"),
        pytest.param(table(JDBC, "t"), table(JDBC, "t"), id="one table"),
        pytest.param(table(JDBC, "t"), table(f"{JDBC}?user=x&ssl=true", 'public."T"'), id="one table, more words"),
        pytest.param(table(JDBC, "t"), table("JDBC:postgresql://ann:pw@H/db/", "t"), id="one table by another user"),
    ],
)  # fmt: skip
def test_two_queries_in_one_place_are_refused(one: SinkSpec, two: SinkSpec) -> None:
    default = "hdfs://nn:9000" if "hdfs" in str(one.path) else ""
    found = clashes([], [query("one", one), query("two", two)], None, default, resolved)
    assert [(problem.query, "as query 'one' does" in problem.message) for problem in found] == [("two", True)]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        pytest.param(files("/srv/out/a"), files("/srv/out/ab"), id="a name that begins like another"),
        pytest.param(files("/srv/out/a"), files("/srv/out/A"), id="another case"),
        pytest.param(files("/srv/out/a"), files("hdfs://nn/srv/out/a"), id="another file system"),
        pytest.param(files("s3a://one/a"), files("s3a://two/a"), id="another bucket"),
        pytest.param(table(JDBC, "t"), table(JDBC, "u"), id="another table"),
        pytest.param(table(JDBC, "t"), table("jdbc:postgresql://h/other", "t"), id="another database"),
        pytest.param(table("jdbc:sqlserver://h;database=a", "t"), table("jdbc:sqlserver://h;database=b", "t"),
                     id="another database of a server"),
        pytest.param(topic("h:1", "t"), topic("h:1", "t"), id="one topic: messages name their query"),
        pytest.param(SinkSpec("memory"), SinkSpec("memory"), id="memory"),
    ],
)  # fmt: skip
def test_queries_with_places_of_their_own_are_accepted(one: SinkSpec, two: SinkSpec) -> None:
    assert clashes([], [query("one", one), query("two", two)], "/srv/state", "", resolved) == []


@pytest.mark.parametrize("path", ["/srv/state", "/srv/state/out", "/srv", "file:/srv/out/../state/x"])
def test_results_and_state_are_apart(path: str) -> None:
    (problem,) = clashes([], [query("q", files(path))], "/srv/state", "", resolved)
    assert "the checkpoint /srv/state" in problem.message


@pytest.mark.parametrize(
    ("read", "written", "fed"),
    [
        pytest.param("/srv/in", "/srv/in", True, id="the folder it reads"),
        pytest.param("/srv/in", "/srv/x/../in/q", True, id="inside the folder it reads"),
        pytest.param("/srv/in/*", "/srv/in/q", True, id="a folder that a pattern matches"),
        pytest.param("/srv/*/q", "/srv/in/q", True, id="a pattern in the middle"),
        pytest.param("/srv/{in,out}/q", "/srv/in/q", True, id="alternatives"),
        pytest.param("/srv/in/*.json", "/srv/in/q", False, id="files beside it by a pattern"),
        pytest.param("/srv/in", "/srv/out", False, id="another folder"),
        pytest.param("/srv/in/deep", "/srv/in", False, id="around the folder it reads"),
    ],
)
def test_results_do_not_come_in_again(read: str, written: str, fed: bool) -> None:
    stream = Stream("r", SCHEMA, "ts", source=Source("parquet", read))
    found = clashes([stream], [query("q", files(written))], None, "", resolved)
    assert [problem.message for problem in found] == (
        ["writes where stream 'r' reads: its results would come in again"] if fed else []
    )


@pytest.mark.parametrize(
    ("read", "state", "clash"),
    [
        pytest.param("/srv/in", "/srv/in/state", True, id="a checkpoint in the folder that is read"),
        pytest.param("/srv/in/*", "/srv/in/state", True, id="a checkpoint that a pattern matches"),
        pytest.param("/srv/state/in", "/srv/state", True, id="input inside the checkpoint"),
        pytest.param("/srv/in/*.json", "/srv/in/state", False, id="files beside the checkpoint by a pattern"),
        pytest.param("/srv/in", "/srv/state", False, id="another folder"),
    ],
)
def test_input_and_state_are_apart(read: str, state: str, clash: bool) -> None:
    stream = Stream("r", SCHEMA, "ts", source=Source("json", read))
    found = clashes([stream], [query("q", files("/srv/out"))], state, "", resolved)
    told = f"stream 'r' reads {read}, which the checkpoint {state} is in or around"
    assert [problem.message for problem in found] == ([told] if clash else [])


@pytest.mark.parametrize(
    ("options", "fed"),
    [
        pytest.param({"subscribe": "a, t"}, True, id="a topic it reads"),
        pytest.param({"subscribepattern": "t.*"}, True, id="a pattern of topics"),
        pytest.param({"subscribe": "a"}, False, id="another topic"),
    ],
)
def test_a_topic_is_not_read_and_written(options: dict[str, str], fed: bool) -> None:
    source = Source("kafka", None, (("kafka.bootstrap.servers", "h:1,i:1"), *options.items()))
    stream = Stream("r", SCHEMA, "ts", source=source)
    assert bool(clashes([stream], [query("q", topic("i:1", "t"))], None, "", resolved)) is fed


def test_a_link_on_the_disk_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert place_of_path(f"{tmp_path}/link/x") == place_of_path(f"file://{tmp_path}/real/x")


def test_a_file_with_clashes_is_refused_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "p.yml").write_text(
        """
streams: {r: {source: {format: json, path: in}, schema: "ts TIMESTAMP", time: ts}}
queries:
  one: {sql: "SELECT COUNT(*) AS n FROM r [WINDOW 1 min]", sink: {path: out/x}}
  two: {sql: "SELECT COUNT(*) AS n FROM r [WINDOW 1 min]", sink: {path: other/../out/x/}}
  three: {sql: "SELECT COUNT(*) AS n FROM r [WINDOW 1 min]", sink: {path: state/mine}}
  four: {sql: "SELECT COUNT(*) AS n FROM r [WINDOW 1 min]", sink: {path: in/mine}}
"""
    )
    with pytest.raises(SpecError) as refused:
        load_pipeline(tmp_path / "p.yml")
    assert [problem.query for problem in refused.value.problems] == ["two", "three", "four"]
    assert {problem.file for problem in refused.value.problems} == {str(tmp_path / "p.yml")}
    assert [problem.line for problem in refused.value.problems] == [5, 6, 7]
