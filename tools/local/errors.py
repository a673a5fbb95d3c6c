"""The exception of this package: the problem and its fix."""


class ClusterError(Exception):
    """The cluster cannot be started, used or removed.

    Args:
        what: the problem, with the offending value and its location.
        fix: how to solve it, as an imperative sentence or a command.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}\n  fix: {fix}")
        self.what = what
        self.fix = fix
