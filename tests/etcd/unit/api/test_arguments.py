"""One table of etcd's flags: what the operator sets is reserved, and nothing else is accepted in extraArgs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from operators.etcd.api import versions
from operators.etcd.api.arguments import ACCEPTED, FLAGS, RESERVED_FLAGS, USER_FLAGS, argument
from operators.etcd.objects import bootstrap, command_line

OPERATORS = sorted(FLAGS.keys() - USER_FLAGS.keys())
BUILDERS = (command_line, bootstrap, versions)
"""Modules that build the command line of etcd."""


@pytest.mark.parametrize("name", OPERATORS)
def test_flag_that_the_operator_sets_is_not_accepted_in_extra_args(name: str) -> None:
    for given in (f"--{name}", f"--{name}=1", f"-{name}=1"):
        assert re.fullmatch(RESERVED_FLAGS, given)
        assert not re.fullmatch(ACCEPTED, given)
    assert argument(name, 1) == f"--{name}=1"


@pytest.mark.parametrize("name", [*sorted(USER_FLAGS.keys() - {"feature-gates"}), "new-flag-of-etcd"])
def test_operator_sets_no_flag_that_extra_args_could_override(name: str) -> None:
    """A new field whose flag users may set, or that the table lacks, fails in its first test."""
    with pytest.raises(ValueError, match=f"--{name} is no flag of the operator"):
        argument(name, 1)


def test_operators_values_of_a_shared_flag_are_not_accepted() -> None:
    assert [name for name, flag in FLAGS.items() if flag.is_shared] == ["feature-gates"]
    (given,) = versions.features(versions.Version(3, 6, 0)).corruption_checks
    assert re.fullmatch(RESERVED_FLAGS, given)
    assert not re.fullmatch(ACCEPTED, given)


def _flags_without_the_table(module: ModuleType) -> Iterator[str]:
    """Yield the texts of a module that begin like a flag, also those in f-strings."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            yield node.value


@pytest.mark.parametrize("module", BUILDERS, ids=lambda module: module.__name__)
def test_every_argument_of_etcd_is_made_by_the_table(module: ModuleType) -> None:
    assert list(_flags_without_the_table(module)) == []
