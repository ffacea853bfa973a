"""Checks of the commands for endpoints; what is connected to is checked by who connects."""

from __future__ import annotations

from tenure.core import check as checks
from tenure.core.address import read_url
from tenure.core.endpoint.check import check_spec
from tenure.engine.check import check_namespace
from tenure.engine.endpoint import command as c


def create_endpoint(command: c.CreateEndpoint) -> None:
    """Check a new endpoint."""
    check_namespace(command.namespace)
    checks.name(command.name, "name")
    checks.name(command.queue, "queue")
    read_url(command.spec.url, "url")
    check_spec(command.spec)


def set_endpoint(command: c.SetEndpoint) -> None:
    """Check the URL; the rest is checked as a whole, with what stays."""
    name_endpoint(command)
    if command.change.url is not None:
        read_url(command.change.url, "url")


def name_endpoint(
    command: c.SetEndpoint
    | c.PauseEndpoint
    | c.RotateEndpointSecret
    | c.DeleteEndpoint
    | c.EndEndpoint,
) -> None:
    """Check the id of an endpoint."""
    check_namespace(command.namespace)
    checks.worker_id(command.endpoint_id, "id")


def drive_endpoint(command: c.TakeEndpoint | c.ReportDelivery) -> None:
    """Check the worker row of an endpoint by its id."""
    check_namespace(command.namespace)
    checks.worker_id(command.worker_id)
