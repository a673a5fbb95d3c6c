"""The one error of this package: what is wrong, and what mends it."""


class ClusterError(Exception):
    """The cluster cannot be brought up, used or taken down.

    Args:
        what: what is wrong, with the value and the place.
        mend: what to do about it, as an imperative sentence or a command.
    """

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}\n  mend: {mend}")
        self.what = what
        self.mend = mend
