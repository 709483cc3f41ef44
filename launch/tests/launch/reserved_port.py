"""Rank 0 opens its port once rank 1 has found that it can neither be bound nor connected to."""

import errno, os, socket, time
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
note = os.path.join(os.environ["DIR"], "refused")
deadline = time.monotonic() + 20
if os.environ["RANK"] == "0":
    while not os.path.exists(note):
        assert time.monotonic() < deadline, "rank 1 found no reservation"
        time.sleep(0.01)
    server = socket.create_server(address)
    server.settimeout(20)
    print("heard", server.accept()[0].recv(1).decode())
    os.remove(note)
else:
    # Neither somebody else's server without SO_REUSEADDR nor a client: nobody listens yet.
    assert socket.socket().connect_ex(address) == errno.ECONNREFUSED
    try:
        socket.socket().bind(address)
    except OSError as error:
        assert error.errno == errno.EADDRINUSE, error
        open(note, "x").close()
    while True:
        assert time.monotonic() < deadline, "rank 0 never listened"
        try:
            socket.create_connection(address, timeout=20).sendall(b"1")
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
