"""The source distribution: what the targets of its Makefile need is in it."""

from __future__ import annotations

import tarfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.install.conftest import ROOT, run


@pytest.fixture
def unpacked(dist: Path, tmp_path: Path) -> Path:
    (archive,) = dist.glob("tenure-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    return folder


@pytest.mark.parametrize("target", ["run", "test", "check", "bench", "dist"])
def test_make_has_every_file_that_it_needs_in_the_source_distribution(
    unpacked: Path, target: str
) -> None:
    assert "install" in run("make", "--dry-run", target, folder=unpacked)


def test_the_source_distribution_has_every_file_that_is_kept(unpacked: Path) -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    patterns = [".git", *(each.rstrip("/") for each in ignored if each and each[0] != "#")]
    names = {path.name for path in ROOT.iterdir()}
    kept = {name for name in names if not any(fnmatch(name, each) for each in patterns)}
    assert kept - {path.name for path in unpacked.iterdir()} == set()
