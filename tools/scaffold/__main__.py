"""Usage: python -m tools.scaffold operator NAME [KIND] | kind OPERATOR KIND."""

from __future__ import annotations

import sys

from tools.local.environment import forget_clusters
from tools.scaffold.scaffold import ScaffoldError, new_kind, new_operator


def main(arguments: list[str]) -> int:
    """Write the files of a new operator or kind; return the exit code."""
    forget_clusters()
    try:
        match arguments:
            case ["operator", name]:
                files = new_operator(name, name.capitalize())
            case ["operator", name, kind]:
                files = new_operator(name, kind)
            case ["kind", operator, kind]:
                files = new_kind(operator, kind)
            case _:
                raise ScaffoldError(__doc__ or "")
    except ScaffoldError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write("".join(f"{file}\n" for file in files))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
