"""The doctor over HTTP."""

from __future__ import annotations

from tenure import __version__
from tests.api.http.site import Site


async def test_what_is_wrong_is_told_with_what_to_do(site: Site) -> None:
    await site.enqueue()
    await site.world.advance(60_000)
    answer = await site.call("GET", "/v1/diagnosis")
    assert answer["serverId"] == site.engine.server_id
    assert answer["serverVersion"] == __version__
    assert answer["serverNow"] == answer["storeNow"]
    (finding,) = [each for each in answer["findings"] if each["check"] == "orphaned_work"]
    assert finding["level"] == "problem"
    assert "tenure worker MODULE --queue default" in finding["advice"]
    assert finding["evidence"]["type"] == "mail"


async def test_the_clock_of_the_caller_is_compared_when_it_is_told(small: Site) -> None:
    path = f"/v1/diagnosis?clientNowMs={small.world.clock.now_ms() - 20_000}"
    answer = await small.call("GET", path)
    assert answer["findings"][0]["check"] in {"client_clock", "store_durability"}
    (clock,) = [each for each in answer["findings"] if each["check"] == "client_clock"]
    assert clock["evidence"]["clientAheadMs"] == "-20000"


async def test_bad_parameters_are_refused(small: Site) -> None:
    for query in ("clientNowMs=-1", "clientNowMs=x", "namespace=a/b/c", "deep=1"):
        status, code, _ = await small.refused("GET", f"/v1/diagnosis?{query}")
        assert (status, code) == (400, "invalid_argument"), query
    unknown = await small.refused("GET", "/v1/diagnosis?namespace=nobody")
    assert unknown == (404, "not_found", {})
