"""The rows that the commands for endpoints need."""

from __future__ import annotations

from typing import Final

from tenure.engine.endpoint import command as c
from tenure.store.table.lock_order import RowSets

_ALL: Final = 2**31 - 1


def create_endpoint(needs: RowSets, command: c.CreateEndpoint) -> None:
    """Look whether the name is free."""
    needs.namespaces.wanted.add(command.namespace)
    needs.endpoints.names.add((command.namespace, command.name))


def change_endpoint(
    needs: RowSets,
    command: c.SetEndpoint | c.PauseEndpoint | c.RotateEndpointSecret | c.DeleteEndpoint,
) -> None:
    """Lock the worker row, which protects the endpoint and its seat."""
    needs.workers.wanted.add(command.endpoint_id)
    needs.seats.wanted.add(command.endpoint_id)
    needs.endpoints.wanted.add(command.endpoint_id)


def end_endpoint(needs: RowSets, command: c.EndEndpoint) -> None:
    """Lock the worker row and whatever it still holds."""
    needs.workers.wanted.add(command.endpoint_id)
    needs.seats.wanted.add(command.endpoint_id)
    needs.endpoints.wanted.add(command.endpoint_id)
    needs.tasks.held_of[command.endpoint_id] = 1


def take_endpoint(needs: RowSets, command: c.TakeEndpoint) -> None:
    """Lock the worker row, and all its tasks."""
    needs.workers.wanted.add(command.worker_id)
    needs.seats.wanted.add(command.worker_id)
    needs.endpoints.wanted.add(command.worker_id)
    needs.tasks.held_of[command.worker_id] = _ALL


def report_delivery(needs: RowSets, command: c.ReportDelivery) -> None:
    """Lock the task, and the endpoint if its failures change; never its worker row."""
    needs.tasks.wanted.add((command.namespace, command.item.task_id))
    if command.counts:
        needs.endpoints.wanted.add(command.worker_id)
