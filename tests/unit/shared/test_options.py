"""Flags and environment say the same things; the flag wins; what is wrong is said."""

import pytest

from shared.options import Options, parse_options


def options(*arguments: str, **environment: str) -> Options:
    return parse_options("memcached-operator", "memcached", list(arguments), environment)


def test_the_defaults() -> None:
    given = options()
    assert given.operator_name == "memcached-operator"
    assert given.namespaces == ()
    assert (given.workers, given.resync, given.install_crds) == (16, 600.0, False)
    assert given.command == "run"


def test_the_environment_and_the_flag_that_wins() -> None:
    given = options("--workers", "3", WORKERS="7", WATCH_NAMESPACE="b, a,,a", INSTALL_CRDS="true", RESYNC="30")
    assert given.workers == 3
    assert given.namespaces == ("a", "b")
    assert given.install_crds
    assert given.resync == 30
    assert not options("--no-install-crds", INSTALL_CRDS="1").install_crds


@pytest.mark.parametrize(
    ("arguments", "environment", "because"),
    [
        (["--workers", "0"], {}, "'0' is no number of at least 1"),
        ([], {"WORKERS": "many"}, "'many' is no number of at least 1"),
        (["--resync", "-5"], {}, "'-5' is no number of seconds above 0"),
        (["--log-level", "loud"], {}, "'loud' is not one of debug, info, warning, error"),
        ([], {"LOG_FORMAT": "xml"}, "'xml' is not one of json, text"),
        ([], {"INSTALL_CRDS": "perhaps"}, "INSTALL_CRDS: 'perhaps' is not one of true and false"),
    ],
)
def test_a_wrong_value_is_named(
    arguments: list[str], environment: dict[str, str], because: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(*arguments, **environment)
    assert because in capsys.readouterr().err
