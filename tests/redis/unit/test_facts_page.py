"""docs/redis-facts.md has each fact that a step takes from a server or from Kubernetes, and what it names exists."""

from __future__ import annotations

import ast
import dataclasses
import re
from functools import cache

import pytest

from operators.redis.api.status import FormingNode, PlacementAttempt, RecordedNode, RecoveryStatus
from operators.redis.client.responses import Follower, Node, NodeReport
from operators.redis.migration.server_side import Job
from operators.redis.reasons import REASONS
from operators.redis.slots.slot_planner import Doubt, RecordedJob, RecordedMove
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from operators.redis.state.volume_record import VolumeRecord
from shared.api.spec import SpecModel
from shared.kubernetes.secret_provenance import RECORD
from shared.status.reasons import COMMON
from tools.local.paths import REPOSITORY

RECORDS = (RecordedNode, RecordedMove, Doubt, RecordedJob, RecoveryStatus, FormingNode, PlacementAttempt)
"""Records in the status that plans and calls read."""

TYPES = (Observed, Instance, NodeReport, Node, Follower, *RECORDS, VolumeRecord, Job)
"""Everything that plans and calls are given, but the resource itself."""

PLAIN = {
    "ACL CLIENT",
    "ACL SETUSER",
    "ADDSLOTS",
    "ASKING",
    "AUTH",
    "BUMPEPOCH",
    "CANCELSLOTMIGRATIONS",
    "CLIENT KILL",
    "CONFIG SET",
    "DEL",
    "DELSLOTS",
    "EXEC",
    "FAILOVER",
    "FORGET",
    "FUNCTION RESTORE",
    "MEET",
    "MIGRATESLOTS",
    "MULTI",
    "PING",
    "REPLICATE",
    "RESET",
    "SELECT",
    "SET-CONFIG-EPOCH",
    "SETSLOT",
    "SHUTDOWN",
    "UNLINK",
}
"""Commands whose reply is only success or an error."""

ERRORS = frozenset(
    {"ASK MOVED", "BUSY LOADING", "CLUSTERDOWN LOADING", "DENIED NOAUTH", "DUMP", "FUNCTION", "GET", "KEYS"}
)
"""Words in other tuples: codes of errors, the first words of commands with binary replies, and arguments."""

PAGE = (REPOSITORY / "docs/redis-facts.md").read_text()
SECTIONS = re.split(r"\n##+ ", PAGE)


def rows_of(type_: type) -> list[list[str]]:
    """Return the cells of the rows in the section of a type."""
    [section] = [part for part in SECTIONS if re.search(rf"^`{type_.__name__}` in", part, re.MULTILINE)]
    return _rows(section)


def rows_under(title: str) -> list[list[str]]:
    """Return the cells of the rows in the section with a title."""
    [section] = [part for part in SECTIONS if part.startswith(f"{title}\n")]
    return _rows(section)


def _rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@cache
def names() -> dict[str, set[str]]:
    """Return the functions, classes, methods and assigned names of each module of the product, by its short name."""
    found: dict[str, set[str]] = {}
    for path in (*REPOSITORY.glob("operators/redis/**/*.py"), *REPOSITORY.glob("shared/**/*.py")):
        defined = found.setdefault(path.stem, set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.add(node.name)
    return found


def fields_of(type_: type) -> list[str]:
    if issubclass(type_, SpecModel):
        return list(type_.model_fields)
    assert dataclasses.is_dataclass(type_)
    return [field.name for field in dataclasses.fields(type_)]


def commands() -> set[str]:
    """Return the commands that calls send, of CLUSTER without that word."""
    text = "".join(
        path.read_text() for part in ("client", "migration") for path in REPOSITORY.glob(f"operators/redis/{part}/*.py")
    )
    found = re.findall(r'\(\*?\(?"([A-Z]{2,})"(?:, \*?\(?"([A-Z-]+)")?', text)
    return {f"{first} {second}".strip().removeprefix("CLUSTER ") for first, second in found} - ERRORS


@pytest.mark.parametrize("type_", TYPES)
def test_each_field_has_one_row_and_each_row_a_field(type_: type) -> None:
    rows = [cells[0].strip("`") for cells in rows_of(type_)]
    assert sorted(rows) == sorted(fields_of(type_))


def test_status_fields_that_are_read_have_rows() -> None:
    """Only fields of records that have a section, and those of the table of other records."""
    read = {
        name
        for module in ("api/status.py", "api/resource.py", "steps/data_loss_recovery.py", "facts/moves.py")
        for name in re.findall(
            r'(?:status|reported)(?:\.get\(|\[)"([a-zA-Z]+)"', (REPOSITORY / "operators/redis" / module).read_text()
        )
    } | {RECORD}
    of_types = {"nodes", "moves", "jobs", "recovery", "forming", "placement"}
    rows = {cells[0].strip("`") for cells in rows_under("Other records in the status")}
    assert read - of_types - {"version", "nodesInConditions"} == rows


def test_each_reply_that_a_call_relies_on_has_a_row() -> None:
    rows = {cells[0].strip("`") for cells in rows_under("Replies of commands")}
    assert commands() - PLAIN == rows


def annotations_read() -> set[tuple[str, str]]:
    """Return the names of the annotations that are read, and of fields whose last manager is, with the kind of object.

    Raises:
        KeyError: `KINDS` has no kind of the object.
    """
    found = set[tuple[str, str]]()
    for path in (*REPOSITORY.glob("operators/redis/**/*.py"), *map(REPOSITORY.joinpath, SHARED)):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            function = ast.unparse(call.func)
            if function == "annotation":
                name = next(node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name))
            elif function == "managed_fields.is_applied":
                field = call.args[-1]
                name = str(field.value) if isinstance(field, ast.Constant) else ast.unparse(field)
            else:
                continue
            obj = ast.unparse(call.args[0])
            kinds = KINDS.get(f"{path.stem}.{obj}") or KINDS[obj]
            found |= {(name, kind) for kind in kinds.split()}
    return found


KINDS = {
    "claim": "claim",
    "each.volume": "claim",
    "instance.pod_obj": "pod",
    "each.pod_obj": "pod",
    "resource": "resource",
    "resource.obj": "resource",
    "seen.resource.obj": "resource",
    "made": "StatefulSet",
    "stateful_set": "StatefulSet",
    "workload": "StatefulSet",
    "template": "template",
    "rollout_markers.made": "template",
    "fresh_identity.obj": "template pod claim",
    "redis_conf.before": "ConfigMap",
    "observed.found": "ConfigMap",
    "nodes.found": "ConfigMap",
    "configuration.applied": "ConfigMap",
}
"""Kinds of the objects of which annotations are read, by the expression; one with its module comes first."""

SHARED = ("shared/steps/hibernation.py", "shared/api/applied_spec.py", "shared/kubernetes/secret_provenance.py")
OF_CLAIMS = {"NODE_ID", "NODES", "PRIMARY", "COPY_OF", "HOST", "VERSION"}
"""Annotations of which a `VolumeRecord` is made."""

OF_KUBERNETES = {"deletionTimestamp", "capacity", "fromUID"}
"""Rows of other metadata."""


def kinds_in(cell: str) -> list[str]:
    """Return the kinds of objects that a cell names after the owner: "this operator's, on the StatefulSet"."""
    return re.findall(rf"\b({'|'.join(sorted({*' '.join(KINDS.values()).split()}))})(?:s|\b)", cell.partition(", ")[2])


def test_each_annotation_that_is_read_has_a_row() -> None:
    """With the kind of the object: what proves an annotation of one kind may not exist on another."""
    rows = rows_under("Annotations and metadata")
    named = [(cells[0].strip("`"), kind) for cells in rows for kind in kinds_in(cells[1])]
    of_kubernetes = {cells[0].strip("`") for cells in rows} & OF_KUBERNETES
    assert of_kubernetes == OF_KUBERNETES
    stated = sorted(pair for pair in named if pair[0] not in OF_KUBERNETES)
    assert stated == sorted(pair for pair in annotations_read() if pair[0] not in OF_CLAIMS)
    assert all(len(cells) == 4 and all(cells) for cells in rows)


@pytest.mark.parametrize("type_", TYPES)
def test_each_row_states_the_owner_the_proof_and_the_lack_of_it(type_: type) -> None:
    for cells in rows_of(type_):
        assert len(cells) == 4, cells
        assert all(cells), cells


def test_code_that_the_page_names_exists() -> None:
    named = re.findall(r"`([a-z_]+)\.([A-Za-z_]+)`", PAGE)
    assert len(named) > 60
    assert {f"{module}.{name}" for module, name in named if name not in names().get(module, set())} - {
        "spec.adopt"
    } == set()


def test_reasons_that_the_page_names_exist() -> None:
    found = {
        word for word in re.findall(r"`([A-Z][a-z]+[A-Za-z]*)`", PAGE) if word not in {each.__name__ for each in TYPES}
    }
    known = {str(reason) for catalogue in (REASONS, COMMON) for reason in catalogue}
    assert not found - known
