"""A pull worker for QueueBox, written by hand on the generated stubs.

There is no Python client yet. This file shows in one place what a worker in any language
has to do, so that it can be copied:

* Claim with a claim_id, and repeat a Claim whose answer did not come with the same
  claim_id: the server then answers the same leases again (C14).
* Renew at a third of the lease, from the moment of the claim (K1). A renewal without an
  answer is unknown, not lost: go on until the lease is over on the own monotonic clock (K2).
* When the claim is lost, stop, and send nothing about it any more (K3).
* Stop renewing before the settlement is sent (K4), and settle once (K5). A settlement
  without an answer is repeated with the same token: the server does it once (S5).

It runs with grpcio 1.51 and protobuf 3.21 (python3-grpcio of Debian 12) and newer ones of
protobuf 4.
"""

import os
import sys
import threading
import time
import uuid

import grpc

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from queuebox.v1 import message_pb2, worker_service_pb2, worker_service_pb2_grpc  # noqa: E402

# Codes after which the same call is safe to repeat and likely to work.
UNSETTLED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Reject(Exception):
    """Raised by a handler: no later attempt can mend this message, dead-letter it."""

    def __init__(self, reason_code, text):
        super().__init__("%s: %s" % (reason_code, text))
        self.reason_code = reason_code


class ClaimLost(Exception):
    """The claim is no longer held: another worker has, or will have, the message."""


class Claim:
    """A claimed message. Its lease is renewed in a thread until it is settled or lost."""

    def __init__(self, worker, claimed):
        self.message = claimed.message
        self._worker = worker
        self._token = claimed.claim_token
        self._lease = worker.lease
        # What is left of the lease is counted on the own monotonic clock: the clocks of two
        # machines are never compared. It was true when the answer left the server, so a
        # margin goes off for its way here.
        left = claimed.lease_remaining_ms / 1000.0
        self._deadline = time.monotonic() + left - min(left / 10, 1.0)
        self.lost = threading.Event()
        self._done = threading.Event()
        self._renewer = threading.Thread(target=self._renew_until_done, daemon=True)
        self._renewer.start()

    def check(self):
        """Raises ClaimLost once the claim is lost. Long work calls it between its steps."""
        if self.lost.is_set() or time.monotonic() >= self._deadline:
            self.lost.set()
            raise ClaimLost("claim of %s" % self.message.message_id)

    def _renew_until_done(self):
        while not self._done.wait(self._lease / 3):
            left = self._deadline - time.monotonic()
            if left <= 0:
                self.lost.set()
                return
            sent = time.monotonic()
            try:
                answer = self._worker.stub.BatchRenew(
                    worker_service_pb2.BatchRenewRequest(
                        queue=self.message.queue,
                        items=[
                            worker_service_pb2.RenewItem(
                                message_id=self.message.message_id, claim_token=self._token
                            )
                        ],
                    ),
                    timeout=min(left, self._lease / 3),
                )
            except grpc.RpcError:
                continue  # Unknown: the next turn asks again, until the deadline.
            result = answer.results[0]
            if result.HasField("error"):
                if result.error.reason in (
                    message_pb2.ERROR_REASON_CLAIM_LOST,
                    message_pb2.ERROR_REASON_CLAIM_SETTLED,
                    message_pb2.ERROR_REASON_MESSAGE_NOT_FOUND,
                ):
                    self.lost.set()
                    return
                continue
            # Count from the sending: the server cannot have granted the lease before that.
            self._deadline = sent + self._lease

    def settle(self, **action):
        """Sends the one settlement: complete=, retry=, dead_letter= or release=.

        BatchSettle with one item is used rather than the unary call since its answer holds
        the reason of a refusal as a plain enum. Returns the result; raises ClaimLost where
        the server refused it."""
        self._done.set()
        self._renewer.join()
        (request,) = action.values()
        request.queue = self.message.queue
        request.message_id = self.message.message_id
        request.claim_token = self._token
        item = worker_service_pb2.SettleItem(**action)
        while True:
            self.check()
            try:
                answer = self._worker.stub.BatchSettle(
                    worker_service_pb2.BatchSettleRequest(items=[item]), timeout=5
                )
            except grpc.RpcError as error:
                if error.code() not in UNSETTLED:
                    raise
                time.sleep(0.2)  # Not answered: the repeat is safe with the same token.
                continue
            result = answer.results[0]
            if not result.HasField("error"):
                return result
            reason = message_pb2.ErrorReason.Name(result.error.reason)
            if result.error.code == grpc.StatusCode.UNAVAILABLE.value[0]:
                time.sleep(0.2)
                continue
            raise ClaimLost("%s %s" % (reason, dict(result.error.metadata)))


class Worker:
    """Claims one message at a time and runs a handler on it."""

    def __init__(self, channel, queue, worker_id, lease=10.0, wait=5.0):
        self.stub = worker_service_pb2_grpc.WorkerServiceStub(channel)
        self.queue = queue
        self.worker_id = worker_id
        self.lease = lease
        self.wait = wait
        self._stopped = threading.Event()
        self._waiting = None

    def stop(self):
        """Ends run() after the message at hand. Safe to call from a signal handler."""
        self._stopped.set()
        waiting = self._waiting
        if waiting is not None:
            # A cancelled Claim keeps nothing: what was claimed for it goes back (C15).
            waiting.cancel()

    def run(self, handler, settled):
        """Runs handler(claim) for every message until stop().

        A handler that returns completes the message; Reject dead-letters it; any other
        exception retries it after the backoff of the queue. settled(claim, what, error) is
        told what the server accepted."""
        while not self._stopped.is_set():
            for claim in self._claim():
                self._handle(claim, handler, settled)

    def _claim(self):
        request = worker_service_pb2.ClaimRequest(
            queue=self.queue,
            worker_id=self.worker_id,
            claim_id=str(uuid.uuid4()),
            max_messages=1,
            lease_ms=int(self.lease * 1000),
            wait_ms=int(self.wait * 1000),
        )
        while not self._stopped.is_set():
            self._waiting = self.stub.Claim.future(request, timeout=self.wait + 5)
            if self._stopped.is_set():  # stop() may have come before there was a call to cancel.
                self._waiting.cancel()
            try:
                answer = self._waiting.result()
            except grpc.FutureCancelledError:
                return []
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.CANCELLED:
                    return []
                if error.code() not in UNSETTLED:
                    raise
                self._stopped.wait(0.2)
                continue  # The same claim_id: leases that were made are answered again.
            finally:
                self._waiting = None
            return [Claim(self, claimed) for claimed in answer.messages]
        return []

    def _handle(self, claim, handler, settled):
        try:
            try:
                handler(claim)
            except ClaimLost:
                raise
            except Reject as error:
                claim.settle(
                    dead_letter=worker_service_pb2.DeadLetterRequest(
                        reason_code=error.reason_code, error=str(error)
                    )
                )
                settled(claim, "dead-letter", error)
            except Exception as error:  # noqa: BLE001: whatever went wrong, another attempt may mend it
                claim.settle(retry=worker_service_pb2.RetryRequest(error=str(error)))
                settled(claim, "retry", error)
            else:
                claim.settle(complete=worker_service_pb2.CompleteRequest())
                settled(claim, "completed", None)
        except ClaimLost as error:
            settled(claim, "lost", error)
