"""How gRPC is loaded: without its event engine, unless somebody has chosen before."""

from __future__ import annotations

import os
import subprocess
import sys

import grpc

from tenure import transport

# Says what gRPC saw while it was loaded, and what is left for other programs.
PROGRAM = """
import os, sys

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc._cython":
            print("seen", os.environ.get("GRPC_EXPERIMENTS"))

sys.meta_path.insert(0, Spy())
{first}
from tenure.sdk.transport.channel import Channel
print("left", os.environ.get("GRPC_EXPERIMENTS"))
"""
WITHOUT = "-event_engine_client,-event_engine_listener"


def load(first: str = "", **variables: str) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_EXPERIMENTS"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines()


def test_a_client_loads_grpc_without_its_event_engine_and_leaves_no_trace() -> None:
    assert load() == [f"seen {WITHOUT}", "left None"]


def test_a_server_does_the_same() -> None:
    assert load("import tenure.api.server") == [f"seen {WITHOUT}", "left None"]


def test_whoever_has_chosen_keeps_the_choice() -> None:
    assert load(GRPC_EXPERIMENTS="") == ["seen ", "left "]


def test_grpc_that_is_loaded_already_is_used_as_it_is() -> None:
    assert load("import grpc") == ["seen None", "left None"]


def test_a_bundle_that_does_not_say_its_versions_can_be_used_all_the_same() -> None:
    unknown = """
from importlib import metadata
def version(name): raise metadata.PackageNotFoundError(name)
metadata.version = version
"""
    assert load(unknown) == ["seen None", "left None"]


def test_the_installed_version_is_one_that_was_looked_at() -> None:
    assert tuple(map(int, grpc.__version__.split(".")[:2])) <= transport._VERSION_MAX  # noqa: SLF001 (a reminder for whoever updates it)
