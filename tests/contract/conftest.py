from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.core.errors import Unavailable
from testbed.run import services


@pytest.fixture(scope="session")
def redis_service() -> Iterator[services.RedisService]:
    """One private server for the whole session; each test takes namespaces of its own below it."""
    try:
        opened = services.connect(None)
        service = opened.__enter__()
    except Unavailable as error:
        pytest.skip(str(error))
    yield service
    opened.__exit__(None, None, None)
