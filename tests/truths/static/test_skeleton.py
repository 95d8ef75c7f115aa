from __future__ import annotations

from kernel_gamma.truths.static.forms import Skeleton
from kernel_gamma.truths.static.skeleton import skeleton_differences

SKELETON = Skeleton.model_validate(
    {"ports": {"gateway": 9120, "camera": 8554}, "services": {}, "nodes": [{"id": "a", "does": "x"}]}
)


def test_what_is_true_of_the_home_says_nothing() -> None:
    assert skeleton_differences(SKELETON, ports={"gateway": 9120}, nodes=["a"]) == []
    assert skeleton_differences(SKELETON, ports={}, nodes=["a"]) == []


def test_each_difference_is_a_sentence_with_both_sides() -> None:
    said = skeleton_differences(SKELETON, ports={"gateway": 9999, "page": 80}, nodes=["b"])
    assert said == [
        "it says port 9120 for gateway, the settings say 9999",
        "it does not name the port of page, 80",
        "it names the node a, which is not in the topology",
        "it does not name the node b of the topology",
    ]
