"""The specs of the commands for endpoints."""

from __future__ import annotations

from typing import Final

from tenure.engine.command_spec import CommandSpec
from tenure.engine.endpoint import check, handler, needs
from tenure.engine.endpoint import command as c

# A tuple without a type of its own: mypy compares each function with its kind of command.
ENDPOINT_SPECS: Final = (
    CommandSpec(
        c.CreateEndpoint, check.create_endpoint, needs.create_endpoint, handler.create_endpoint
    ),
    CommandSpec(c.SetEndpoint, check.set_endpoint, needs.change_endpoint, handler.set_endpoint),
    CommandSpec(
        c.PauseEndpoint, check.name_endpoint, needs.change_endpoint, handler.pause_endpoint
    ),
    CommandSpec(
        c.RotateEndpointSecret,
        check.name_endpoint,
        needs.change_endpoint,
        handler.rotate_endpoint_secret,
    ),
    CommandSpec(
        c.DeleteEndpoint, check.name_endpoint, needs.change_endpoint, handler.delete_endpoint
    ),
    CommandSpec(c.EndEndpoint, check.name_endpoint, needs.end_endpoint, handler.end_endpoint),
    CommandSpec(c.TakeEndpoint, check.drive_endpoint, needs.take_endpoint, handler.take_endpoint),
    CommandSpec(
        c.ReportDelivery, check.drive_endpoint, needs.report_delivery, handler.report_delivery
    ),
)
