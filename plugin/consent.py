"""The consent of a person to exactly what a command has shown: by its token, or by the name of the resource."""

from __future__ import annotations

from dataclasses import dataclass

import click

from plugin.databases import Database
from plugin.output import Output
from plugin.problem import Problem
from plugin.session import Session
from shared.kubernetes.errors import Conflict
from shared.kubernetes.kinds import Obj


@dataclass(frozen=True, slots=True)
class Consent:
    """A decision that a person consents to, in the words of a command.

    Attributes:
        verb: name of the command, such as confirm.
        noun: the consent, such as a confirmation.
        done: the verb once it was given, such as confirmed.
        prompt: purpose for which the name of the resource is typed.
        other: advice for another token.
        token: token of the decision that was shown.
    """

    verb: str
    noun: str
    done: str
    prompt: str
    other: str
    token: str

    async def give(
        self, session: Session, output: Output, database: Database, shown: Obj, change: Obj, *, word: str, token: str
    ) -> str:
        """Require the token, or the name at a terminal, write the consent, and return a sentence about it.

        Args:
            shown: the resource as it was shown: a change in between is refused.
            change: merge patch that has the consent.
            word: the resource as the user named it.
            token: token that the user gave; empty for a question.

        Raises:
            Problem: there is no consent to exactly this.
        """
        metadata, where = shown["metadata"], session.flags
        name, again = metadata["name"], f"kubectl platform {self.verb} {word} {where} --token TOKEN"
        if token:
            if token != self.token:
                raise Problem(f"the token is '{self.token}', not '{token}'", self.other)
        elif not output.is_terminal:
            raise Problem(f"{self.noun} needs a terminal, or --token", again)
        elif click.prompt(f"Type {name} to {self.prompt}", default="", show_default=False, err=True) != name:
            raise Problem(f"not {self.done}: the name differs", "nothing was changed")
        version = {"resourceVersion": metadata["resourceVersion"]}
        patch = change | {"metadata": version | (change.get("metadata") or {})}
        try:
            await session.kube.merge(database.kind, session.namespace, name, patch)
        except Conflict:
            help_text = f"nothing was {self.done}: run the command again"
            raise Problem("the resource has changed while you read", help_text) from None
        return f"{self.done.capitalize()} {self.token}. Watch it with: kubectl platform status {word} {where}"
