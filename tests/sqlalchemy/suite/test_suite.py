"""SQLAlchemy's own tests for dialects."""

from sqlalchemy.testing.suite import *  # noqa: F403
from sqlalchemy.testing.suite import ComponentReflectionTestExtra as _ComponentReflectionTestExtra

from sqlalchemy import testing


class ComponentReflectionTestExtra(_ComponentReflectionTestExtra):
    """There are no schemas, whatever the requirements say."""

    @testing.fixture(params=[None])
    def use_schema_fixture(self, request):
        return request.param
