"""Five trivial steps in a peer's pipeline; run by benchmarks/steps.py in an environment that has the peer."""

import json
import logging
import statistics
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


def llamaindex() -> Callable[[int], Any]:
    import asyncio

    from workflows import Context, Workflow, step
    from workflows.events import Event, StartEvent, StopEvent

    class One(Event):
        value: int

    class Two(Event):
        value: int

    class Three(Event):
        value: int

    class Four(Event):
        value: int

    class Add(Workflow):
        @step
        async def first(self, ctx: Context, event: StartEvent) -> One:
            return One(value=event.value + 1)

        @step
        async def second(self, ctx: Context, event: One) -> Two:
            return Two(value=event.value + 1)

        @step
        async def third(self, ctx: Context, event: Two) -> Three:
            return Three(value=event.value + 1)

        @step
        async def fourth(self, ctx: Context, event: Three) -> Four:
            return Four(value=event.value + 1)

        @step
        async def fifth(self, ctx: Context, event: Four) -> StopEvent:
            return StopEvent(result=event.value + 1)

    loop, workflow = asyncio.new_event_loop(), Add()

    async def run(value: int) -> Any:
        return await workflow.run(value=value)

    return lambda value: loop.run_until_complete(run(value))


def main() -> None:
    logging.disable(logging.CRITICAL)
    work = {"haystack": haystack, "langchain": langchain, "llamaindex": llamaindex}[sys.argv[1]]()
    times = []
    for _ in range(7):
        began = time.process_time()
        for index in range(200):
            work(index)
        times.append((time.process_time() - began) / 200 / STEPS * 1e6)
    print(json.dumps(round(statistics.median(times), 3)))


if __name__ == "__main__":
    main()
