"""What Spark prints reaches standard error without noise, and its log follows whoever configured it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.engine.spark.jvm_output import Noise
from headrace.engine.spark.session import log_options

TITLE = b"Traceback (most recent call last):"
FRAME = b'  File "/x/pyspark.zip/pyspark/daemon.py", line 95, in worker'
OWN = b'  File "/y/steps.py", line 3, in step'
GONE = b"BrokenPipeError: [Errno 32] Broken pipe"


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        pytest.param([TITLE, FRAME, FRAME, GONE], [], id="a worker whose task was ended says nothing"),
        pytest.param([TITLE, TITLE, FRAME, GONE, FRAME, GONE], [], id="nor do two whose lines alternate"),
        pytest.param([TITLE, OWN, b"ValueError: x"], [TITLE, OWN, b"ValueError: x"], id="one's own stays"),
        pytest.param([TITLE, OWN, GONE], [TITLE, OWN, GONE], id="also one that ends in a broken pipe"),
        pytest.param([TITLE, b"printed"], [TITLE, b"printed"], id="what only begins like one stays"),
        pytest.param([b'Setting default log level to "WARN".', b"printed"], [b"printed"], id="Spark's advice goes"),
        pytest.param([TITLE], [TITLE], id="what comes last is not swallowed"),
    ],
)
def test_noise_goes_and_everything_else_stays(lines: list[bytes], left: list[bytes]):
    noise = Noise()
    # However the lines are cut up on their way.
    assert [*(kept for line in lines for kept in noise.without([line])), *noise.end()] == left
    noise = Noise()
    assert [*noise.without(lines), *noise.end()] == left


@pytest.mark.parametrize(
    ("settings", "environment", "quiet"),
    [
        pytest.param({}, {}, True, id="nobody has said anything"),
        pytest.param({"spark.driver.extraJavaOptions": "-Xss4m"}, {}, True, id="options of Java are kept"),
        pytest.param({"spark.log.level": "INFO"}, {}, False, id="a level"),
        pytest.param({"spark.driver.extraJavaOptions": "-Dlog4j2.debug"}, {}, False, id="a setting of log4j"),
        pytest.param({}, {"SPARK_SUBMIT_OPTS": "-Dlog4j2.configurationFile=x"}, False, id="one of spark-submit"),
        pytest.param({}, {"SPARK_CONF_DIR": "conf"}, False, id="a file of the cluster"),
        pytest.param({}, {"SPARK_HOME": "."}, False, id="a file of Spark's home"),
    ],
)
def test_sparks_log_is_the_users_who_configures_it(
    settings: dict[str, str], environment: dict[str, str], quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "log4j2.properties").touch()
    monkeypatch.chdir(tmp_path)
    given = settings.get("spark.driver.extraJavaOptions", "")
    options = log_options(settings, environment)
    assert options.endswith(given)
    assert options.startswith("-Dlog4j2.configurationFile=file:///") is quiet
    if quiet:
        assert Path(options.split()[0].removeprefix("-Dlog4j2.configurationFile=file://")).is_file()
