"""Exported journals: one run with all that was recorded of it, as one JSON document.

Names are those of HTTP. A payload is JSON where it is JSON, else base64 in a field that ends in
``Base64``. Fields that have no value are left out, and fields that nobody knows are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from google.protobuf.message import Message

from tenure.sdk.journal_check.recorded import RecordedRun
from tenure.v1 import task_pb2
from tenure.v1.workflow_service_pb2 import WorkflowRun, WorkflowStatus

VERSION: Final = 1

M = TypeVar("M", bound=Message)
_JSON: Final = ("", "json")
_NO_JSON: Final = msgspec.Raw()
_decode: Final = msgspec.json.Decoder().decode


class JournalFileError(ValueError):
    """A file is no exported journal, or one of a later version."""


class _Part(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A part of the document."""


class FileError(_Part):
    """Why a call failed."""

    message: str = ""
    type: str = ""
    category: str = ""
    retryable: bool | None = None
    stack_trace: str = ""
    details_base64: bytes = b""


class FileChild(_Part):
    """How a child ended."""

    task_id: str = ""
    type: str = ""
    state: str = ""
    failure_reason: str = ""


class FileGroup(_Part):
    """How a group ended."""

    group_id: str = ""
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class FileEntry(_Part):
    """One line of the journal; of a signal, ``output`` is its payload."""

    pos: int
    at_ms: int
    kind: str
    key: str = ""
    index: int = 0
    output: msgspec.Raw = _NO_JSON
    output_base64: bytes | None = None
    encoding: str = ""
    error: FileError | None = None
    attempts: int = 0
    started_at_ms: int = 0
    took_ms: int = 0
    fire_at_ms: int = 0
    next_at_ms: int = 0
    site: str = ""
    signal_id: str = ""
    sender: str = ""
    child: FileChild | None = None
    group: FileGroup | None = None


class FileOpenChild(_Part):
    """A child that has not ended."""

    task_id: str
    key: str
    index: int = 0
    type: str = ""
    kind: str = ""


class FileOpenGroup(_Part):
    """A group that has not ended."""

    group_id: str
    key: str
    index: int = 0
    type: str = ""
    total: int = 0
    spawned: int = 0
    open_count: int = 0
    failed: int = 0


class FileRun(_Part):
    """The run itself."""

    run_id: str
    type: str
    namespace: str = ""
    queue: str = ""
    status: str = ""
    generation: int = 1
    attempt: int = 0
    created_at_ms: int = 0
    begun_at_ms: int = 0
    finished_at_ms: int = 0
    external_id: str = ""
    parent_id: str = ""
    first_run_id: str = ""
    schedule_id: str = ""
    fire_at_ms: int = 0
    labels: dict[str, str] = {}
    input: msgspec.Raw = _NO_JSON
    input_base64: bytes | None = None
    encoding: str = ""


class JournalFile(_Part):
    """The document. ``results`` has, by the keys of groups, what their items returned."""

    version: int
    run: FileRun
    entries: list[FileEntry] = []
    open_children: list[FileOpenChild] = []
    open_groups: list[FileOpenGroup] = []
    results: dict[str, list[FileEntry]] = {}


def read(data: bytes) -> RecordedRun:
    """Return the run of an exported journal; raise ``JournalFileError`` for anything else."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != VERSION:
            message = f"it has version {version}, and this Tenure reads version {VERSION}"
            raise JournalFileError(message)
        file = msgspec.json.decode(data, type=JournalFile)
        return _recorded(file)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JournalFileError(f"it is not an exported journal: {error}") from None
    except ValueError as error:
        if isinstance(error, JournalFileError):
            raise
        # A name that no version has had.
        raise JournalFileError(f"it has a value that is not known: {error}") from None


class _Versioned(_Part):
    version: int


def write(
    run: WorkflowRun,
    pages: Iterable[task_pb2.JournalPage],
    results: Iterable[tuple[str, Iterable[task_pb2.JournalPage]]] = (),
) -> Iterator[bytes]:
    """Yield the document in parts, so that nobody has to hold all of it."""
    children: list[FileOpenChild] = []
    groups: list[FileOpenGroup] = []
    yield b'{"version":%d,\n"run":%b,\n"entries":[' % (VERSION, _encode(_file_run(run)))
    separator = b"\n"
    for page in pages:
        children += [_of(FileOpenChild, each, kind=_kind_of(each)) for each in page.open]
        groups += [_of(FileOpenGroup, each) for each in page.groups]
        for entry in page.entries:
            yield separator + _encode(_file_entry(entry))
            separator = b",\n"
    yield b'],\n"openChildren":%b,\n"openGroups":%b,\n"results":{' % (
        _encode(children),
        _encode(groups),
    )
    between = b""
    for key, found in results:
        yield between + _encode(key) + b":["
        between, separator = b",\n", b"\n"
        for page in found:
            for entry in page.entries:
                yield separator + _encode(_file_entry(entry))
                separator = b",\n"
        yield b"]"
    yield b"}}\n"


_encode: Final = msgspec.json.Encoder().encode


def _recorded(file: JournalFile) -> RecordedRun:
    results = {key: [_entry(each) for each in found] for key, found in file.results.items()}

    def page(group_key: str, after: int) -> task_pb2.JournalPage:
        found = results.get(group_key, [])
        return task_pb2.JournalPage(
            group_key=group_key,
            after=after,
            entries=[each for each in found if each.pos > after],
            end=found[-1].pos if found else 0,
        )

    return RecordedRun(
        run=_run(file.run),
        entries=[_entry(each) for each in file.entries],
        open_children=[
            _into(task_pb2.OpenChild(kind=_kind(each.kind)), each, "kind")
            for each in file.open_children
        ],
        open_groups=[_into(task_pb2.OpenGroup(), each) for each in file.open_groups],
        results=page,
    )


# -- The run


def _file_run(run: WorkflowRun) -> FileRun:
    payload, as_base64 = _payload(run.input, run.options.encoding)
    return FileRun(
        run_id=run.run_id,
        type=run.workflow_type,
        namespace=run.namespace_id,
        queue=run.task_queue,
        status=WorkflowStatus.Name(run.status).removeprefix("WORKFLOW_STATUS_"),
        generation=run.generation,
        attempt=run.attempts,
        created_at_ms=run.created_at.ToMilliseconds(),
        begun_at_ms=run.begun_at.ToMilliseconds(),
        finished_at_ms=run.finished_at.ToMilliseconds(),
        external_id=run.external_id,
        parent_id=run.parent_id,
        first_run_id=run.first_run_id,
        schedule_id=run.schedule_id,
        fire_at_ms=run.fire_at.ToMilliseconds(),
        labels=dict(run.labels),
        input=payload,
        input_base64=as_base64,
        encoding=run.options.encoding,
    )


def _run(file: FileRun) -> WorkflowRun:
    made = WorkflowRun(
        run_id=file.run_id,
        workflow_type=file.type,
        namespace_id=file.namespace,
        task_queue=file.queue,
        status=WorkflowStatus.Value(f"WORKFLOW_STATUS_{file.status or 'UNSPECIFIED'}"),
        generation=file.generation,
        attempts=file.attempt,
        external_id=file.external_id,
        parent_id=file.parent_id,
        first_run_id=file.first_run_id,
        schedule_id=file.schedule_id,
        labels=file.labels,
        input=_bytes(file.input, file.input_base64) or b"",
    )
    made.options.encoding = file.encoding
    for name in ("created_at", "begun_at", "finished_at", "fire_at"):
        at_ms = getattr(file, f"{name}_ms")
        if at_ms:
            getattr(made, name).FromMilliseconds(at_ms)
    return made


# -- Entries


def _file_entry(entry: task_pb2.Entry) -> FileEntry:
    content = entry.content
    payload, as_base64 = _payload(content.output, content.encoding)
    child, group = entry.child, entry.group
    return _of(
        FileEntry,
        content,
        pos=entry.pos,
        at_ms=entry.at_ms,
        kind=task_pb2.EntryKind.Name(content.kind).removeprefix("ENTRY_KIND_"),
        output=payload,
        output_base64=as_base64,
        error=_file_error(content.error) if content.HasField("error") else None,
        signal_id=entry.signal_id,
        sender=entry.sender,
        child=_of(FileChild, child, state=_state_of(child)) if entry.HasField("child") else None,
        group=_of(FileGroup, group) if entry.HasField("group") else None,
    )


def _entry(file: FileEntry) -> task_pb2.Entry:
    made = task_pb2.Entry(
        pos=file.pos, at_ms=file.at_ms, signal_id=file.signal_id, sender=file.sender
    )
    content = made.content
    content.kind = task_pb2.EntryKind.Value(f"ENTRY_KIND_{file.kind}")
    for name in _CONTENT:
        setattr(content, name, getattr(file, name))
    output = _bytes(file.output, file.output_base64)
    if output is not None:
        content.output = output
    if file.error is not None:
        content.error.CopyFrom(_error(file.error))
    if file.child is not None:
        state = task_pb2.TaskState.Value(f"TASK_STATE_{file.child.state}")
        made.child.CopyFrom(_into(task_pb2.ChildEnd(state=state), file.child, "state"))
    if file.group is not None:
        _into(made.group, file.group)
    return made


_CONTENT: Final = (
    "key",
    "index",
    "encoding",
    "attempts",
    "started_at_ms",
    "took_ms",
    "fire_at_ms",
    "next_at_ms",
    "site",
)


def _file_error(error: task_pb2.TaskError) -> FileError:
    return FileError(
        message=error.message,
        type=error.type,
        category=task_pb2.ErrorCategory.Name(error.category).removeprefix("ERROR_CATEGORY_"),
        retryable=error.retryable if error.HasField("retryable") else None,
        stack_trace=error.stack_trace,
        details_base64=error.details,
    )


def _error(file: FileError) -> task_pb2.TaskError:
    category = file.category or "UNSPECIFIED"
    return task_pb2.TaskError(
        message=file.message,
        type=file.type,
        category=task_pb2.ErrorCategory.Value(f"ERROR_CATEGORY_{category}"),
        retryable=file.retryable,
        stack_trace=file.stack_trace,
        details=file.details_base64,
    )


def _state_of(child: task_pb2.ChildEnd) -> str:
    return task_pb2.TaskState.Name(child.state).removeprefix("TASK_STATE_")


def _kind_of(child: task_pb2.OpenChild) -> str:
    return task_pb2.TaskKind.Name(child.kind).removeprefix("TASK_KIND_")


def _kind(name: str) -> task_pb2.TaskKind.ValueType:
    return task_pb2.TaskKind.Value(f"TASK_KIND_{name or 'UNSPECIFIED'}")


# -- Both ways

P = TypeVar("P", bound=_Part)


def _of(part: type[P], message: Message, **others: object) -> P:
    """Return a part with the fields of a message that have the same names."""
    names = [each for each in part.__struct_fields__ if each not in others]
    known = message.DESCRIPTOR.fields_by_name
    values: dict[str, Any] = {name: getattr(message, name) for name in names if name in known}
    return part(**values, **others)


def _into(message: M, part: _Part, *others: str) -> M:
    """Set the fields of a message that have the same names; return it."""
    for name in part.__struct_fields__:
        if name not in others:
            setattr(message, name, getattr(part, name))
    return message


def _payload(data: bytes, encoding: str) -> tuple[msgspec.Raw, bytes | None]:
    """Return a payload as JSON or as bytes; msgspec writes those as base64."""
    if not data:
        return _NO_JSON, None
    if encoding in _JSON and _is_json(data):
        return msgspec.Raw(data), None
    return _NO_JSON, data


def _is_json(data: bytes) -> bool:
    try:
        _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _bytes(payload: msgspec.Raw, as_base64: bytes | None) -> bytes | None:
    return bytes(payload) or as_base64
