"""test_admin_shutdown.py: a request on the admin port that is complete only after SIGTERM.

The workers of a host go at their own pace; the admin port must not look at one that has gone already.
"""
import shutil
import signal
import socket
import sys
import tempfile
import time

from cluster import Cluster

PATHS = ["/metrics", "/admin/v1/status", "/health/ready?for=read", "/admin/v1/heal", "/health/live"]


def late_request(c, host, path):
    with socket.create_connection(("127.0.0.1", host.admin_port), timeout=30) as s:
        s.sendall(f"GET {path} HT".encode())
        time.sleep(0.2)  # the bytes are there: the connection is not an idle one
        host.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 30
        while time.monotonic() < end and listens(host.s3_port):  # the other workers' turn to go
            time.sleep(0.02)
        time.sleep(0.5)
        s.sendall(b"TP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while more := s.recv(65536):
            answer += more
    return answer


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def main():
    directory = tempfile.mkdtemp(prefix="kofn-late-")
    try:
        with Cluster(directory, hosts=3, pool="2+1", server="workers: 3\nshutdown_grace: 20s") as c:
            c.start()
            host = c.hosts[0]
            for path in PATHS:
                answer = late_request(c, host, path)
                status = host.process.wait(60)
                assert status == 0, f"{path}: the host ended with {status}:\n{host.log_text()[-4000:]}"
                head = answer.split(b"\r\n")[0]
                assert head.startswith(b"HTTP/1.1 "), f"{path}: {answer[:200]!r}"
                assert b"Connection: close" in answer, answer[:500]
                if "ready" in path:
                    assert b" 503 " in head + b" ", "a host that is stopping is not ready"
                print(f"ok: {path} behind SIGTERM: {head.decode()}; the host ended with 0", flush=True)
                host.start()
                c.wait_ready()
            statuses = c.stop()
            assert statuses == [0, 0, 0], statuses
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
