"""Flags and environment variables are equivalent, flags take precedence, and errors are reported."""

import re
from pathlib import Path

import pytest

from shared.cli.options import parse_options
from shared.runtime.options import Options


def options(*arguments: str, **environment: str) -> Options:
    return parse_options("memcached-operator", "memcached", list(arguments), environment)


def test_default_options() -> None:
    given = options()
    assert given.operator_name == "memcached-operator"
    assert given.namespaces == ()
    assert (given.workers, given.resync, given.install_crds, given.shards) == (256, 600.0, False, 1)
    assert given.command == "run"
    assert options(KUBECONFIG="/of/a/user").kubeconfig == ""
    assert (given.leader_elect, given.lease_duration, given.renew_deadline, given.retry_period) == (False, 15, 10, 1)
    assert (given.create_timeout, given.upgrade_timeout) == (600, 1800)
    assert (given.metrics_secure, given.webhook_address, given.certificates) == (True, "0", "")
    assert (given.otlp_endpoint, given.agent_image) == ("", "")
    assert not given.profiling
    assert not given.known_operators


def test_flag_takes_precedence_over_the_environment() -> None:
    given = options("--workers", "3", WORKERS="7", WATCH_NAMESPACE="b, a,,a", INSTALL_CRDS="true", RESYNC="30")
    assert given.workers == 3
    assert given.namespaces == ("a", "b")
    assert given.install_crds
    assert given.resync == 30
    assert not options("--no-install-crds", INSTALL_CRDS="1").install_crds


@pytest.mark.parametrize(
    ("arguments", "environment", "because"),
    [
        (["--workers", "0"], {}, "'0' is not an integer of at least 1"),
        ([], {"WORKERS": "many"}, "'many' is not an integer of at least 1"),
        (["--resync", "-5"], {}, "'-5' is not a number of seconds above 0"),
        (["--shards", "0"], {}, "'0' is not an integer of at least 1"),
        (["--shards", "11"], {}, "'11' is more than 10 shards"),
        (["--shards", "2"], {}, "--shards 2 requires --leader-elect: each shard has a leader"),
        (["--log-level", "loud"], {}, "'loud' is not one of debug, info, warning, error"),
        ([], {"LOG_FORMAT": "xml"}, "'xml' is not one of json, text"),
        (["--create-timeout", "0"], {}, "'0' is not a number of seconds above 0"),
        ([], {"LEADER_ELECT_LEASE_DURATION": "7.5"}, "'7.5' is not an integer of at least 1"),
        (["--leader-elect"], {}, "--leader-elect outside a pod requires --leader-elect-namespace"),
        (
            ["--leader-elect-renew-deadline", "15"],
            {},
            "--leader-elect-renew-deadline 15 must be below --leader-elect-lease-duration 15",
        ),
        (
            ["--leader-elect-retry-period", "6"],
            {"LEADER_ELECT_RENEW_DEADLINE": "11"},
            "--leader-elect-retry-period 6 must be at most half of --leader-elect-renew-deadline 11",
        ),
        (["--otlp-endpoint", "collector:4318"], {}, "'collector:4318' is not a URL: use http://host:4318"),
        ([], {"METRICS_SECURE": "maybe"}, "METRICS_SECURE: 'maybe' is not true or false"),
        (["--metrics-sec"], {}, "unrecognized arguments: --metrics-sec"),
        ([], {"INSTALL_CRDS": "perhaps"}, "INSTALL_CRDS: 'perhaps' is not true or false"),
    ],
)
def test_invalid_value_is_named(
    arguments: list[str], environment: dict[str, str], because: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(*arguments, **environment)
    assert because in capsys.readouterr().err


def test_lease_namespace_is_that_of_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "namespace").write_text("platform-system\n")
    monkeypatch.setattr("shared.cli.options.SERVICE_ACCOUNT", tmp_path)
    assert options("--leader-elect").leader_elect_namespace == "platform-system"
    assert options("--leader-elect", LEADER_ELECT_NAMESPACE="else").leader_elect_namespace == "else"


def test_collector_can_be_set_by_the_opentelemetry_variable() -> None:
    assert options(OTEL_EXPORTER_OTLP_ENDPOINT="http://a:4318").otlp_endpoint == "http://a:4318"
    assert options(OTEL_EXPORTER_OTLP_ENDPOINT="http://a:4318", OTLP_ENDPOINT="").otlp_endpoint == ""


def test_help_has_the_default_of_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--help")
    output = " ".join(capsys.readouterr().out.split())
    flags = set(re.findall(r"--(?!help|no-)[a-z-]+(?= [A-Z]|, )", output))
    assert {"--workers", "--leader-elect", "--otlp-endpoint"} <= flags
    assert output.count("(default: ") == len(flags)
