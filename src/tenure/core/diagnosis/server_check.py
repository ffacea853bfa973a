"""Checks of a server and its store: one finding per check, from facts that were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tenure.core.diagnosis.finding import Finding, Level, ok
from tenure.core.duration import duration_text
from tenure.core.instant import instant_text
from tenure.core.limits import (
    CLOCK_PROBLEM_MS,
    CLOCK_WARNING_MS,
    CONNECTIONS_PROBLEM_SHARE,
    CONNECTIONS_WARNING_SHARE,
    DISK_PROBLEM_BYTES,
    DISK_WARNING_BYTES,
    LATENCY_PROBLEM_MS,
    LATENCY_WARNING_MS,
    POSTGRES_VERSION_MIN,
    STALE_SERVER_MS,
    WAL_WARNING_BYTES,
)

SQLITE: Final = "sqlite"
_UNITS_MIN: Final = 10
# SQLite's synchronous levels: from FULL on every commit is on disk when it is answered.
_SYNCHRONOUS: Final = {"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}
_ON_DISK: Final = frozenset({"2", "3"})
_SAFE_COMMITS: Final = frozenset({"on", "local", "remote_write", "remote_apply"})


class Latency(msgspec.Struct, frozen=True, gc=False):
    """How long the store took for a read, and for a commit to disk."""

    read_ms: int
    commit_ms: int


class Disk(msgspec.Struct, frozen=True, gc=False):
    """The free space where a SQLite file is."""

    free_bytes: int
    total_bytes: int
    wal_bytes: int


class ServerRow(msgspec.Struct, frozen=True, gc=False):
    """A server that works, or worked, on the store, and how many leases it renewed last."""

    id: str
    started_at_ms: int
    touched_at_ms: int
    lease_count: int


def check_clocks(*, store_ahead_ms: int) -> Finding:
    """Compare the clock of the server with the store's, which is used for everything."""
    evidence = {"storeAheadMs": str(store_ahead_ms)}
    level = _level(abs(store_ahead_ms), CLOCK_WARNING_MS, CLOCK_PROBLEM_MS)
    if level is Level.OK:
        return ok("clock_skew", "The clocks of server and store agree.", **evidence)
    side = "ahead of" if store_ahead_ms > 0 else "behind"
    message = f"The clock of the store is {_apart(store_ahead_ms)} {side} that of this server."
    advice = "Synchronise both machines by NTP (timedatectl, chronyc tracking)."
    return Finding("clock_skew", level, message, advice, evidence)


def check_client_clock(*, client_ahead_ms: int) -> Finding:
    """Compare the clock of the caller with the server's."""
    evidence = {"clientAheadMs": str(client_ahead_ms)}
    level = _level(abs(client_ahead_ms), CLOCK_WARNING_MS, CLOCK_PROBLEM_MS)
    if level is Level.OK:
        return ok("client_clock", "The clocks of this machine and of the server agree.", **evidence)
    side = "ahead of" if client_ahead_ms > 0 else "behind"
    message = f"The clock of this machine is {_apart(client_ahead_ms)} {side} that of the server."
    advice = "Synchronise it by NTP: instants that it sends, such as --at, are wrong by this much."
    return Finding("client_clock", level, message, advice, evidence)


def _apart(ahead_ms: int) -> str:
    return duration_text(abs(ahead_ms))


def _level(value: float, warning: float, problem: float) -> Level:
    if value >= problem:
        return Level.PROBLEM
    return Level.WARNING if value >= warning else Level.OK


def check_latency(latency: Latency) -> Finding:
    """Judge how fast the store answers; a server that commits too slowly cannot judge leases."""
    evidence = {"readMs": str(latency.read_ms), "commitMs": str(latency.commit_ms)}
    slowest_ms = max(latency.read_ms, latency.commit_ms)
    level = _level(slowest_ms, LATENCY_WARNING_MS, LATENCY_PROBLEM_MS)
    told = f"{latency.read_ms} ms for a read, {latency.commit_ms} ms for a commit"
    if level is Level.OK:
        return ok("store_latency", f"The store is fast enough: {told}.", **evidence)
    message = f"The store is slow: {told}."
    advice = (
        "Check the disk of the store and what else uses it. A server whose commits take "
        "a second does not end leases, so dead workers keep their tasks."
    )
    return Finding("store_latency", level, message, advice, evidence)


def check_durability(dialect: str, settings: Mapping[str, str]) -> Finding:
    """Judge whether accepted work survives a crash of the store's machine."""
    return _sqlite_durability(settings) if dialect == SQLITE else _postgres_durability(settings)


def _sqlite_durability(settings: Mapping[str, str]) -> Finding:
    mode = settings.get("journal_mode", "")
    synchronous = settings.get("synchronous", "")
    name = _SYNCHRONOUS.get(synchronous, synchronous)
    evidence = {"journalMode": mode, "synchronous": name}
    if mode == "memory":
        message = "The store is in memory: everything is lost when the server ends."
        advice = "Name a file: tenure server --store sqlite:///tenure.db"
        return Finding("store_durability", Level.PROBLEM, message, advice, evidence)
    if synchronous not in _ON_DISK:
        message = f"SQLite runs with synchronous={name}: a power failure loses accepted work."
        advice = "Run it with synchronous=FULL, the default of Tenure."
        return Finding("store_durability", Level.PROBLEM, message, advice, evidence)
    if mode != "wal":
        message = f"SQLite runs with journal_mode={mode}: reads and commits wait for each other."
        advice = "Move the file to a local disk, on which SQLite can use a write-ahead log."
        return Finding("store_durability", Level.WARNING, message, advice, evidence)
    return ok("store_durability", "Every commit is on disk before it is answered.", **evidence)


def _postgres_durability(settings: Mapping[str, str]) -> Finding:
    evidence = {
        "fsync": settings.get("fsync", ""),
        "synchronousCommit": settings.get("synchronous_commit", ""),
        "fullPageWrites": settings.get("full_page_writes", ""),
    }
    wrong = []
    if evidence["fsync"] == "off":
        wrong.append("fsync = off: a crash of its machine may destroy the database")
    if evidence["synchronousCommit"] not in _SAFE_COMMITS:
        wrong.append("synchronous_commit = off: a crash loses the last accepted work")
    if evidence["fullPageWrites"] == "off":
        wrong.append("full_page_writes = off: a crash may leave torn pages")
    if not wrong:
        message = "Every commit is on disk before it is answered."
        return ok("store_durability", message, **evidence)
    advice = "Set each of them to on: ALTER SYSTEM SET … = on; SELECT pg_reload_conf();"
    message = f"PostgreSQL may lose committed work: {'; '.join(wrong)}."
    return Finding("store_durability", Level.PROBLEM, message, advice, evidence)


def check_database_server(settings: Mapping[str, str]) -> list[Finding]:
    """Judge a PostgreSQL server: its version, its connections, its vacuum, its checksums."""
    return [_version(settings), _connections(settings), _vacuum(settings), _checksums(settings)]


def _version(settings: Mapping[str, str]) -> Finding:
    number = int(settings["version"]) // 10_000
    if number >= POSTGRES_VERSION_MIN:
        return ok("store_version", f"PostgreSQL {number} is new enough.", version=str(number))
    message = f"PostgreSQL {number} is too old; Tenure needs {POSTGRES_VERSION_MIN} or newer."
    advice = "Upgrade the database."
    evidence = {"version": str(number)}
    return Finding("store_version", Level.PROBLEM, message, advice, evidence)


def _connections(settings: Mapping[str, str]) -> Finding:
    used = int(settings["connection_count"])
    most = int(settings["max_connections"]) - int(settings["superuser_reserved_connections"])
    evidence = {"used": str(used), "usable": str(most)}
    told = f"{used} of {most} connections are in use"
    level = _level(used / max(most, 1), CONNECTIONS_WARNING_SHARE, CONNECTIONS_PROBLEM_SHARE)
    if level is Level.OK:
        return ok("store_connections", f"PostgreSQL has free connections: {told}.", **evidence)
    message = f"PostgreSQL has few free connections: {told}."
    advice = (
        "A server needs up to ten. Increase max_connections, or put a pooler in between and start "
        "servers with --pooled."
    )
    return Finding("store_connections", level, message, advice, evidence)


def _vacuum(settings: Mapping[str, str]) -> Finding:
    if settings["autovacuum"] != "off":
        return ok("store_vacuum", "Autovacuum is on.", autovacuum="on")
    message = "Autovacuum is off: tables and indexes grow, and every claim gets slower."
    advice = "Switch it on: ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();"
    return Finding("store_vacuum", Level.WARNING, message, advice, {"autovacuum": "off"})


def _checksums(settings: Mapping[str, str]) -> Finding:
    """Judge whether changed bits are detected everywhere; payloads have their own checksums."""
    value = settings.get("data_checksums", "")
    if value == "on":
        return ok("store_checksums", "PostgreSQL verifies its pages.", dataChecksums=value)
    message = "PostgreSQL has no data checksums: damage outside payloads is not detected."
    advice = "Stop the database and run pg_checksums --enable, or create it again with initdb -k."
    return Finding("store_checksums", Level.WARNING, message, advice, {"dataChecksums": value})


def check_migrations(*, applied: Sequence[str], known: Sequence[str]) -> Finding:
    """Compare the schema of the database with the one that this server knows."""
    missing = [each for each in known if each not in applied]
    newer = [each for each in applied if each not in known]
    evidence = {"schema": applied[-1] if applied else "none"}
    if missing:
        message = f"The database lacks migrations of this server: {', '.join(missing)}."
        advice = "Run tenure db migrate --store URL, or restart this server."
        evidence["missing"] = ", ".join(missing)
        return Finding("migrations", Level.PROBLEM, message, advice, evidence)
    if newer:
        message = f"The database has migrations of a newer server: {', '.join(newer)}."
        advice = "Finish the upgrade: run the newer version on all servers."
        evidence["newer"] = ", ".join(newer)
        return Finding("migrations", Level.WARNING, message, advice, evidence)
    return ok("migrations", "The schema is the one that this server knows.", **evidence)


def check_disk(*, size_bytes: int, disk: Disk | None) -> Finding:
    """Judge the free space of the store; of a database server only the size is known here."""
    evidence = {"sizeBytes": str(size_bytes)}
    size = _size(size_bytes)
    if disk is None:
        return ok("disk", f"The database has {size}.", **evidence)
    evidence |= {
        "freeBytes": str(disk.free_bytes),
        "totalBytes": str(disk.total_bytes),
        "walBytes": str(disk.wal_bytes),
    }
    free = _size(disk.free_bytes)
    # Less is worse here, so the signs are inverted.
    level = _level(-disk.free_bytes, -DISK_WARNING_BYTES, -DISK_PROBLEM_BYTES)
    if level is not Level.OK:
        message = f"The disk of the store has {free} left; the file has {size}."
        advice = "Free some space: on a full disk the server refuses new work."
        return Finding("disk", level, message, advice, evidence)
    if disk.wal_bytes >= WAL_WARNING_BYTES:
        message = f"The write-ahead log of SQLite has grown to {_size(disk.wal_bytes)}."
        advice = "A process keeps the file open for reading: end hanging backups or shells."
        return Finding("disk", Level.WARNING, message, advice, evidence)
    return ok("disk", f"The file has {size}; {free} are free.", **evidence)


def _size(count: int) -> str:
    """Return a number of bytes in the largest unit that gives at least ten."""
    unit = "KiB"
    size = count // 1024
    for larger in ("MiB", "GiB"):
        if size >= _UNITS_MIN * 1024:
            unit, size = larger, size // 1024
    return f"{size} {unit}"


def check_servers(servers: Sequence[ServerRow], *, now_ms: int) -> Finding:
    """Find servers that are gone while leases of workers still belong to them."""
    dead = [each for each in servers if now_ms - each.touched_at_ms >= STALE_SERVER_MS]
    live_count = len(servers) - len(dead)
    evidence = {"liveCount": str(live_count), "goneCount": str(len(dead))}
    owing = [each for each in dead if each.lease_count]
    if not owing:
        told = "1 server works" if live_count == 1 else f"{live_count} servers work"
        return ok("servers", f"{told} on this store.", **evidence)
    evidence["gone"] = ", ".join(
        f"{each.id} (last seen {instant_text(each.touched_at_ms)}, {each.lease_count} leases)"
        for each in owing
    )
    message = f"Workers of {len(owing)} dead servers have not connected to another one yet."
    if len(owing) == 1:
        message = "Workers of a dead server have not connected to another one yet."
    advice = "Give workers the addresses of all servers, or one address that leads to live servers."
    return Finding("servers", Level.WARNING, message, advice, evidence)


def check_listening(*, is_shared: bool, is_listening: bool) -> Finding:
    """Return whether this server receives hints from others."""
    if not is_shared:
        return ok("hints", "Only this server uses this store.")
    if is_listening:
        return ok("hints", "This server gets hints from other servers at once.")
    message = "This server gets no hints from others: it finds their work by reading each second."
    advice = "Behind a pooler this is expected. Otherwise check its log: LISTEN failed."
    return Finding("hints", Level.WARNING, message, advice)
