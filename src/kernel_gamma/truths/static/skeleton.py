"""What the mind is told of its own body, compared with how it really is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_gamma.truths.static.forms import Skeleton

__all__ = ["skeleton_differences"]


def skeleton_differences(skeleton: Skeleton, *, ports: Mapping[str, int], nodes: Sequence[str]) -> list[str]:
    """Sentences that say where kernel_skeleton.yaml is not true.

    `ports`: the real ones by name, as far as they are known; `nodes`: ids of the enabled nodes.
    """
    found = [
        f"it says port {skeleton.ports[name]} for {name}, the settings say {port}"
        for name, port in sorted(ports.items())
        if skeleton.ports.get(name, port) != port
    ]
    found += [
        f"it does not name the port of {name}, {ports[name]}"
        for name in sorted(ports)
        if name not in skeleton.ports
    ]
    told = [node.id for node in skeleton.nodes]
    found += [f"it names the node {node}, which is not in the topology" for node in told if node not in nodes]
    found += [f"it does not name the node {node} of the topology" for node in nodes if node not in told]
    return found
