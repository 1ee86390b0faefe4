"""The line between the process of a part and its server."""

import threading

from weft.frontends.federated.components.sockets import PartGate, SocketChannel
from weft.frontends.federated.schema import Party

HOST = Party("host", "2")


def test_a_process_ends_after_its_server_has_taken_its_last_value(tmp_path):
    order, take = [], threading.Event()

    def taken(name, to, data):
        take.wait()
        order.append(name)

    gate = PartGate(tmp_path / "gate", "token", on_prepared=lambda: gate.go(), on_send=taken)
    channel = SocketChannel(str(tmp_path / "gate"), "token")
    channel.prepared()

    def process():
        channel.send("share", 1, HOST)
        channel.send("sum", 2, HOST)
        channel.finish()
        order.append("finished")
        channel.close()

    running = threading.Thread(target=process)
    running.start()
    running.join(0.1)
    assert order == []
    take.set()
    running.join()
    gate.close()
    assert order == ["share", "sum", "finished"]
