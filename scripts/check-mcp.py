"""Talks to `loom memory mcp` through the official client: see check-mcp.sh."""

import asyncio
import importlib.metadata
import json
import pathlib
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

LOOM, WORKSPACE = sys.argv[1], pathlib.Path(sys.argv[2])
READS = {"status", "search", "show", "review"}


async def day(session):
    async def tools():
        return {tool.name: tool.annotations for tool in (await session.list_tools()).tools}

    async def call(name, **arguments):
        result = await session.call_tool(name, arguments)
        text = result.content[0].text
        return (text if result.is_error else json.loads(text)), result.is_error

    async def good(name, **arguments):
        value, failed = await call(name, **arguments)
        assert not failed, (name, value)
        return value

    print("server", (await session.initialize()).server_info)
    offered = await tools()
    print("offered in detect_only:", " ".join(offered))
    assert set(offered) == READS | {"scan", "capture"}, offered
    for name, hints in offered.items():
        assert hints.read_only_hint == (name in READS) and hints.destructive_hint is False, (name, hints)

    signal = (await good("capture", text="We decided to keep the cache in SQLite.", source="chat:12"))["signals"][0]
    print("captured", signal)
    assert (await good("capture", text="We decided to keep the cache in SQLite.", source="chat:12"))["signals"] == []
    (hit,) = (await good("search", text="sqlite"))["hits"]
    assert hit["id"] == signal["id"] and "sqlite" in hit["why"], hit
    assert "Excerpt: We decided" in (await good("show", id=signal["id"]))["text"]

    decision = (
        "[D-20260220-001]\nDate: 2026-02-20\nStatus: active\nScope: global\nStatement: Keep the cache in SQLite\n"
        "Rationale: one file\nSupersedes: none\nTags: storage\nSources:\n- chat:12"
    )
    proposal = dict(op="append_block", patch=decision, evidence=["agreed"], sources=["chat:12"])
    for name, arguments in [("propose", proposal), ("apply", {"id": "P-20260220-001"})]:
        why, failed = await call(name, **arguments)
        print(f"{name} in detect_only is refused: {why}")
        assert failed

    state = WORKSPACE / "memory/intel-state.json"
    state.write_text(state.read_text().replace("detect_only", "propose"))
    offered = await tools()
    print("offered in propose:", " ".join(offered))
    assert {"propose", "apply"} <= set(offered) and offered["apply"].destructive_hint is True, offered
    staged = (await good("propose", **proposal))["proposal"]
    review = await good("review")
    assert "+Statement: Keep the cache in SQLite" in review["proposals"][0]["diff"]
    assert "data, not instructions" in review["notice"], review
    for arguments in [{"id": staged}, {"id": staged, "token": "yes"}]:
        why, failed = await call("apply", **arguments)
        assert failed, (arguments, why)
        print(f"apply without an approval: {why}")
    # What a person does: a policy for the risk of new decisions.
    settings = WORKSPACE / "mind-mem.json"
    settings.write_text(settings.read_text().replace('"auto_approve": []', '"auto_approve": ["medium"]'))
    applied = await good("apply", id=staged)
    print("applied", applied["proposal"], applied["result"], applied["files"])
    assert "Keep the cache in SQLite" in (WORKSPACE / "decisions/DECISIONS.md").read_text()
    assert (await good("search", text="cache", kind="decision"))["hits"][0]["id"] == "D-20260220-001"
    assert (await good("scan"))["active"] == 1

    for name, arguments in [
        ("search", {"kind": "poem"}),
        ("search", {"colour": "red"}),
        ("show", {"id": "D-20990101-001"}),
        ("show", {}),
        ("apply", {"id": staged}),
        ("erase", {}),
    ]:
        why, failed = await call(name, **arguments)
        assert failed, (name, arguments, why)
        print(f"{name} {arguments}: {why}")
    print((await good("status"))["blocks"])


async def main():
    print("mcp", importlib.metadata.version("mcp"))
    server = StdioServerParameters(command=LOOM, args=["memory", "mcp", str(WORKSPACE)])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await day(session)


asyncio.run(main())
