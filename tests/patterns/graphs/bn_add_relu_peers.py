"""BnAddRelu over two devices of one node."""

from bn_add_relu import finish, normalised
from images import CHANNEL, new_graph


def build():
    g = new_graph("bn_add_relu_peers")
    size = 4 * CHANNEL[1]
    peers = [g.tensor([2, size, 1, 1], data_type="FLOAT", name=f"peer{i}") for i in range(2)]
    return finish(g, normalised(g, peer_stats=peers, peer_rank=0))
