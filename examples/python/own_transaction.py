"""Settle a claim, and enqueue, in a transaction of your own (contract rule E12).

The statements come from the call AdminService.GetTransactionSql; this file runs them through
any driver with the Python database API: psycopg, psycopg2, sqlite3, PyMySQL or pyodbc. Nothing in
it is special to Python: a worker in Java or Node does the same.

    statements = {s.name: s.sql for s in admin.GetTransactionSql(...).statements}
    with own_transaction(connection, statements, "complete", message_id, claim_token, None):
        cursor = connection.cursor()
        cursor.execute("INSERT INTO invoice ...")

The worker must stop renewing before it begins: from the mark on the lock of the row holds the
claim, not the lease.
"""

import contextlib
import re
import sys


class ClaimLost(Exception):
    """Somebody else has the message by now. Everything was rolled back."""


def execute(connection, sql, *parameters):
    """Runs a statement. Its placeholders stand in it once and in order, so that those of the
    driver can take their places by a plain substitution."""
    driver = sys.modules[type(connection).__module__.partition(".")[0]]
    own = "?" if getattr(driver, "paramstyle", "pyformat") == "qmark" else "%s"
    sql = re.sub(r"\$\d+|@p\d+|\?", own, sql)
    cursor = connection.cursor()
    cursor.execute(sql, parameters)
    return cursor


@contextlib.contextmanager
def own_transaction(connection, statements, settle, message_id, claim_token, *rest):
    """Marks the claim, lets the caller do his work, and commits.

    settle is "complete" (rest: result), "retry" (delay in milliseconds or None, error) or
    "dead_letter" (reason code, error). Yields what the claim was settled as, such as "COMPLETED".
    The mark comes first: with no row the claim is lost, and nothing of the work is ever there.
    After a serialization failure the caller rolls back, which this does, and begins again.
    """
    if getattr(connection, "in_transaction", None) is False:
        # The sqlite3 module begins a transaction only before a statement that starts with INSERT,
        # UPDATE or DELETE; the mark would commit by itself.
        execute(connection, "BEGIN IMMEDIATE")
    try:
        row = execute(connection, statements[settle], message_id, claim_token, *rest).fetchone()
        if row is None:
            raise ClaimLost()
        yield row[0]
        if "notify" in statements:
            execute(connection, statements["notify"])
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def enqueue(connection, statements, payload, content_type=None, attributes=None, idempotency_key=None, ordering_key=None,
            priority=None, delay_ms=None, available_time=None, max_attempts=None, expire_time=None):
    """Appends a message; it is there once the caller has committed. attributes is JSON text."""
    execute(connection, statements["enqueue"], payload, content_type, attributes, idempotency_key, ordering_key,
            priority, delay_ms, available_time, max_attempts, expire_time)


def outcome(connection, statements, message_id, claim_token):
    """What the claim was settled as, or None: to be asked after a COMMIT without an answer."""
    row = execute(connection, statements["outcome"], message_id, claim_token).fetchone()
    connection.rollback()
    return None if row is None else row[0]
