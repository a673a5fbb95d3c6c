"""Commands of kubectl that messages propose. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping


def command(verb: str, objects: str, namespace: str, *arguments: str) -> str:
    """Return a command as a message has it: a user copies what is between the backticks, and runs it anywhere.

    Args:
        objects: kind and name, or several as KIND/NAME.
    """
    return f"`{' '.join(['kubectl', verb, objects, '-n', namespace, *arguments])}`"


def patch_command(objects: str, namespace: str, patch: Mapping[str, object]) -> str:
    """Return the command that changes objects by a JSON merge patch."""
    return command("patch", objects, namespace, f"--type merge -p '{json.dumps(patch, separators=(',', ':'))}'")
