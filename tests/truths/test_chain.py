from __future__ import annotations

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from kernel_gamma.truths.chain import GENESIS, Broken, Link, first_broken, link_of

RECORDS = [
    ("incident.a", 1, "incident", "a loop at the start", 1_780_000_000_000_000, '{"host":"alpha"}'),
    ("incident.a", 2, "incident", "a loop at the start", 1_780_000_000_000_001, '{"host":"beta"}'),
    ("error.磁盘", 1, "error", "磁盘满了", -5, '"\\ud800"'),
    ("decision.tea", 1, "decision", "", 0, "null"),
]


def chain_of(records: list[tuple[str, int, str, str, int, str]]) -> list[Link]:
    links, prev = [], GENESIS
    for number, record in enumerate(records, 1):
        prev = link_of(prev, *record)
        links.append(Link(number, prev, *record))
    return links


def test_a_link_can_be_recomputed_from_the_description_alone() -> None:
    digest = hashlib.sha256(bytes(32))
    for text in ("incident.a", "1", "incident", "磁盘满了", "-1700000000000000", '{"温度":21.5}'):
        raw = text.encode()
        digest.update(struct.pack(">Q", len(raw)) + raw)
    link = link_of(GENESIS, "incident.a", 1, "incident", "磁盘满了", -1_700_000_000_000_000, '{"温度":21.5}')
    assert link == digest.digest()


def test_links_stay_what_they_are() -> None:
    # written in memory.db of every mind: another encoding would break all of them
    assert chain_of(RECORDS)[-1].sha256.hex() == (
        "2b84bb17ac6c1cc31d5f504d5e0f751f6e1678c5812c642fd4be862ffb1e4941"
    )


def test_a_whole_chain_holds() -> None:
    assert first_broken([]) == 0
    assert first_broken(iter(chain_of(RECORDS))) == 4


def test_every_altered_field_is_found_at_its_link() -> None:
    changes = {"key": "x", "version": 9, "category": "x", "description": "x", "at_us": 9, "value_json": "x"}
    for name, value in changes.items():
        links = chain_of(RECORDS)
        links[1] = links[1]._replace(**{name: value})
        broken = first_broken(links)
        assert isinstance(broken, Broken)
        assert (broken.link, broken.key, broken.checked) == (2, links[1].key, 1), name
        assert "not what was sealed" in broken.reason


def test_a_record_resealed_by_a_forger_breaks_the_link_after_it() -> None:
    links = chain_of(RECORDS)
    forged = ("incident.a", 2, "incident", "nothing happened", 0, "{}")
    links[1] = Link(2, link_of(links[0].sha256, *forged), *forged)
    broken = first_broken(links)
    assert isinstance(broken, Broken)
    assert (broken.link, broken.key) == (3, "error.磁盘")


def test_a_missing_link_and_a_missing_record_are_told_apart() -> None:
    links = chain_of(RECORDS)
    assert first_broken([links[0], *links[2:]]) == Broken(2, None, "link 2 is missing", 1)
    assert first_broken(links[1:]) == Broken(1, None, "link 1 is missing", 0)
    gone = [links[0], Link(2, links[1].sha256), *links[2:]]
    assert first_broken(gone) == Broken(2, None, "its record is missing", 1)


def test_links_in_another_order_do_not_hold() -> None:
    links = chain_of(RECORDS)
    swapped = [links[0], links[2]._replace(link=2), links[1]._replace(link=3), links[3]]
    assert isinstance(first_broken(swapped), Broken)


FIELD = st.text(max_size=6)


@given(st.tuples(FIELD, FIELD, FIELD, FIELD), st.tuples(FIELD, FIELD, FIELD, FIELD))
def test_different_records_never_share_an_encoding(a: tuple[str, ...], b: tuple[str, ...]) -> None:
    first = link_of(GENESIS, a[0], 1, a[1], a[2], 0, a[3])
    second = link_of(GENESIS, b[0], 1, b[1], b[2], 0, b[3])
    assert (first == second) == (a == b)


@given(FIELD, FIELD)
def test_a_letter_that_moves_to_the_next_field_changes_the_link(left: str, right: str) -> None:
    assert link_of(GENESIS, left + "x", 1, right, "", 0, "") != link_of(
        GENESIS, left, 1, "x" + right, "", 0, ""
    )
