#!/usr/bin/env python3
"""Processes webhook deliveries, as the Go program in worker/ does.

    python3 examples/webhooks/worker.py --server 127.0.0.1:7420 --downstream http://...
"""

import argparse
import collections
import json
import os
import signal
import sys
import urllib.error
import urllib.request

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

from queuebox_worker import Reject, Worker  # noqa: E402


def parse(message):
    """Returns (event, repository) of a delivery, or raises Reject with a code."""
    if message.content_type.split(";")[0].strip() != "application/json":
        raise Reject("unsupported_content_type", "content type %r" % message.content_type)
    try:
        payload = json.loads(message.payload)
    except ValueError as error:
        raise Reject("malformed_json", str(error)) from error
    if not isinstance(payload, dict):
        raise Reject("wrong_type", "the body is no object")
    repository = payload.get("repository")
    if repository is None:
        raise Reject("missing_repository", "no repository.full_name")
    if not isinstance(repository, dict) or not isinstance(repository.get("full_name", ""), str):
        raise Reject("wrong_type", 'field "repository" is no object')
    if not repository.get("full_name"):
        raise Reject("missing_repository", "no repository.full_name")
    return message.attributes["x-github-event"], repository["full_name"]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--server", default="127.0.0.1:7420")
    options.add_argument("--queue", default="webhooks")
    options.add_argument("--worker-id", default="python-worker")
    options.add_argument("--downstream", required=True)
    options.add_argument("--lease", type=float, default=10.0, help="seconds")
    options.add_argument("--counts", help="file for the counts, written at the end")
    o = options.parse_args()

    completed = collections.Counter()

    def handle(claim):
        message = claim.message
        event, _ = parse(message)
        request = urllib.request.Request(
            o.downstream,
            data=message.payload,
            headers={
                "Content-Type": "application/json",
                "X-GitHub-Delivery": message.idempotency_key,
                "X-GitHub-Event": event,
            },
        )
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            raise RuntimeError("downstream answered %d %s" % (error.code, error.reason)) from error
        claim.check()

    def settled(claim, what, error):
        if what == "dead-letter":
            name = claim.message.attributes["x-github-event"]
        else:
            name = "%s %s" % parse(claim.message)
        if what == "completed":
            completed[name] += 1
            name = "%s, %s" % (claim.message.message_id, name)
        text = "%s %s, attempt %d" % (what, name, claim.message.attempt)
        print(text if error is None else "%s: %s" % (text, error), flush=True)

    with grpc.insecure_channel(o.server) as channel:
        worker = Worker(channel, o.queue, o.worker_id, lease=o.lease)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        print("ready", flush=True)
        worker.run(handle, settled)

    if o.counts:
        with open(o.counts, "w", encoding="utf-8") as file:
            json.dump(completed, file)


if __name__ == "__main__":
    main()
