"""A QueueBox worker over a Work stream, in the shortest form that is right.

See docs/work-stream.md for the frames. One thread sends what the queue of requests holds, the
main thread reads, and a pool runs the handlers. Leases are renewed here in the simplest way:
everything that runs, at a third of the lease, in one frame. A worker for production also stops
the work of a claim whose renewals get no answer until its lease is over: queuebox_worker.py
shows that, and what else a client owes its user stands in docs/clients.md.

It needs grpcio and protobuf (Debian: python3-grpcio python3-protobuf), and stops at Ctrl-C:

    python3 work_stream.py 127.0.0.1:7420 my-queue
"""

import concurrent.futures
import os
import queue
import signal
import sys
import threading

import grpc

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from queuebox.v1 import worker_service_pb2 as pb, worker_service_pb2_grpc  # noqa: E402

LEASE_MS = 30_000


class Stream:
    """One Work stream. work returns when the server asks to leave, or raises RpcError."""

    def __init__(self, channel, name, handler, slots=8, worker_id="python"):
        self._stub = worker_service_pb2_grpc.WorkerServiceStub(channel)
        self._handler, self._slots = handler, slots
        self._requests = queue.SimpleQueue()  # whose put a signal may interrupt and call again
        self._lock = threading.Lock()
        self._sequence = 0
        self._running = {}  # token -> message id
        self._unsettled = {}  # sequence -> settlement without an answer
        start = pb.WorkStart(queue=name, worker_id=worker_id, lease_ms=LEASE_MS)
        # As much credit as there are free handlers. The frame wants no answer: sequence 0.
        self._requests.put(pb.WorkRequest(start=start, credit=slots))

    def work(self):
        stopped = threading.Event()
        threading.Thread(target=self._renew, args=(stopped,), daemon=True).start()
        try:
            with concurrent.futures.ThreadPoolExecutor(self._slots) as pool:
                # iter(get, None) ends, and half-closes the stream, at a None.
                for frame in self._stub.Work(iter(self._requests.get, None)):
                    for claimed in frame.deliveries:
                        with self._lock:
                            self._running[claimed.claim_token] = claimed.message.message_id
                        pool.submit(self._handle, claimed)
                    for result in frame.settle_results:
                        if result.HasField("error"):
                            print("not settled:", result.error.message, flush=True)
                    with self._lock:
                        self._unsettled.pop(frame.sequence, None)
                    for r in frame.revocations:
                        print("stop working on", r.message_id, flush=True)
                    if frame.draining:
                        # Nothing more is delivered. What runs is settled by the caller of
                        # work, over the next stream or by unary calls.
                        self.stop()
        finally:
            stopped.set()

    def stop(self):
        """Half-closes: no more deliveries; what was sent before is answered."""
        self._requests.put(None)

    def left(self):
        """Settlements without an answer: send them again (S5)."""
        with self._lock:
            return list(self._unsettled.values())

    def _send(self, **frame):
        with self._lock:
            self._sequence += 1
            for item in frame.get("settlements", ()):
                self._unsettled[self._sequence] = item
            self._requests.put(pb.WorkRequest(sequence=self._sequence, **frame))

    def _handle(self, claimed):
        # The queue is that of the stream, so a settlement need not name it.
        who = dict(message_id=claimed.message.message_id, claim_token=claimed.claim_token)
        try:
            item = pb.SettleItem(complete=pb.CompleteRequest(result=self._handler(claimed.message) or b"", **who))
        except Exception as e:  # the work failed: another attempt, after the backoff of the queue
            item = pb.SettleItem(retry=pb.RetryRequest(error=repr(e), **who))
        with self._lock:
            self._running.pop(claimed.claim_token)
        # A settlement gives no credit back, so the free handler asks for the next message.
        self._send(settlements=[item], credit=1)

    def _renew(self, stopped):
        while not stopped.wait(LEASE_MS / 3000):
            with self._lock:
                items = [pb.RenewItem(message_id=i, claim_token=t) for t, i in self._running.items()]
            if items:
                self._send(renewals=items)


def main():
    target, name = sys.argv[1:3]
    most = int(sys.argv[3]) if len(sys.argv) > 3 else None
    done = []

    def handler(message):
        print("work on", message.payload.decode(), "attempt", message.attempt, flush=True)
        done.append(message.message_id)
        if len(done) == most:
            threading.Timer(0.5, stream.stop).start()

    stream = Stream(grpc.insecure_channel(target), name, handler)
    signal.signal(signal.SIGINT, lambda *_: stream.stop())  # Ctrl-C: what was sent is answered
    stream.work()
    print("settlements without an answer:", len(stream.left()), flush=True)


if __name__ == "__main__":
    main()
