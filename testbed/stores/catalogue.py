"""Vector stores by name, imported only when asked for."""

from __future__ import annotations

from testbed.core.errors import Unavailable, unknown
from testbed.core.ports import Index

STORES = ("faiss", "chroma", "exact")


def build(store: str, namespace: str = "", chroma_url: str = "") -> Index:
    """An empty index.

    Parameters
    ----------
    store : ``faiss`` (exact inner product), ``exact`` (numpy, the reference), ``chroma``
    namespace : prefix for collections on a shared Chroma server
    chroma_url : a Chroma server; "" runs Chroma in process
    """
    try:
        if store == "exact":
            from testbed.stores.exact import ExactIndex

            return ExactIndex()
        if store == "faiss":
            from testbed.stores.faiss import FaissIndex

            return FaissIndex()
        if store == "chroma":
            from testbed.stores.chroma import ChromaIndex

            return ChromaIndex.at(chroma_url, namespace)
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"STORE={store} needs the package {error.name}; testbed doctor says which extra brings it"
        ) from error
    raise unknown("STORE", store, STORES)
