"""Views of a database's storage, for ``spark.read.format("gmdb").option("view", …)``: the inspector, in parallel."""

from __future__ import annotations

from gmdb.spark.views.base import View
from gmdb.spark.views.locks import LocksView
from gmdb.spark.views.pages import PagesView
from gmdb.spark.views.redo import RedoView
from gmdb.spark.views.segments import SegmentsView
from gmdb.spark.views.undo import UndoView

STORAGE_VIEWS: dict[str, View] = {
    view.name: view for view in (PagesView(), SegmentsView(), UndoView(), LocksView(), RedoView())
}
