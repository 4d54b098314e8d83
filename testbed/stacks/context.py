"""Whose request this is, as the service's own plumbing believes it."""

from __future__ import annotations

from typing import Protocol

from testbed.core.types import Query


class RequestContext(Protocol):
    """Resolves the tenant under which a request's cache keys are built."""

    def tenant_of(self, query: Query) -> str: ...


class AuthenticatedContext:
    """The tenant that the front door authenticated: the right one by construction."""

    def tenant_of(self, query: Query) -> str:
        return query.tenant
