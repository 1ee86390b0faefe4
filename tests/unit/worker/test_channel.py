"""Messages between the backend and its worker processes, over real socket pairs."""

import os
import pickle
import socket
import threading
from pathlib import Path

import pytest

from weft.worker.channel import BY_FILE, Channel, FrameDecoder, FrameEncoder, dumps

LARGE = b"x" * BY_FILE


@pytest.fixture
def pair(tmp_path):
    """Two channels that are connected; large messages go by way of files in `tmp_path`."""
    left, right = socket.socketpair()
    with left, right:
        yield Channel(left, str(tmp_path), "a-"), Channel(right, str(tmp_path), "b-")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("message", [None, 0, "text", b"", (1, [2, {"three": 3.0}]), b"y" * 70_000])
def test_a_message_arrives_as_it_was_sent(pair, message):
    here, there = pair
    here.send(("message", message))
    assert there.receive() == ("message", message)


def test_messages_arrive_in_the_order_of_sending(pair):
    here, there = pair
    for number in range(100):
        here.send(number)
    assert [there.receive() for _ in range(100)] == list(range(100))


def test_messages_arrive_whatever_the_pieces_in_which_their_bytes_come():
    frames = FrameEncoder("", "")
    sent = [b"", b"x" * 10, ("a", 1), LARGE[: BY_FILE // 4], None, 7]
    data = b"".join(frames.frame(one) for one in sent)
    for size in (1, 3, 5, 1000, len(data)):
        left, right = socket.socketpair()
        with left, right:
            there = Channel(right)

            def pieces(left=left, size=size):
                small = min(len(data), 64 * size)  # the rest in large pieces: there are too many bytes for small ones
                for lo in [*range(0, small, size), *range(small, len(data), 50_000 + size)]:
                    left.sendall(data[lo : lo + (size if lo < small else 50_000 + size)])
                left.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=pieces)
            sender.start()
            assert [there.receive() for _ in sent] == sent
            assert there.receive() is None
            sender.join()


def test_a_message_that_was_received_ahead_is_ready(pair):
    here, there = pair
    assert not there.ready()
    here.send(1)
    here.send(2)
    assert there.ready()
    assert there.receive() == 1
    assert there.ready()
    assert there.receive() == 2
    assert not there.ready()


def test_a_large_message_goes_by_a_file_that_the_reader_removes(pair, tmp_path):
    here, there = pair
    here.send(LARGE)
    assert len(files(tmp_path)) == 1
    assert there.receive() == LARGE
    assert files(tmp_path) == []


def test_a_large_message_without_a_folder_goes_through_the_socket():
    left, right = socket.socketpair()
    with left, right:
        here, there = Channel(left), Channel(right)
        sender = threading.Thread(target=here.send, args=(LARGE,))
        sender.start()
        assert there.receive() == LARGE
        sender.join()


def test_a_large_message_goes_through_the_socket_where_its_file_cannot_be_written(tmp_path):
    frames = FrameEncoder(str(tmp_path / "missing"), "a-")
    assert list(FrameDecoder().feed(frames.frame(LARGE))) == [LARGE]


def test_ready_tells_whether_a_message_waits(pair):
    here, there = pair
    assert not there.ready()
    here.send(1)
    assert there.ready()
    there.receive()
    assert not there.ready()


def test_a_closed_end_is_received_as_none():
    left, right = socket.socketpair()
    there = Channel(right)
    left.close()
    assert there.receive() is None
    assert there.receive_with_fds(1) == (None, [])
    right.close()


def test_a_message_that_was_cut_off_is_received_as_none():
    left, right = socket.socketpair()
    left.sendall(FrameEncoder("", "").frame("half")[:-1])
    left.close()
    with right:
        assert Channel(right).receive() is None


def test_sending_to_a_closed_end_raises(pair):
    left, right = socket.socketpair()
    right.close()
    with left, pytest.raises(OSError, match=r"."):
        Channel(left).send("anybody?")


def test_descriptors_travel_with_a_message(pair):
    here, there = pair
    reading, writing = os.pipe()
    here.send("a pipe", (writing,))
    os.close(writing)
    message, (received,) = there.receive_with_fds(1)
    os.write(received, b"through")
    os.close(received)
    assert (message, os.read(reading, 100)) == ("a pipe", b"through")
    os.close(reading)


def test_threads_that_send_at_once_do_not_mix_their_messages(pair):
    here, there = pair
    senders = [threading.Thread(target=here.send, args=(bytes([n]) * 5_000,)) for n in range(20)]
    for sender in senders:
        sender.start()
    found = [there.receive() for _ in senders]
    for sender in senders:
        sender.join()
    assert sorted(found) == [bytes([n]) * 5_000 for n in range(20)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_an_inbox_cuts_messages_out_of_pieces_of_any_size(size):
    messages = ["one", 2, {"three": [4]}, b"5" * 100]
    data = b"".join(FrameEncoder("", "").frame(message) for message in messages)
    inbox = FrameDecoder()
    found = [message for at in range(0, len(data), size) for message in inbox.feed(data[at : at + size])]
    assert found == messages


def test_an_inbox_keeps_what_follows_a_message_that_cannot_be_loaded():
    frames = FrameEncoder("", "")
    broken = bytearray(frames.frame("broken"))
    broken[-3:] = b"???"
    inbox = FrameDecoder()
    with pytest.raises(pickle.UnpicklingError):
        list(inbox.feed(bytes(broken) + frames.frame("whole")))
    assert list(inbox.feed(b"")) == ["whole"]


def test_what_cannot_be_pickled_by_reference_is_pickled_by_value():
    offset = 2
    found = pickle.loads(dumps(lambda x: x + offset))
    assert found(40) == 42


def test_what_can_be_pickled_by_reference_is():
    assert pickle.loads(dumps(os.path.join)) is os.path.join
    assert b"cloudpickle" not in dumps(os.path.join)
