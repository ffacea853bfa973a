"""``check_journals``: exported journals as regression tests of workflows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from tenure.sdk.journal_check import journal_file
from tenure.sdk.journal_check.finding import Finding, Verdict, no_such_type
from tenure.sdk.journal_check.journal_file import JournalFileError
from tenure.sdk.journal_check.rerun import rerun
from tenure.sdk.payload import Codec
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.registry import WorkflowRegistry


class JournalChecker:
    """Checks exported journals against workflows; see the fixture ``check_journals``."""

    def __init__(self, folder: Path, module: object = None) -> None:
        """Look in ``folder``; without a list of workflows take those that ``module`` has."""
        self._folder = folder
        self._module = module

    def __call__(
        self, pattern: str, workflows: Iterable[object] | None = None, *, codec: Codec | None = None
    ) -> list[str]:
        """Run the workflows of all journals that match again; return warnings, file by file.

        It raises ``AssertionError`` if a journal does not fit. Without ``workflows`` they are those
        that the module of the test has, or that modules have which it has imported.
        """
        registry = WorkflowRegistry(_found(self._module) if workflows is None else workflows)
        files = sorted(self._folder.glob(pattern))
        if not files:
            raise AssertionError(f"No journal in {self._folder} matches {pattern}.")
        findings = [_check(file, registry, codec) for file in files]
        problems = [
            f"{file.name}: {found}"
            for file, found in zip(files, findings, strict=True)
            if found.verdict is Verdict.NO_TYPE or found.verdict.is_broken
        ]
        if problems:
            raise AssertionError("\n".join(problems))
        return [
            f"{file.name}: {warning}"
            for file, found in zip(files, findings, strict=True)
            for warning in found.warnings
        ]


def _check(file: Path, workflows: WorkflowRegistry, codec: Codec | None) -> Finding:
    try:
        recorded = journal_file.read(file.read_bytes())
    except JournalFileError as error:
        raise AssertionError(f"{file.name}: {error}") from None
    workflow = workflows.find(recorded.run.workflow_type)
    if workflow is None:
        return no_such_type(recorded.run.workflow_type)
    return rerun(workflow, recorded, codec=codec)


def _found(module: object) -> list[Workflow[..., Any]]:
    """Return the workflows of a module, and of modules that it has imported."""
    values = list(vars(module).values()) if isinstance(module, ModuleType) else []
    for each in list(values):
        if isinstance(each, ModuleType):
            values += vars(each).values()
    return list({id(each): each for each in values if isinstance(each, Workflow)}.values())
