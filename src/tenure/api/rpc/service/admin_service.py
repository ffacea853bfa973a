"""The calls of operators, over gRPC."""

from __future__ import annotations

from typing import Final

import tenure
from tenure.api.guard import key_grant
from tenure.api.guard.access import PRINCIPAL, actor, check_namespace
from tenure.api.guard.scope import scope
from tenure.api.paging import requested_page
from tenure.api.rpc.context import Context
from tenure.api.rpc.permission import MethodRule, Scope
from tenure.api.rpc.service.endpoint_service import EndpointCalls
from tenure.api.rpc.service_spec import ServiceSpec
from tenure.api.rpc.view import access_view, diagnosis_view, stop_check_view, worker_view
from tenure.core.access.audit import AuditFilter
from tenure.core.access.permission import Action
from tenure.core.limits import DRAIN_DEADLINE_MS
from tenure.engine.access import command as c
from tenure.engine.read import access as access_read
from tenure.engine.read import query, stop_check
from tenure.engine.read import queue as queue_read
from tenure.engine.read.diagnosis import Question, diagnose
from tenure.engine.worker import bulk_drain
from tenure.engine.worker.command import DrainWorker, EvictWorker
from tenure.v1 import admin_service_pb2 as pb
from tenure.v1 import admin_service_pb2_grpc, worker_pb2


class AdminService(EndpointCalls, admin_service_pb2_grpc.AdminServiceServicer):
    """Workers, queues, namespaces, keys and the audit log, for operators."""

    async def DrainWorker(
        self, request: pb.DrainWorkerRequest, context: Context
    ) -> pb.DrainWorkerResponse:
        """Let a worker finish its tasks and give it nothing new."""
        namespace = scope(request.namespace_id)
        command = DrainWorker(
            namespace=namespace,
            worker_id=request.worker_id,
            deadline_ms=worker_view.given_ms(request, "deadline", DRAIN_DEADLINE_MS),
            actor=actor(),
        )
        await self._engine.submit(command)
        return pb.DrainWorkerResponse(worker=await self._worker(namespace, request.worker_id))

    async def DrainWorkers(
        self, request: pb.DrainWorkersRequest, context: Context
    ) -> pb.DrainWorkersResponse:
        """Drain every active worker that matches."""
        drained = await bulk_drain.drain_matching(
            self._engine,
            namespace=scope(request.namespace_id),
            labels=dict(request.labels),
            version=request.version,
            deadline_ms=worker_view.given_ms(request, "deadline", DRAIN_DEADLINE_MS),
            actor=actor(),
        )
        return pb.DrainWorkersResponse(worker_ids=drained)

    async def EvictWorker(
        self, request: pb.EvictWorkerRequest, context: Context
    ) -> pb.EvictWorkerResponse:
        """Take a worker offline at once."""
        namespace = scope(request.namespace_id)
        command = EvictWorker(namespace=namespace, worker_id=request.worker_id, actor=actor())
        await self._engine.submit(command)
        return pb.EvictWorkerResponse(worker=await self._worker(namespace, request.worker_id))

    async def CheckStop(
        self, request: pb.CheckStopRequest, context: Context
    ) -> pb.CheckStopResponse:
        """Show whether workers may be stopped without interrupting anything."""
        namespace = scope(request.namespace_id)
        if request.worker_id:
            found = await stop_check.check_worker(
                self._engine, namespace=namespace, worker_id=request.worker_id
            )
            return stop_check_view.checked(found)
        self._allowance.lists.take(namespace)
        found = await stop_check.check_matching(
            self._engine, namespace=namespace, labels=dict(request.labels), version=request.version
        )
        return stop_check_view.checked(found)

    async def _worker(self, namespace: str, worker_id: str) -> worker_pb2.Worker:
        view = await query.get_worker(
            self._engine.store, namespace=namespace, worker_id=worker_id, deaf=self._engine.deaf
        )
        return worker_view.shown(view)

    async def ListQueues(
        self, request: pb.ListQueuesRequest, context: Context
    ) -> pb.ListQueuesResponse:
        """List the queues that have settings or live tasks."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await queue_read.list_queues(
            self._engine, namespace=namespace, page=requested_page(self._engine, request)
        )
        return pb.ListQueuesResponse(
            queues=[worker_view.queue(each) for each in page.items],
            next_page_token=page.next_page_token,
        )

    async def GetQueue(self, request: pb.GetQueueRequest, context: Context) -> pb.GetQueueResponse:
        """Show a queue."""
        namespace = scope(request.namespace_id)
        return pb.GetQueueResponse(queue=await self._queue(namespace, request.name))

    async def _queue(self, namespace: str, name: str) -> pb.Queue:
        report = await queue_read.get_queue(self._engine, namespace=namespace, name=name)
        return worker_view.queue(report)

    async def SetQueue(self, request: pb.SetQueueRequest, context: Context) -> pb.SetQueueResponse:
        """Set pause and limit of a queue."""
        namespace = scope(request.namespace_id)
        concurrency_max = request.concurrency_max if request.HasField("concurrency_max") else None
        command = c.SetQueue(
            namespace=namespace,
            name=request.name,
            is_paused=request.is_paused if request.HasField("is_paused") else None,
            concurrency_max=concurrency_max,
            actor=actor(),
        )
        queue = await self._engine.submit(command)
        return pb.SetQueueResponse(queue=await self._queue(namespace, queue.name))

    # -- Namespaces

    async def CreateNamespace(
        self, request: pb.CreateNamespaceRequest, context: Context
    ) -> pb.CreateNamespaceResponse:
        """Create a namespace."""
        name = scope(request.name)
        await self._engine.submit(c.CreateNamespace(name=name, actor=actor()))
        return pb.CreateNamespaceResponse(name=name)

    async def ListNamespaces(
        self, request: pb.ListNamespacesRequest, context: Context
    ) -> pb.ListNamespacesResponse:
        """List the namespaces that the caller may see."""
        self._allowance.lists.take(actor())
        page = await access_read.list_namespaces(
            self._engine.store,
            page=requested_page(self._engine, request),
            namespaces=PRINCIPAL.get().namespaces,
        )
        return pb.ListNamespacesResponse(
            names=[each.name for each in page.items],
            next_page_token=page.next_page_token,
            namespaces=[access_view.namespace(each) for each in page.items],
        )

    async def GetNamespace(
        self, request: pb.GetNamespaceRequest, context: Context
    ) -> pb.GetNamespaceResponse:
        """Show a namespace."""
        name = scope(request.name)
        check_namespace(PRINCIPAL.get(), name)
        found = await access_read.get_namespace(self._engine.store, name=name)
        return pb.GetNamespaceResponse(namespace=access_view.namespace(found))

    async def SetNamespace(
        self, request: pb.SetNamespaceRequest, context: Context
    ) -> pb.SetNamespaceResponse:
        """Disable or enable a namespace."""
        command = c.SetNamespace(
            name=scope(request.name), is_disabled=request.is_disabled, actor=actor()
        )
        changed = await self._engine.submit(command)
        return pb.SetNamespaceResponse(namespace=access_view.namespace(changed))

    # -- API keys

    async def CreateApiKey(
        self, request: pb.CreateApiKeyRequest, context: Context
    ) -> pb.CreateApiKeyResponse:
        """Create a key; this answer is the only one with its secret."""
        command = key_grant.creation(
            PRINCIPAL.get(),
            name=request.name,
            role=access_view.role(request.role),
            namespaces=request.namespaces,
            expires_in_ms=request.expires_in_ms,
        )
        made = await self._engine.submit(command)
        return pb.CreateApiKeyResponse(key=access_view.key(made.key), secret=made.text.reveal())

    async def ListApiKeys(
        self, request: pb.ListApiKeysRequest, context: Context
    ) -> pb.ListApiKeysResponse:
        """List the keys that the caller may administer."""
        self._allowance.lists.take(actor())
        page = await access_read.list_keys(
            self._engine.store,
            page=requested_page(self._engine, request),
            namespaces=PRINCIPAL.get().namespaces,
        )
        return pb.ListApiKeysResponse(
            keys=[access_view.key(each) for each in page.items],
            next_page_token=page.next_page_token,
        )

    async def GetApiKey(
        self, request: pb.GetApiKeyRequest, context: Context
    ) -> pb.GetApiKeyResponse:
        """Show a key without its secret."""
        found = await access_read.get_key(
            self._engine.store, key_id=request.key_id, namespaces=PRINCIPAL.get().namespaces
        )
        return pb.GetApiKeyResponse(key=access_view.key(found))

    async def RevokeApiKey(
        self, request: pb.RevokeApiKeyRequest, context: Context
    ) -> pb.RevokeApiKeyResponse:
        """Revoke a key for good."""
        command = c.RevokeKey(key_id=request.key_id, actor=actor())
        revoked = await self._engine.submit(command)
        return pb.RevokeApiKeyResponse(key=access_view.key(revoked))

    async def RotateTokenKey(
        self, request: pb.RotateTokenKeyRequest, context: Context
    ) -> pb.RotateTokenKeyResponse:
        """Make a new key for task tokens."""
        made = await self._engine.submit(c.RotateTokenKey(actor=actor()))
        return pb.RotateTokenKeyResponse(number=made.number, signs_from_ms=made.signs_from_ms)

    # -- The audit log

    async def ListAuditRecords(
        self, request: pb.ListAuditRecordsRequest, context: Context
    ) -> pb.ListAuditRecordsResponse:
        """List audit records, newest first."""
        self._allowance.lists.take(actor())
        page = await access_read.list_audit(
            self._engine.store,
            page=requested_page(self._engine, request),
            where=AuditFilter(
                namespace=scope(request.namespace_id) if request.namespace_id else "",
                action=request.action,
                actor=request.actor,
            ),
            namespaces=PRINCIPAL.get().namespaces,
        )
        return pb.ListAuditRecordsResponse(
            records=[access_view.audit_record(each) for each in page.items],
            next_page_token=page.next_page_token,
        )

    async def Diagnose(self, request: pb.DiagnoseRequest, context: Context) -> pb.DiagnoseResponse:
        """Report what is wrong, and what to do about it."""
        self._allowance.lists.take(actor())
        question = Question(
            version=tenure.__version__,
            namespace=scope(request.namespace_id) if request.namespace_id else "",
            namespaces=PRINCIPAL.get().namespaces,
            client_now_ms=request.client_now_ms,
        )
        return diagnosis_view.diagnosis(await diagnose(self._engine, question))


SPEC: Final = ServiceSpec(
    descriptor=pb.DESCRIPTOR.services_by_name["AdminService"],
    make=AdminService,
    add_to_server=admin_service_pb2_grpc.add_AdminServiceServicer_to_server,
    rules={
        MethodRule(Action.READ): "ListQueues GetQueue CheckStop ListEndpoints GetEndpoint",
        MethodRule(Action.READ, Scope.NONE): "ListNamespaces GetNamespace",
        MethodRule(Action.OPERATE): "DrainWorker DrainWorkers EvictWorker SetQueue CreateEndpoint "
        "SetEndpoint PauseEndpoint TestEndpoint RotateEndpointSecret DeleteEndpoint",
        MethodRule(
            Action.ADMIN, Scope.NONE, is_whole=True
        ): "CreateNamespace SetNamespace RotateTokenKey",
        MethodRule(Action.ADMIN, Scope.NONE): "CreateApiKey ListApiKeys GetApiKey RevokeApiKey",
        MethodRule(Action.ADMIN, Scope.OPTIONAL): "ListAuditRecords Diagnose",
    },
)
