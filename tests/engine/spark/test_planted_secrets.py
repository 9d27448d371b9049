"""A secret in every option that can hold one: nothing that is written or shown has it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jars
import pytest
import yaml
from world import SCHEMA, make_epochs, write_epochs

SUPPORT = Path(__file__).parents[2] / "support"
SQL = "SELECT k, COUNT(*) AS n FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k"
SINK = """
import os

def fail(results, epoch):
    raise RuntimeError("cannot log in with " + os.environ["PLANTED_TOKEN"])
"""


def secrets() -> Iterator[str]:
    """Texts that occur nowhere else, some awkward to write."""
    number = 0
    while True:
        number += 1
        yield f"planted{number}" + ["", " and", '"quoted"', "/slash+plus", "\\back", "é"][number % 6] + f"{number}zz"


def pipelines(home: Path, postgres: Any) -> tuple[dict[str, Any], list[str]]:
    """Pipelines by name, and what is secret in them."""
    planted: list[str] = []
    source = secrets()

    def new(plain: bool = False) -> str:
        planted.append(f"planted{len(planted)}plain" if plain else next(source))
        return planted[-1]

    def options(*names: str) -> dict[str, str]:
        return {name: new() for name in names}

    stream = {
        "source": {
            "format": "parquet",
            "path": str(home / "in"),
            "options": {
                "maxFilesPerTrigger": "3",
                **options("api_key", "pwd", "fs.azure.account.key.x", "sas", "auth", "my.credentials", "accessKey"),
            },
        },
        "schema": SCHEMA,
        "time": "ts",
        "lateness": "20 seconds",
    }
    engine = {
        "trigger": "0 seconds",
        "checkpoint": str(home / "state"),
        "conf": options("spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.azure.account.key.acc", "spark.x.token"),
    }
    queries: dict[str, Any] = {
        "files": {"sql": SQL, "sink": {"format": "json", "options": options("passphrase", "ssl.private.key")}},
        "fails": {
            "sql": SQL,
            "sink": {"format": "python", "options": {"function": "planted_sink:fail", "token": "${env:PLANTED_TOKEN}"}},
        },
    }
    # A cause is what an exception says, whatever the option of the secret it says is called.
    good = {"streams": {"r": stream}, "queries": queries, "engine": engine, "output": str(home / "out")}

    def other(name: str, **changes: Any) -> dict[str, Any]:
        mine = {**engine, "checkpoint": str(home / f"state-{name}")}
        return {**good, "engine": mine, "queries": {"q": {"sql": SQL, "sink": "console"}}, **changes}

    url = f"{postgres.url}?user=ann&password={new(True)}"
    tables = {
        "one": {"sql": SQL, "sink": {"format": "jdbc", "options": {"url": url, "dbtable": "planted"}}},
        "two": {
            "sql": SQL,
            "sink": {
                "format": "jdbc",
                "options": {"url": postgres.url, "dbtable": "planted2", "user": "ann", "password": new()},
            },
        },
    }
    jaas = f'broken {new(True)} required username="u" password="{new(True)}"'
    kafka = {
        "source": {
            "format": "kafka",
            "options": {
                "kafka.bootstrap.servers": "127.0.0.1:9",
                "subscribe": "t",
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": jaas,
                "kafka.ssl.key.password": new(),
                "kafka.default.api.timeout.ms": "2000",
            },
            "value": "json",
        },
        "schema": SCHEMA,
        "time": "ts",
    }
    address = f"ftp://ann:{new(True)}@127.0.0.1:9/in"
    path = {**stream, "source": {"format": "parquet", "path": address}}
    missing = {**stream, "source": {**stream["source"], "options": {"password": "${env:NOT_THERE}", "pwd": new()}}}
    return {
        "good": good,
        "jdbc": other("jdbc", queries=tables),
        "kafka": other("kafka", streams={"r": kafka}),
        "path": other("path", streams={"r": path}),
        "missing": other("missing", streams={"r": missing}),
    }, planted


def test_no_secret_is_written_or_shown(spark: Any, postgres: Any, tmp_path: Path) -> None:
    jars.need_kafka()
    write_epochs(tmp_path / "in", make_epochs(seed=71, epochs=5))
    files, planted = pipelines(tmp_path, postgres)
    for name, pipeline in files.items():
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(pipeline, allow_unicode=True))
    (tmp_path / "planted_sink.py").write_text(SINK)
    (tmp_path / "conf-secret").write_text("planted-by-conf")
    planted += ["planted-by-conf", "planted/in the environment"]
    environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                   "PLANTED_TOKEN": planted[-1]}  # fmt: skip
    with (tmp_path / "log.txt").open("wb") as log:
        command = [sys.executable, str(SUPPORT / "planted.py"), str(tmp_path), ",".join(map(str, jars.for_session()))]
        subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=400, check=False)
    log_text = (tmp_path / "log.txt").read_text()
    assert (tmp_path / "codes").exists(), log_text[-3000:]
    codes = ast.literal_eval((tmp_path / "codes").read_text())
    shown = {name: code for name, code in codes.items() if code}
    assert {name.partition(" ")[0] for name in shown} >= {"jdbc", "kafka", "path", "missing"}, codes
    assert not {name for name in codes if name.partition(" ")[0] in ("check", "explain", "status", "shown")} & set(
        shown
    )
    assert "Traceback" in log_text, "--debug shows where"
    assert "cannot log in with ***" in log_text, "the cause is told without the secret"
    assert "password authentication failed" in log_text
    assert "headrace_epochs_total" in log_text
    given = {f"{name}.yml" for name in files} | {"conf-secret"}
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in given]
    folders = {
        path.relative_to(tmp_path).parts[1] for path in written if path.relative_to(tmp_path).parts[0] == "state"
    }
    assert folders >= {"decisions", "manifests", "workload", "spark", "state", "headrace.json"}
    leaks = {
        (secret, str(path.relative_to(tmp_path)))
        for path in written
        for secret in planted
        for form in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        if form.encode() in path.read_bytes()
    }
    assert not leaks


def test_the_first_pipeline_is_refused_without_its_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from headrace.cli.app import _run

    (tmp_path / "p.yml").write_text(
        "streams: {r: {source: {format: json, path: 'ftp://ann:leak1@h/x', options: {pwd: leak2}}, time: ts,"
        " schema: ts TIMESTAMP}}\n"
        "queries: {q: {sql: SELECT nothing FROM r, sink: {format: jdbc, options: {url: 'x?password=leak3'}}},"
        " p: {sql: 'SELECT COUNT(*) AS n FROM r [WINDOW 1 min]', sink: {path: 'ftp://ann:leak1@h/x'}}}\n"
    )
    assert _run(["check", str(tmp_path / "p.yml")], True) == 2
    assert _run(["check", str(tmp_path / "p.yml"), "--json"], True) == 2
    told = "".join(capsys.readouterr())
    assert "writes where stream 'r' reads" in told
    assert not [leak for leak in ("leak1", "leak2", "leak3") if leak in told]
