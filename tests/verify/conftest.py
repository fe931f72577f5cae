from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.verify.build import Damage, build_database


@pytest.fixture(scope="session")
def sound_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound database, for tests that only read it."""
    return build_database(tmp_path_factory.mktemp("verify") / "sound.gmdb")


@pytest.fixture
def damage(sound_database: Path, tmp_path: Path) -> Damage:
    """A copy of the sound database, to be damaged."""
    return Damage(Path(shutil.copytree(sound_database, tmp_path / "copy.gmdb")))
