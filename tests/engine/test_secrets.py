"""Secrets come from the environment and are shown nowhere."""

from __future__ import annotations

import pytest

from headrace.engine.secrets import Secrets, resolve
from headrace.errors import SpecError

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
    ],
)  # fmt: skip
def test_what_is_secret_is_hidden(options: list[tuple[str, str]], text: str, shown: str) -> None:
    assert Secrets(options, ENVIRONMENT).hide(text) == shown
