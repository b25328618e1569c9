"""Five trivial steps in a peer's pipeline; run by benchmarks/steps.py in an environment that has the peer."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS = 5


def haystack() -> Callable[[int], Any]:
    from haystack import Pipeline, component

    @component
    class Add:
        @component.output_types(value=int)
        def run(self, value: int) -> dict[str, int]:
            return {"value": value + 1}

    pipeline = Pipeline()
    for index in range(STEPS):
        pipeline.add_component(f"s{index}", Add())
        if index:
            pipeline.connect(f"s{index - 1}.value", f"s{index}.value")
    return lambda value: pipeline.run({"s0": {"value": value}})


def langchain() -> Callable[[int], Any]:
    from langchain_core.runnables import RunnableLambda

    def add(value: int) -> int:
        return value + 1

    chain: Any = RunnableLambda(add)
    for _ in range(STEPS - 1):
        chain = chain | RunnableLambda(add)
    return lambda value: chain.invoke(value)


def main() -> None:
    logging.disable(logging.CRITICAL)
    work = {"haystack": haystack, "langchain": langchain}[sys.argv[1]]()
    best = float("inf")
    for _ in range(7):
        began = time.process_time()
        for index in range(200):
            work(index)
        best = min(best, (time.process_time() - began) / 200 / STEPS * 1e6)
    print(json.dumps(best))


if __name__ == "__main__":
    main()
