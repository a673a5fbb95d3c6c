"""Every version of memcached accepts each argument that admission accepts, and external storage works on its volume."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operators.memcached.api import reserved_flags
from operators.memcached.objects.pod import EXTERNAL, arguments
from tests.memcached.unit.world import resource
from tests.support.containers.servers import Memcached, Servers

pytestmark = pytest.mark.nightly

EXAMPLES = 25
"""Number of argument lists per version; each takes 0.3 s."""

ENVIRONMENT = re.compile("ssl|sasl|auth-file|memory-file|^-[SZYe]|xxh3|core")
"""Arguments that depend on files, on the build, or on rights of the container."""

_ASCII = st.characters(codec="ascii")


def _texts(pattern: str) -> st.SearchStrategy[str]:
    return st.from_regex(pattern, fullmatch=True, alphabet=_ASCII).filter(lambda text: not ENVIRONMENT.search(text))


def _flags() -> st.SearchStrategy[list[str]]:
    """Return argument lists of one flag, with its value attached or as an argument of its own."""
    found: list[st.SearchStrategy[list[str]]] = [_texts("-[ACFMWXkv]{1,4}").map(lambda flag: [flag])]
    for name in reserved_flags.BARE_LONG:
        if not ENVIRONMENT.search(name):
            found.append(_texts(f"--{name}").map(lambda flag: [flag]))
    for (short, long), value in reserved_flags.VALUED.items():
        if not ENVIRONMENT.search(f"-{short}"):
            found.append(_texts(f"-{short}{value}").map(lambda flag: [flag]))
            found += [_texts(value).map(lambda text, long=long: [f"--{long}", text])] if long else []  # type: ignore[misc]
    for name, value in reserved_flags.OPTIONS.items():
        if "ssl" not in name:
            found.append(_texts(f"({name}){f'={value}' if value else ''}").map(lambda option: ["-o", option]))
    return st.one_of(found)


@pytest.mark.parametrize("own_version", ["1.6.18", "1.6.38"])
def test_every_accepted_argument_is_accepted_by_memcached(servers: Servers, own_version: str) -> None:
    refused: list[tuple[list[str], str]] = []

    def start(to: Memcached, given: list[str]) -> None:
        command = ["timeout", "0.3", "memcached", "--listen=127.0.0.1", "--port=21999", "--memory-limit=64", *given]
        found = to.container.exec(command)
        if found.exit_code != 124:  # it exited before the timeout
            refused.append((given, found.output.decode()[:200]))

    with servers.memcached(own_version) as to:

        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(_flags())
        def run(arguments: list[str]) -> None:
            text = "".join(f"{argument}\n" for argument in arguments)
            assert re.fullmatch(reserved_flags.ACCEPTED, text), arguments
            start(to, arguments)

        run()
    assert not refused


async def test_items_are_stored_on_external_storage(servers: Servers, version: str) -> None:
    """The flag that the operator passes, with a file on a volume."""
    flags = [flag for flag in arguments(resource(extstore={"sizeMB": 512}, maxItemSizeMB=4)) if EXTERNAL in flag]
    assert flags == [f"--extended=ext_path={EXTERNAL}/items:512M"]
    used = [flag.replace(EXTERNAL, "/tmp") for flag in flags]
    with servers.memcached(version, "--memory-limit=64", "--max-item-size=4m", *used) as to:
        found = to.container.exec(["sh", "-c", "ls /tmp/items"])
        assert found.exit_code == 0
