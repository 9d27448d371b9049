"""Secrets come from the environment and are shown nowhere."""

from __future__ import annotations

import pytest

from headrace.engine.spark.secrets import resolve
from headrace.errors import SpecError
from headrace.hiding import Secrets, is_secret_option

ENVIRONMENT = {"PW": "tiger", "USER_NAME": "ann"}


def test_variables_are_put_in_place_anywhere_in_an_option() -> None:
    options = [("a", "x${env:PW}y${env:USER_NAME}"), ("b", "${PW} $PW ${system:PW}")]
    assert resolve(options, "query 'q'", ENVIRONMENT) == {"a": "xtigeryann", "b": "${PW} $PW ${system:PW}"}


def test_variables_that_are_not_set_are_all_named() -> None:
    with pytest.raises(SpecError) as caught:
        resolve([("a", "${env:ONE}"), ("b", "${env:PW}${env:TWO}")], "query 'q'", ENVIRONMENT)
    assert len(caught.value.problems) == 2
    assert "query 'q': option 'a' asks for the environment variable ONE" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text", "shown"),
    [
        pytest.param([("password", "lion")], "with lion: no", "with ***: no", id="by the name of the option"),
        pytest.param([("kafka.sasl.jaas.config", "m required password=\"x y\";")],
                     'bad m required password="x y";', "bad ***", id="a whole login module"),
        pytest.param([("url", "db://${env:PW}")], "no tiger here", "no *** here", id="whatever the environment gave"),
        pytest.param([], "jdbc:x://h/d?user=u&password=abc&ssl=1", "jdbc:x://h/d?user=u&password=***&ssl=1",
                     id="a password in an address"),
        pytest.param([("token", "")], "nothing to hide", "nothing to hide", id="an empty secret hides nothing"),
        pytest.param([("secret", "ab"), ("password", "abc")], "abc ab", "*** ***", id="the longer of two first"),
        pytest.param([("pwd", "ann")], "ann planned it", "*** planned it", id="a short one not inside other words"),
        pytest.param([("token", "true")], "it is true", "it is true", id="a switch is no secret"),
        pytest.param([("url", "jdbc:x://h/d?user=u&password=abcdef")], "refused abcdef", "refused ***",
                     id="a password in an address, told alone"),
        pytest.param([("path", "s3a://KEY:shh%2Fshh@b/x")], "no s3a://KEY:shh%2Fshh@b/x, shh%2Fshh",
                     "no s3a://KEY:***@b/x, ***", id="user and password in a path"),
        pytest.param([], "jdbc:oracle:thin:scott/tiger@h:1521/x", "jdbc:oracle:thin:scott/***@h:1521/x",
                     id="user and password as Oracle has them"),
        pytest.param([], "https://ann:p@ss@h/x", "https://ann:***@h/x", id="an @ within a password"),
        pytest.param([], "see http://h:8080/x and a@b.c", "see http://h:8080/x and a@b.c", id="a port is no password"),
        pytest.param([("kafka.sasl.jaas.config", 'm required password="pa ss";')], "bad pa ss", "bad ***",
                     id="the password of a login module, told alone"),
        pytest.param([("kafka.sasl.jaas.config", "x.PlainLoginModule hunter22 required")], "bad flag 'hunter22'",
                     "bad flag '***'", id="a word of a malformed login module"),
        pytest.param([("api_key", 'a"b\\c/d e')], r'{"x": "a\"b\\c/d e"} a%22b%5Cc%2Fd%20e', '{"x": "***"} ***',
                     id="as JSON and addresses write it"),
        pytest.param([("private_key", "-----BEGIN\nMIIEvQ+abc\n-----END")], "line 'MIIEvQ+abc'", "line '***'",
                     id="a line of a key"),
        pytest.param([("x", "DefaultEndpointsProtocol=https;AccountKey=Zm9vYmFy==;x=1")], "key Zm9vYmFy==", "key ***",
                     id="the key in a connection string"),
    ],
)  # fmt: skip
def test_what_is_secret_is_hidden(options: list[tuple[str, str]], text: str, shown: str) -> None:
    assert Secrets(options, ENVIRONMENT).hide(text) == shown


@pytest.mark.parametrize(
    "name",
    ["password", "PASSWD", "pwd", "db.pwd", "passphrase", "secret", "client_secret", "token", "sas", "fs.azure.sas.x",
     "auth", "basic.auth.user.info", "api_key", "apiKey", "api-key", "access.key", "accessKeyId", "account.key",
     "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net", "private_key", "ssl.keystore.key", "credentials",
     "kafka.sasl.jaas.config", "connectionString", "sharedAccessKey", "kafka.ssl.key.password"],
)  # fmt: skip
def test_options_that_are_secret_by_name(name: str) -> None:
    assert is_secret_option(name)


@pytest.mark.parametrize(
    "name",
    ["user", "url", "author", "authority", "kafka.sasl.mechanism", "kafka.bootstrap.servers", "keys", "dbtable", "key",
     "header", "kafka.ssl.keystore.location", "path", "compression", "passes", "signal", "monkey"],
)  # fmt: skip
def test_options_that_are_not(name: str) -> None:
    assert not is_secret_option(name)
