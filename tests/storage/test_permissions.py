"""A directory that may not be read: the error says so, and is gmdb's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gmdb

ASK = """
import os, sys
from pathlib import Path
from gmdb.errors import StorageError
from gmdb.storage.directory import require_database
if os.geteuid() == 0:
    os.seteuid(65534)  # nobody: root may read everything
try:
    require_database(Path(sys.argv[1]))
except StorageError as error:
    print(error)
"""


def test_a_directory_that_may_not_be_read(path: Path, tmp_path: Path) -> None:
    gmdb.connect(path).close()
    tmp_path.chmod(0o000)
    try:
        asked = subprocess.run([sys.executable, "-c", ASK, str(path)], capture_output=True, text=True, check=True)
    finally:
        tmp_path.chmod(0o700)
    assert str(path) in asked.stdout
    assert "Permission denied" in asked.stdout
    assert os.path.isdir(path)
