"""Views of a database's storage, for ``spark.read.format("gmdb").option("view", …)``: the inspector, in parallel."""

from __future__ import annotations

from gmdb.spark.views.base import View
from gmdb.spark.views.pages import PagesView, RedoView, SegmentsView
from gmdb.spark.views.undo_and_locks import LocksView, UndoView

STORAGE_VIEWS: dict[str, View] = {
    view.name: view for view in (PagesView(), SegmentsView(), UndoView(), LocksView(), RedoView())
}
