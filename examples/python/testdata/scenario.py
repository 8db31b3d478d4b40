"""The part of worker_test.go that runs in Python: one worker, one message, one scenario."""

import os
import sys
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from queuebox_worker import Reject, Worker  # noqa: E402


class AnswerLost(grpc.RpcError):
    """What gRPC raises where the connection breaks before the answer came."""

    def code(self):
        return grpc.StatusCode.UNAVAILABLE


class Lossy:
    """A stub whose first answer of each method is lost after the server gave it."""

    def __init__(self, stub):
        self._stub = stub
        self._lost = set()

    def _lose_first(self, name, answer):
        if name not in self._lost:
            self._lost.add(name)
            print("answer lost", name, flush=True)
            raise AnswerLost()
        return answer

    def BatchRenew(self, request, timeout):
        return self._lose_first("BatchRenew", self._stub.BatchRenew(request, timeout=timeout))

    def BatchSettle(self, request, timeout):
        return self._lose_first("BatchSettle", self._stub.BatchSettle(request, timeout=timeout))

    @property
    def Claim(self):
        outer = self

        class Method:
            def future(self, request, timeout):
                call = outer._stub.Claim.future(request, timeout=timeout)

                class Call:
                    def result(self):
                        return outer._lose_first("Claim", call.result())

                    def cancel(self):
                        return call.cancel()

                return Call()

        return Method()


def main(server, scenario):
    channel = grpc.insecure_channel(server)
    # Only the stopped worker is to lose its claim; the others get a lease that a busy machine
    # does not miss.
    lease = 1.0 if scenario == "stopped" else 4.0
    worker = Worker(channel, "python", "python-worker", lease=lease, wait=5.0)
    if scenario == "lossy":
        worker.stub = Lossy(worker.stub)

    def handle(claim):
        print("claimed, attempt", claim.message.attempt, flush=True)
        if scenario in ("slow", "lossy"):
            time.sleep(1.5 * lease)
        elif scenario == "stopped":
            sys.stdin.readline()
        elif scenario == "reject":
            raise Reject("no_use", "nobody can use this")
        elif scenario == "retry" and claim.message.attempt == 1:
            raise RuntimeError("not today")
        claim.check()

    def settled(claim, what, error):
        print(what, "attempt", claim.message.attempt, "" if error is None else error, flush=True)
        if what != "retry":
            worker.stop()

    worker.run(handle, settled)


main(*sys.argv[1:])
