"""Messages of a bounded length, and one sentence for what is the same for several pods. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_CONDITION_CHARACTERS = 1000
"""Length of the message of a condition."""

MAX_COLUMN_CHARACTERS = 400
"""Length of the message of the condition Ready, which is a column of `kubectl get -o wide`."""

MAX_NAMED_PODS = 3
"""Number of pods up to which a sentence names them."""

_PLURAL = {"does": "do", "has": "have", "is": "are", "keeps": "keep"}


def shortened(message: str, limit: int) -> str:
    """Return a message of at most `limit` characters, cut after a sentence or a word, with the number left out."""
    if len(message) <= limit:
        return message
    available = limit - len(f" (and {len(message)} more characters)")
    kept = message[: available + 1]
    sentences = [found.start() + 1 for found in re.finditer(r"[.!?](?=\s)", kept)]
    end = max((at for at in sentences if at >= available // 2), default=kept.rfind(" "))
    kept = message[: end if end > 0 else available].rstrip()
    return f"{kept} (and {len(message) - len(kept)} more characters)"


def lacks_detail_of(message: str, former: str) -> bool:
    """Whether a message is the former one without the detail at its end."""
    return bool(message) and former.startswith(f"{message.rstrip('.')}: ")


def settled(message: str, former: str, limit: int = MAX_CONDITION_CHARACTERS) -> str:
    """Return the message to report after the former one, of at most `limit` characters.

    The former one stays if the new one only lacks its detail: kubelets before 1.32 report at times only why an image
    cannot be pulled.
    """
    bounded = shortened(message, limit)
    return shortened(former, limit) if lacks_detail_of(bounded, former) else bounded


def grouped(hindrances: Mapping[str, str], total: int) -> list[str]:
    """Return one sentence for each hindrance, with the pods that have it.

    A hindrance without a detail that others have ("cannot pull redis:8" and "cannot pull redis:8: …") joins them.

    Args:
        hindrances: predicates by name of the pod, such as "is starting"; without a period.
        total: number of all pods that are requested.
    """
    texts = list(dict.fromkeys(text.rstrip(".") for text in hindrances.values()))
    names: dict[str, list[str]] = {}
    for name, text in hindrances.items():
        plain = text.rstrip(".")
        names.setdefault(next((each for each in texts if lacks_detail_of(plain, each)), plain), []).append(name)
    return [_sentence(found, text, total) for text, found in names.items()]


def _sentence(names: list[str], predicate: str, total: int) -> str:
    if len(names) == 1:
        return f"{names[0]} {predicate}."
    verb, _, rest = predicate.partition(" ")
    is_counted = len(names) > MAX_NAMED_PODS or len(names) == total
    subject = f"{len(names)} of {total} pods" if is_counted else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{subject} {_PLURAL.get(verb, verb)} {rest}."
