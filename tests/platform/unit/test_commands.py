"""Commands in messages change the named object, from any namespace, and are not cut off."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

import operators
import shared
from operators.redis.api.resource import API, RedisCluster
from operators.redis.objects.names import CLUSTER_UID
from operators.redis.reasons import SLOTS_LOST
from operators.redis.state.volume_record import why_copied
from shared.kubernetes import secret_provenance
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import POD, SERVICE, Obj
from shared.kubernetes.ownership import INSTANCE, NAME, ForeignObject, Owner, require_owned
from shared.kubernetes.secrets import MAX_KEYS
from shared.runtime.settings import Settings
from shared.status.messages import MAX_CONDITION_CHARACTERS
from shared.steps import claims, hidden_pods
from shared.steps.confirmed_recovery import Proposal
from shared.steps.planner import reject_invalid_spec
from shared.steps.view import View
from tests.harness.messages import CHANGES, commands, incomplete_commands

NAMED, NAMESPACE, UID, OTHER = "n" * 45, "s" * 63, "3f0c7e9e-1111-2222-3333-444455556666", "u" * 36
"""A long name of a resource, the longest of a namespace, the UID of the resource, and that of another one."""

OWNER = Owner(API.kind, NAMESPACE, NAMED, UID, "redis", "redis-operator")
SETTINGS = Settings("redis-operator", "redis")
RESOURCE: Obj = {
    "apiVersion": API.kind.api_version,
    "kind": API.kind.name,
    "metadata": {"name": NAMED, "namespace": NAMESPACE, "uid": UID, "generation": 1},
    "spec": {"replicas": 6, "version": "8.0.2"},
}


def claim(number: int, uid: str = OTHER, controller: str = "") -> Obj:
    labels = {NAME: "redis", INSTANCE: NAMED} | ({CLUSTER_UID: uid} if uid else {})
    metadata: Obj = {"name": f"data-{NAMED}-{number}", "namespace": NAMESPACE, "uid": f"c{number}", "labels": labels}
    if controller:
        kind = {"apiVersion": "v1", "kind": "ConfigMap", "name": controller, "uid": OTHER, "controller": True}
        metadata["ownerReferences"] = [kind]
    return {"kind": "PersistentVolumeClaim", "metadata": metadata}


def of_claims(*, may_adopt: bool = False, **given: str) -> str:
    return claims.refusal([claim(number, **given) for number in range(60)], OWNER, CLUSTER_UID, may_adopt=may_adopt)


def of_object() -> str:
    with pytest.raises(ForeignObject) as raised:
        require_owned(
            OWNER.object(SERVICE, NAMED, component="server"),
            {"kind": "Service", "metadata": {"name": NAMED, "namespace": NAMESPACE}},
        )
    return str(raised.value)


def of_secrets() -> str:
    unproven = [{"metadata": {"name": f"{NAMED}-{name}", "uid": OTHER}} for name in ("auth", "ca", "users", "tls")]
    return secret_provenance.refusal(RESOURCE, unproven)


def of_loss() -> str:
    proposal = Proposal(SLOTS_LOST, "Lost. " * 300, "The keys are lost.", "", "", f"20261201T100000Z-{'a' * 16}")
    return proposal.decide(RedisCluster.parse(RESOURCE), requeue=1).message


def of_change() -> str:
    resource = replace(RedisCluster.parse(RESOURCE), awaits_approval="a" * 16)
    return reject_invalid_spec(lambda _: [])(View(resource=resource, settings=SETTINGS, now=datetime.now(UTC))).message


def of_copies() -> str:
    return why_copied(RedisCluster.parse(RESOURCE), [claim(number) for number in range(60)])


class Objects:
    """The API server, which has only this object."""

    def __init__(self, found: Obj) -> None:
        self._found = found

    async def find(self, *_: object) -> Obj:
        return self._found


def test_command_of_each_message_is_complete() -> None:
    """With long names, and many objects."""
    messages = {
        "adopt": of_claims(may_adopt=True),
        "hand over": of_claims(),
        "hand over, without a label": of_claims(uid=""),
        "release": of_claims(controller="postgres"),
        "own": of_object(),
        "adopt Secrets": of_secrets(),
        "confirm": of_loss(),
        "approve": of_change(),
        "adopt copies": of_copies(),
    }
    assert {name: incomplete_commands(message) for name, message in messages.items()} == {name: [] for name in messages}
    assert {name: len(message) for name, message in messages.items() if len(message) > MAX_CONDITION_CHARACTERS} == {}
    found = {name: commands(message)[-1] for name, message in messages.items()}
    assert {words[words.index("-n") + 1] for words in found.values()} == {NAMESPACE}
    assert {name: len(CHANGES.findall(message)) for name, message in messages.items()} == dict.fromkeys(messages, 1)


async def test_command_of_a_large_secret_names_it() -> None:
    data = dict.fromkeys(map(str, range(MAX_KEYS + 1)), "eA==")
    secret: Any = Objects({"metadata": {"name": "orders-ca", "uid": UID}, "data": data})
    resource = RESOURCE | {"status": {secret_provenance.RECORD: {"orders-ca": UID}}}
    with pytest.raises(ForeignObject) as raised:
        await secret_provenance.find(cast("Kube", secret), resource, {}, ["orders-ca"])
    assert str(raised.value).endswith(f"`kubectl edit secret orders-ca -n {NAMESPACE}`")


async def test_command_for_a_pod_without_labels_is_complete() -> None:
    pod: Any = Objects({"kind": POD.name, "metadata": {"name": f"{NAMED}-0", "namespace": NAMESPACE}})
    labels = {INSTANCE: NAMED, NAME: "redis"}
    made: Obj = {"metadata": {"name": NAMED, "namespace": NAMESPACE, "labels": labels}, "spec": {"replicas": 1}}
    hidden = await hidden_pods._hidden(cast("Kube", pod), made, ())
    assert incomplete_commands(hidden[f"{NAMED}-0"]) == []
    assert commands(hidden[f"{NAMED}-0"])[0][:6] == ["kubectl", "label", "pod", f"{NAMED}-0", "-n", NAMESPACE]


def literals() -> Iterator[tuple[Path, str]]:
    """Yield the texts in the code of operators and library; docstrings are no messages."""
    for root in (*operators.__path__, *shared.__path__):
        for path in Path(root).rglob("*.py"):
            tree = ast.parse(path.read_text())
            prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                    yield path, node.value


def test_no_message_has_a_command_of_its_own() -> None:
    """`shared.kubernetes.kubectl` makes each command that changes objects."""
    assert [(path, text) for path, text in literals() if CHANGES.search(text)] == []


@pytest.mark.parametrize(
    "message",
    [
        "Run kubectl label pod a -n b c=d",
        "Run `kubectl label pod a c=d`.",
        "Run `kubectl edit secret -n b`.",
        "Run `kubectl label pod,pvc -l a=b -n b c=d`.",
        "Run `kubectl label pod a -n b c=d. (and 40 more characters)",
        "Run `kubectl platform plan`, and kubectl annotate pod a -n b c=d",
    ],
)
def test_incomplete_commands_are_found(message: str) -> None:
    assert incomplete_commands(message)
    assert incomplete_commands("Run `kubectl platform plan`, and `kubectl label pod/a pvc/b -n c d=e`, or wait.") == []
