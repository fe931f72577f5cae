"""Verifying in pieces: whatever their size, and whoever does them, the findings are those of the whole."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmdb.format.address import page_id_of
from gmdb.format.btree import BTREE_NODE, NODE_AT
from gmdb.verify import Finding, verify
from gmdb.verify.index_structure import Hash, Tree
from gmdb.verify.pieces import Digest, Round, Workplace
from gmdb.verify.verifier import checks, closed_files
from tests.verify.indexed import KEY_AT, TreeDamage, build_hashed, build_indexed
from tests.verify.test_fuzz import Target, mutated, sealed

PAGE = 8192
MUTATIONS = 60


def in_pieces(path: Path, piece_size: int, seed: int = 1) -> list[Finding]:
    """Findings of pieces that are pickled, done in some other order, each on files that are opened for it."""
    chance = random.Random(seed)
    with closed_files(path) as files:
        rounds, answer = checks(files, piece_size), None
        while True:
            try:
                work: Round = next(rounds) if answer is None else rounds.send(answer)
            except StopIteration as end:
                return end.value.findings
            order = chance.sample(range(len(work.pieces)), len(work.pieces))
            done = {n: _elsewhere(path, work, n) for n in order}
            answer = [done[n] for n in range(len(work.pieces))]


def _elsewhere(path: Path, work: Round, number: int) -> Any:
    sent = pickle.loads(pickle.dumps((work.pieces[number], work.tables, work.verdicts)))
    with closed_files(path) as files:
        return pickle.loads(pickle.dumps(sent[0].check(Workplace(files, *sent[1:]))))


@pytest.fixture(scope="module", params=[build_indexed, build_hashed])
def indexed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return request.param(tmp_path_factory.mktemp("pieces") / "sound.gmdb")


@pytest.fixture
def target(indexed: Path) -> Iterator[Target]:
    made = Target(indexed)
    yield made
    for place in made.places:
        made.write(*place)
    made.close()


def test_a_sound_database_is_sound_in_its_smallest_pieces(indexed: Path, sound_database: Path) -> None:
    assert in_pieces(indexed, 8 * PAGE) == []
    assert in_pieces(sound_database, 16 * PAGE) == []


def test_a_sound_index_is_not_gone_through_as_a_whole(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("its pieces were right")

    monkeypatch.setattr(Tree, "check", refuse)
    monkeypatch.setattr(Hash, "check", refuse)
    assert verify(indexed).clean


def test_pieces_find_what_the_whole_finds(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(11)
    told = 0
    for step in range(MUTATIONS):
        number, offset, page = chance.choice([place for place in target.places if place[0] == 4])
        changed = mutated(page, chance)
        target.write(number, offset, sealed(changed) if step % 6 else changed)
        found = verify(target.path).findings
        with monkeypatch.context() as patch:
            patch.setattr(Tree, "pieces", lambda *_: [])
            patch.setattr(Hash, "pieces", lambda *_: [])
            assert verify(target.path).findings == found, page_id_of(number, offset)
        if step % 10 == 0:
            assert in_pieces(target.path, 8 * PAGE, step) == found, page_id_of(number, offset)
        told += bool(found)
        target.write(number, offset, page)
    assert told > MUTATIONS // 2


def test_a_key_that_is_there_twice_is_found_where_two_pieces_meet(tmp_path: Path) -> None:
    tree = TreeDamage(build_indexed(tmp_path / "copy.gmdb"))
    first, second = tree.leaves("t_k")[1:3]
    key = tree.page(first)[tree.offset(first, -1) + KEY_AT :][:4]
    tree.write(second, tree.offset(second, 0) + KEY_AT, key)
    found = in_pieces(tree.path, PAGE)
    assert any("the index is unique, but key" in finding.message for finding in found)
    assert found == verify(tree.path).findings


def test_a_link_is_held_against_the_piece_before(tmp_path: Path) -> None:
    tree = TreeDamage(build_indexed(tmp_path / "copy.gmdb"))
    leaves = tree.leaves("t_k")
    tree.set(leaves[2], BTREE_NODE, NODE_AT, "prev", leaves[0])
    [finding] = in_pieces(tree.path, PAGE)
    assert finding.message.startswith("index t_k: prev is page")


@pytest.mark.parametrize("change", [(0, 1), (0, -1), (1, 1 << 62)])
def test_digests_add_up_in_any_order_and_tell_words_apart(change: tuple[int, int]) -> None:
    words = np.random.default_rng(3).integers(0, 1 << 63, 1000)
    whole = Digest.of(words)
    shuffled = np.random.default_rng(4).permutation(words)
    assert Digest.of(shuffled[:300]) + Digest.of(shuffled[300:]) == whole
    place, by = change
    words[place] ^= by
    assert Digest.of(words) != whole
