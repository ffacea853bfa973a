"""The description of the API is the API."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from tenure.api.http.table import OPERATIONS
from tests.api.http.site import TASK, Site

METHODS = {"get", "put", "post", "delete"}


async def document(site: Site) -> Any:
    return await site.call("GET", "/openapi.json")


async def test_every_route_is_described_and_everything_described_is_a_route(small: Site) -> None:
    described = await document(small)
    assert described["openapi"].startswith("3.1")
    found = {
        (method.upper(), path) for path, methods in described["paths"].items() for method in methods
    }
    assert found == {(each.method, each.path) for each in OPERATIONS}
    for method, path in sorted(found):
        # A stream of events has no end.
        if not path.endswith(("/watch", "/events")):
            answer = await small.client.request(method, re.sub(r"\{\w+\}", "x", path))
            assert answer.status_code not in {405, 500}, path
            expected = described["paths"][path][method.lower()]["responses"]
            assert str(answer.status_code) in expected, (method, path, answer.text)


async def test_the_document_is_well_formed(small: Site) -> None:
    described = await document(small)
    assert described.keys() == {"openapi", "info", "security", "paths", "components"}
    schemas = described["components"]["schemas"]
    for ref in re.findall(r"'\$ref': '([^']*)'", str(described)):
        assert ref.removeprefix("#/components/schemas/") in schemas, ref
    names = []
    for path, methods in described["paths"].items():
        assert methods.keys() <= METHODS
        for operation in methods.values():
            names.append(operation["operationId"])
            assert operation["summary"].endswith(".")
            assert operation["responses"]
            asked = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert asked == set(re.findall(r"\{(\w+)\}", path))
    assert len(names) == len(set(names))


async def test_the_bodies_that_are_described_are_those_that_are_read(small: Site) -> None:
    schemas = (await document(small))["components"]["schemas"]
    enqueue = schemas["EnqueueBody"]
    assert enqueue["required"] == ["type", "queue"]
    assert enqueue["additionalProperties"] is False
    assert enqueue["properties"]["priority"]["maximum"] == 9
    task_id = await small.enqueue(input=1)
    shown = await small.task(task_id)
    assert shown.keys() <= schemas["TaskView"]["properties"].keys()
    assert set(schemas["TaskView"]["required"]) <= shown.keys()
    assert TASK.keys() <= enqueue["properties"].keys()


class Page(HTMLParser):
    """Collects what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in {"src", "href", "action"}:
                self.links.add(value or "")
            elif name == "id":
                assert value not in self.ids
                self.ids.add(value or "")


async def test_the_docs_page_needs_nothing_but_itself(small: Site) -> None:
    answer = await small.client.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = Page()
    page.feed(answer.text)
    assert not page.tags & {"script", "link", "img", "iframe", "form"}
    outside = {each for each in page.links if not each.startswith("#")}
    assert outside == {"/openapi.json"}
    assert {each.removeprefix("#") for each in page.links - outside} <= page.ids
    assert "@import" not in answer.text
    assert "url(" not in answer.text
    for operation in OPERATIONS:
        assert operation.path.replace("{", "$").replace("}", "") in answer.text
