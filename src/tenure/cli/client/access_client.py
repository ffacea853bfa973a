"""The part of the way to a server that is about keys, namespaces and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from tenure.cli.client.connection import ServerConnection
from tenure.cli.show import access_view as view
from tenure.v1 import admin_service_pb2 as pb
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub


class KeyChoice(TypedDict):
    """A key as the options of ``tenure keys create`` describe it."""

    role: str
    name: str
    namespaces: tuple[str, ...]
    expires_in_ms: int


class AccessClient:
    """Speaks over the channel of a client."""

    def __init__(self, server: ServerConnection) -> None:
        self._stub = AdminServiceStub(server.channel)
        self._call = server.call
        self._now_ms = server.now_ms

    def create_key(self, choice: KeyChoice) -> view.ShownNewKey:
        """Make a key."""
        request = pb.CreateApiKeyRequest(
            name=choice["name"],
            role=pb.Role.Value(f"ROLE_{choice['role'].upper()}"),
            namespaces=choice["namespaces"],
            expires_in_ms=choice["expires_in_ms"],
        )
        answer = self._call(self._stub.CreateApiKey, request, pb.CreateApiKeyResponse)
        return view.new_key(answer.key, answer.secret, answer.key.created_at_ms)

    def list_keys(self, page_token: str, limit: int) -> tuple[list[view.ShownKey], str]:
        """Return a page of keys and the token of the next one."""
        request = pb.ListApiKeysRequest(page_size=limit, page_token=page_token)
        answer = self._call(self._stub.ListApiKeys, request, pb.ListApiKeysResponse)
        now_ms = self._now_ms()
        return [view.key(each, now_ms) for each in answer.keys], answer.next_page_token

    def get_key(self, key_id: str) -> view.ShownKey:
        """Return a key."""
        request = pb.GetApiKeyRequest(key_id=key_id)
        answer = self._call(self._stub.GetApiKey, request, pb.GetApiKeyResponse)
        return view.key(answer.key, self._now_ms())

    def revoke_key(self, key_id: str) -> view.ShownKey:
        """End a key."""
        request = pb.RevokeApiKeyRequest(key_id=key_id)
        answer = self._call(self._stub.RevokeApiKey, request, pb.RevokeApiKeyResponse)
        return view.key(answer.key, answer.key.revoked_at_ms)

    def rotate_token_key(self) -> view.ShownTokenKey:
        """Make a new key for task tokens."""
        request = pb.RotateTokenKeyRequest()
        answer = self._call(self._stub.RotateTokenKey, request, pb.RotateTokenKeyResponse)
        return view.token_key(answer)

    def create_namespace(self, name: str) -> str:
        """Create a namespace; return its full name."""
        request = pb.CreateNamespaceRequest(name=name)
        answer = self._call(self._stub.CreateNamespace, request, pb.CreateNamespaceResponse)
        return answer.name

    def list_namespaces(self, page_token: str, limit: int) -> tuple[list[view.ShownNamespace], str]:
        """Return a page of namespaces and the token of the next one."""
        request = pb.ListNamespacesRequest(page_size=limit, page_token=page_token)
        answer = self._call(self._stub.ListNamespaces, request, pb.ListNamespacesResponse)
        return [view.namespace(each) for each in answer.namespaces], answer.next_page_token

    def get_namespace(self, name: str) -> view.ShownNamespace:
        """Return a namespace."""
        request = pb.GetNamespaceRequest(name=name)
        answer = self._call(self._stub.GetNamespace, request, pb.GetNamespaceResponse)
        return view.namespace(answer.namespace)

    def set_namespace(self, name: str, *, is_disabled: bool) -> view.ShownNamespace:
        """Disable or enable a namespace."""
        request = pb.SetNamespaceRequest(name=name, is_disabled=is_disabled)
        answer = self._call(self._stub.SetNamespace, request, pb.SetNamespaceResponse)
        return view.namespace(answer.namespace)

    def list_audit(
        self, where: Sequence[str], page_token: str, limit: int
    ) -> tuple[list[view.ShownAudit], str]:
        """Return a page of the audit log; ``where`` is a namespace, an action and an actor."""
        namespace, action, actor = where
        request = pb.ListAuditRecordsRequest(
            namespace_id=namespace,
            action=action,
            actor=actor,
            page_size=limit,
            page_token=page_token,
        )
        answer = self._call(self._stub.ListAuditRecords, request, pb.ListAuditRecordsResponse)
        return [view.audit(each) for each in answer.records], answer.next_page_token
