import pytest

from dnnc import target
from dnnc.errors import DnncError, Status


def test_names_lead_to_rows():
    assert target.of("sm_90a").arch_specific
    assert not target.of("sm_90").arch_specific
    assert [t.name for t in target.of_list("sm_80, sm_90a")] == ["sm_80", "sm_90a"]


@pytest.mark.parametrize(
    ("alias", "name"),
    [("H100", "sm_90a"), ("hopper", "sm_90a"), ("A100", "sm_80"), ("L40S", "sm_89"),
     ("Blackwell", "sm_100"), ("RTX 5090", "sm_120"), ("SM_90A", "sm_90a")],
)  # fmt: skip
def test_generations_and_parts_are_aliases(alias, name):
    assert target.of(alias).name == name


def test_portable_stands_for_two_targets():
    assert [t.name for t in target.of_list("portable")] == ["sm_80", "sm_90a"]
    assert target.of_list("portable")[0].is_forward_compatible


def test_unknown_and_repeated_targets_are_refused():
    with pytest.raises(DnncError, match="accepted: sm_80"):
        target.of("sm_75")
    with pytest.raises(DnncError) as caught:
        target.of_list("sm_80,sm_80")
    assert caught.value.status is Status.BAD_PARAM_DUPLICATED_ENTRIES


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((8, 0), "sm_80"),
        ((8, 7), "sm_86"),
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90a"),
        ((12, 1), "sm_120"),
    ],
)
def test_a_device_takes_the_latest_row_of_its_major_version(capability, name):
    assert target.of_capability(*capability).name == name


def test_a_device_of_another_major_version_is_refused():
    with pytest.raises(DnncError) as caught:
        target.of_capability(7, 5)
    assert caught.value.status is Status.NOT_SUPPORTED_ARCH_MISMATCH


@pytest.mark.parametrize("row", target.TARGETS, ids=str)
def test_rows_are_consistent(row):
    assert row.limits.smem_block_bytes < row.limits.smem_sm_bytes
    assert (
        row.name == f"sm_{row.capability[0]}{row.capability[1]}{'a' if row.arch_specific else ''}"
    )
    assert row.is_forward_compatible != row.arch_specific
