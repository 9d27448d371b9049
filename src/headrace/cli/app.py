"""Commands: each reads its arguments, calls one function, and shows what came of it."""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.stopping import Stopped, leave_at_once
from headrace.errors import HeadraceError, SpecError
from headrace.hiding import hidden, hide, remember

__all__ = ["app", "main"]

app = typer.Typer(
    name="headrace",
    help="Many continuous SQL queries over streams, on Apache Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Spec = Annotated[Path, typer.Argument(help="A pipeline file (YAML).", show_default=False)]
CheckpointFolder = Annotated[str, typer.Argument(help="The checkpoint folder of a pipeline.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout, and nothing else.")]
Master = Annotated[str | None, typer.Option(help="Spark master, such as local[4] or spark://host:7077.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A Spark setting, KEY=VALUE; may be repeated.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.", hidden=True)]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
]


@app.callback()
def options(debug: Debug = False, version: Version = False) -> None:
    """Many continuous SQL queries over streams, on Apache Spark."""


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option(help="Write the demo's files here instead of a temporary folder.")
    ] = None,
) -> None:
    """A small world on local Spark, live in the terminal; ends by itself within two minutes."""
    from headrace.cli.demo import run_demo

    run_demo(keep)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to write pipeline.yml.")] = Path(),
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="Files to read: JSON lines, CSV or Parquet, or a folder of them."),
    ] = None,
) -> None:
    """Write a pipeline that runs as it stands, over made rows or over files of yours."""
    from headrace.cli.starting import write_first_pipeline

    file, found = write_first_pipeline(folder, source)
    command = os.environ.get("HEADRACE_COMMAND", "headrace")
    typer.echo(f"{file}: {found}\nnext: {command} run {file} --once --flush")


@app.command()
def prepare() -> None:
    """Make later starts of Spark take half the time: keep its Java classes, loaded and checked, in one file."""
    from headrace.cli.preparing import keep_classes

    typer.echo(keep_classes())


@app.command()
def run(
    spec: Spec,
    once: Annotated[bool, typer.Option("--once", help="Use all rows that are there now, then stop.")] = False,
    flush: Annotated[bool, typer.Option("--flush", help="With --once: close the open windows too.")] = False,
    site: Annotated[str | None, typer.Option(help="Run the part of one site, on its own Spark.")] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per line on stdout: epochs, decisions, notes.")
    ] = False,
) -> None:
    """Run a pipeline until stopped, or once over what is there; edits of its queries take effect when saved."""
    from headrace.cli.checking import examine

    if flush and not once:
        raise SpecError("--flush closes windows when a run ends by itself; use it with --once")
    settings = _settings(conf)
    examined = examine(spec, settings, site=site)
    pipeline = examined.sound()
    from headrace.cli.running import run_pipeline
    from headrace.cli.running_sites import run_sites
    from headrace.sites import parts_to_run
    from headrace.sites.running import ends_of

    parts = parts_to_run(pipeline, site)
    if len(parts) > 1:
        run_sites(
            pipeline,
            parts,
            once=once,
            flush=flush,
            master=master,
            conf=settings,
            as_json=as_json,
            notes=examined.notes,
        )
        return
    ((place, part),) = parts.items()
    ends = ends_of(part)
    run_pipeline(
        part.pipeline,
        once=once,
        flush=flush,
        master=master,
        conf=settings,
        spec=None if once or ends.sends or ends.receives else spec,
        as_json=as_json,
        notes=(*examined.notes, *([f"this is site {place}"] if place else [])),
        ends=ends,
    )


@app.command()
def check(
    spec: Spec,
    spark: Annotated[bool, typer.Option("--spark", help="Let Spark judge the expressions too.")] = False,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=1_000_000,
            help="Then look at the first N rows of each stream, and answer "
            "over them: what parses, what does not and why, how disordered rows are.",
        ),
    ] = None,
    as_json: AsJson = False,
    conf: Conf = None,
) -> None:
    """Name every problem of a pipeline file, or say "ok"; `run` refuses what is named here."""
    from headrace.cli.checking import examine

    if sample is not None and as_json:
        raise SpecError("--sample is for people to read: leave out --json")
    settings = _settings(conf)
    examined = examine(spec, settings, spark)
    problems = examined.problems
    if as_json:
        found = [{"file": p.file, "line": p.line, "column": p.column, "query": p.query, "message": p.message,
                  "hint": p.hint} for p in problems]  # fmt: skip
        typer.echo(json.dumps(hidden({"ok": not problems, "problems": found, "notes": list(examined.notes)})))
        raise typer.Exit(2 if problems else 0)
    for note in examined.notes:
        typer.echo(f"note: {hide(note)}", err=True)
    if problems:
        raise SpecError(problems)
    typer.echo("ok")
    if sample is not None:
        from headrace.cli.sampled import show_sample

        show_sample(examined.sound(), sample, settings)


@app.command(name="test")
def cases_command(
    spec: Spec,
    cases: Annotated[
        Path | None, typer.Option(help="A file of cases; tests.yml beside SPEC unless given.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    conf: Conf = None,
) -> None:
    """Run a pipeline's cases on local Spark: rows in, rows expected out."""
    from headrace.cli.testing import run_cases

    if not run_cases(spec, cases, _settings(conf), as_json):
        raise typer.Exit(1)


@app.command()
def explain(
    spec: Spec,
    as_json: AsJson = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="The graph as a Mermaid flowchart; with sites, who runs what where.")
    ] = False,
    svg: Annotated[bool, typer.Option("--svg", help="A map of the placement, for pipelines with sites.")] = False,
    measured: Annotated[
        str | None, typer.Option("--from", metavar="CHECKPOINT", help="Take rates from what a run has measured.")
    ] = None,
) -> None:
    """Say what would run, which partial aggregates are kept for whom, where operators would run, and why."""
    from headrace.cli.explaining import show_plan

    show_plan(spec, "json" if as_json else "mermaid" if mermaid else "svg" if svg else "text", measured)


@app.command()
def status(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT...",
            help="The checkpoint folder of a pipeline, or of its sites, or one that holds these.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Progress, ledger, queries and recent decisions of a checkpoint, or of the sites of a pipeline, running or not."""
    from headrace.cli.showing import show_status
    from headrace.cli.showing_sites import show_sites
    from headrace.sites.watching import describe_sites

    value = hidden(describe_sites(checkpoints))
    if as_json:
        typer.echo(json.dumps(value))
    elif "sites" in value:
        show_sites(value)
    else:
        show_status(value)


@app.command()
def ask(
    checkpoint: CheckpointFolder,
    sql: Annotated[str, typer.Argument(help="SELECT ... FROM stream [WINDOW 10 min] ...", show_default=False)],
    as_json: AsJson = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Answer a one-time query from what a pipeline keeps, running or not: its newest closed window."""
    from headrace.cli.asking import show_answer

    show_answer(checkpoint, sql, as_json, master, _settings(conf))


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="ingest: one sliding query against plain Spark's window(). Ratios: "
                                             "vs_spark, fixed_cost_over_empty. sharing: 8, 40 and 240 queries against "
                                             "one StreamingQuery each. Ratios: vs_spark_8, vs_spark_40, "
                                             "rows_240_over_8, jobs_240_over_8. join: windowed joins against Spark's "
                                             "stream-stream join. Ratios: uniform_vs_spark, hot_vs_spark, "
                                             "small_vs_spark. flux: keyed state that moves, on a cluster it "
                                             "starts. Ratios: skew_vs_static, slow_vs_static, memory_vs_static, "
                                             "skew_vs_ideal, slow_vs_ideal, vs_spark_state, rows_vs_spark, "
                                             "alternating_vs_static. placement: strategies against the optimum, "
                                             "and two sites that run against shipping everything. Ratios: "
                                             "optimal_over_brute_force, in_network_over_optimal, seconds_490_sites, "
                                             "bytes_vs_warehouse, latency_vs_warehouse, rows_vs_warehouse. "
                                             "shedding: a burst of five "
                                             "times the capacity. Ratios: kept_over_capacity, kept_over_allowed, "
                                             "lag_epochs_after, vs_throttled_spark. simulate: what `headrace "
                                             "simulate` predicts from a run, and what it then does. Ratios: used_* and "
                                             "lag_* of sharing, join, overload.",
                                        show_default=False)],
    out: Annotated[Path | None, typer.Option("--json", help="Write the result here.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the work; ratios are rough.")] = False,
    policies: Annotated[bool, typer.Option("--policies", help="With sharing: the six schedules, overloaded.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the result to this file (png, svg, pdf).")] = None,
    source: Annotated[str | None, typer.Option(help="With ingest: kafka, beside files. Ratios: kafka_over_files, "
                                                    "vs_tuned_spark. Starts a broker of its own, from Maven.")] = None,
    topology: Annotated[list[Path] | None, typer.Option("--topology", help="With placement: a network in GML, as the "
                                                        "Topology Zoo has them; may be repeated.")] = None,
    round_trips: Annotated[list[Path] | None, typer.Option("--round-trips", help="With placement: a CSV matrix of "
                                                           "round trips in ms; may be repeated.")] = None,
) -> None:  # fmt: skip
    """Measure against what you would use otherwise, in one run, results checked."""
    try:
        from headrace.bench import BENCHES, draw
    except ModuleNotFoundError as missing:
        raise SpecError(f"benches need {missing.name}: pip install 'headrace[bench]'") from None
    name = f"{name} --policies" if policies else f"{name} --source {source}" if source else name
    if name not in BENCHES:
        raise SpecError(f"unknown bench '{name}'; known: {', '.join(BENCHES)}")
    if (topology or round_trips) and name != "placement":
        raise SpecError(f"--topology and --round-trips are for bench placement, not for {name}")
    given = {"topologies": topology or (), "round_trips": round_trips or ()} if name == "placement" else {}
    result = BENCHES[name](quick, lambda line: typer.echo(line, err=True), **given)
    text = json.dumps(result, indent=2)
    if out is not None:
        out.write_text(text + "\n")
    typer.echo(text)
    if plot is not None:
        draw(result, plot)
    if not result["correct"]:
        raise typer.Exit(1)


@app.command(name="reproduce")
def reproduce_command(
    paper: Annotated[str | None, typer.Argument(help="ssp | fit | flux | sharing | placement; all five without it.",
                                                show_default=False)] = None,
    figure: Annotated[list[str] | None, typer.Option("--figure", help="Only this table or figure; may be "
                                                     "repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller experiments, in minutes.")] = False,
    seed: Annotated[int, typer.Option(help="Where chance begins.")] = 1,
    numbers: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=NUMBER", help="Another number than the "
                                                      "paper's, such as nodes=64; may be repeated.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Where rows, pictures and the report go.")] = Path("reproduction"),
) -> None:  # fmt: skip
    """Make the papers' tables and figures by the policies that run here, beside the papers' numbers."""
    from headrace.cli.reproducing import numbers_given, reproduce
    from headrace.reproduce import Settings

    settings = Settings(quick, seed, numbers_given(numbers or ()))
    reproduce(paper, figure or (), settings, out)


@app.command(name="simulate")
def simulate_command(
    spec: Spec,
    rate: Annotated[str | None, typer.Option(metavar="5x|50000", help="So many times the rate, or rows per second of "
                                             "all streams together.")] = None,
    hosts: Annotated[int | None, typer.Option(help="Tasks that run at a time: the cores of all executors.")] = None,
    slow: Annotated[list[str] | None, typer.Option("--slow", metavar="host3=0.4", help="The speed of a host, 1 being "
                                                   "that of all others; may be repeated.")] = None,
    minutes: Annotated[float, typer.Option(help="Simulated time.")] = 10.0,
    measured: Annotated[str | None, typer.Option("--from", metavar="CHECKPOINT", help="Take rates and costs from what "
                                                 "a run has measured.")] = None,
    find: Annotated[str | None, typer.Option(metavar="rate|hosts", help="The highest rate that holds its lag, or the "
                                             "fewest hosts that do.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write a row per epoch, and pictures, to this folder.")] = None,
    as_json: AsJson = False,
    seed: Annotated[int, typer.Option(help="Where chance begins.")] = 1,
) -> None:  # fmt: skip
    """Say what a pipeline would do at other rates and on other hosts, in simulated time, without Spark."""
    from headrace.cli.simulating import show_simulation
    from headrace.simulation.whatif import Scenario, rate_of, slow_hosts

    scenario = Scenario(rate_of(rate), hosts, slow_hosts(slow or ()), minutes, seed)
    show_simulation(spec, scenario, measured, find, out, as_json)


def _settings(conf: list[str] | None) -> dict[str, str]:
    settings: dict[str, str] = {}
    for item in conf or []:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"--conf {item}: write KEY=VALUE, such as --conf spark.driver.memory=4g")
        if not key.strip().startswith("spark."):
            raise SpecError(f"--conf {item}: settings of Spark begin with 'spark.', such as spark.driver.memory")
        settings[key.strip()] = value.strip()
    remember(settings.items())
    return settings


def main() -> None:
    """Runs the command line; errors are one paragraph on stderr, 2 for a user's mistake, 1 for a failure."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    code = _run([a for a in arguments if a != "--debug"], debug)
    if code > 128:
        leave_at_once(code)
    if "headrace.engine.spark.session" in sys.modules:
        from headrace.engine.spark.session import end_session

        end_session()
    sys.exit(code)


def _run(arguments: list[str], debug: bool) -> int:
    try:
        result: Any = app(args=arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except HeadraceError as error:
        if debug:
            _complain(traceback.format_exc().rstrip())
        _complain(f"headrace: {error}")
        return error.exit_code
    except typer.Exit as leave:
        return leave.exit_code
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except Stopped as stopped:
        return stopped.exit_code
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            _complain(f"headrace: {error.format_message()}")
            return 2
        if debug:
            _complain(traceback.format_exc().rstrip())
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        _complain(f"headrace: {type(error).__name__}: {first} (run with --debug for the traceback)")
        return 1


def _complain(text: str) -> None:
    print(hide(text), file=sys.stderr)
