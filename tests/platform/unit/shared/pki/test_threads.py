"""Cryptography for the resources of one namespace delays that of no other for long."""

from __future__ import annotations

import asyncio
import time

from shared.api.memo import Memo, remembered
from shared.pki.threads import evaluate


async def test_many_secrets_of_a_namespace_delay_others_by_one_call() -> None:
    ended = list[str]()

    @remembered(lambda _: 0, Memo())
    def parse(name: str, number: int) -> None:
        time.sleep(0.005)
        ended.append(name)

    many = [asyncio.create_task(evaluate("a", parse, "a", number)) for number in range(64)]
    await asyncio.sleep(0)
    await evaluate("b", parse, "b", 0)
    assert ended.index("b") <= 2
    await asyncio.gather(*many)
    assert len(ended) == 65
