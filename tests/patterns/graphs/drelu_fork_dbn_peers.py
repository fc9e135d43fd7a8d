"""DReluForkDBn over two devices of one node."""

from drelu_fork_dbn import finish
from images import CHANNEL, new_graph


def build():
    g = new_graph("drelu_fork_dbn_peers")
    size = 4 * CHANNEL[1]
    peers = [g.tensor([2, size, 1, 1], data_type="FLOAT", name=f"peer{i}") for i in range(2)]
    return finish(g, peer_stats=peers, peer_rank=0)
