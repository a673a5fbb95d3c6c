"""ACL users of applications in the spec of a RedisCluster, and their rules."""

from __future__ import annotations

import json
import re
from typing import Annotated, ClassVar

from pydantic import Field

from shared.api.podspec import distinct
from shared.api.spec import Name, Rule, SpecModel

RESERVED_USERS = ("default", "exporter", "operator", "replication")
"""Users of the operator itself, and of connections without a user."""

_FORBIDDEN = r"(?i)(^|[\s(])([><#!]|(on|off|nopass|reset|resetpass)([\s)]|$))"
"""Words with which rules would set passwords, or what other fields set."""


class PasswordSecret(SpecModel):
    """Secret with the password of a user."""

    name: Name = Field(description="Name of the Secret in the same namespace.")
    key: Annotated[str, Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] | None = Field(
        None, description="Key of the password in the Secret. Default: password."
    )


class User(SpecModel):
    """An ACL user of an application, on every node."""

    name: Annotated[str, Field(max_length=32, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description="Name of the user. The Secret NAME-user-USER has what a client needs to connect as this user."
    )
    rules: Annotated[str, Field(min_length=1, max_length=2048, pattern=r"^[ -~\n]+$")] = Field(
        description="Rights of the user, in the words of ACL SETUSER, such as: ~app:* &app:* +@read +@write "
        "-@dangerous. They begin from a user without any right. Passwords and on or off are other fields."
    )
    password_secret: PasswordSecret | None = Field(
        None,
        description="Secret with the password. Default: the operator generates the password, and writes it to "
        "NAME-user-USER. A changed password is applied without a restart; for ten minutes (--password-overlap) after "
        "all nodes accept it, the former one stays valid.",
    )
    enabled: bool | None = Field(
        None, description="Whether clients can connect as this user. Default: true. false also closes its connections."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!(self.name in {json.dumps(RESERVED_USERS)})",
            lambda user: user.name not in RESERVED_USERS,
            "{} is a user of the operator; choose another name.",
            at="name",
            value=("self.name", lambda user: user.name),
        ),
        Rule(
            f"!self.rules.matches({json.dumps(_FORBIDDEN)})",
            lambda user: re.search(_FORBIDDEN, user.rules) is None,
            "have a word that sets a password or the state of the user (>, <, #, !, nopass, resetpass, reset, on or "
            "off); remove it, and use passwordSecret and enabled.",
            at="rules",
        ),
    )

    @property
    def is_enabled(self) -> bool:
        return self.enabled is not False

    @property
    def words(self) -> str:
        """The rules without line breaks."""
        return " ".join(self.rules.split())


MAX_USERS = 32
Users = Annotated[list[User], Field(max_length=MAX_USERS), distinct("name")]
