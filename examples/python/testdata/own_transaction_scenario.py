"""Runs the own transaction on a database: DRIVER DSN, and the work as JSON on standard input."""

import json
import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import own_transaction as own  # noqa: E402

driver, dsn = sys.argv[1:3]
module = __import__(driver)
if driver == "sqlite3":
    connection = module.connect(dsn, timeout=20)
elif driver == "pymysql":
    url = urllib.parse.urlsplit(dsn)
    connection = module.connect(
        host=url.hostname, port=url.port, user=url.username, password=url.password or "", database=url.path[1:])
else:
    connection = module.connect(dsn)
work = json.load(sys.stdin)
statements = work["statements"]
cursor = connection.cursor()
cursor.execute("CREATE TABLE invoice (message_id VARCHAR(40) PRIMARY KEY)")
connection.commit()

for claim in work["claims"]:
    try:
        with own.own_transaction(connection, statements, claim["settle"], claim["id"], claim["token"], *claim["rest"]) as outcome:
            own.execute(connection, "INSERT INTO invoice VALUES ('" + claim["id"] + "')")
            own.enqueue(connection, statements, b"follows " + claim["settle"].encode(), attributes='{"from": "python"}', delay_ms=1)
            if claim.get("fail"):
                raise ValueError("the work failed")
        print(claim["settle"], outcome, own.outcome(connection, statements, claim["id"], claim["token"]))
    except own.ClaimLost:
        print(claim["settle"], "lost", own.outcome(connection, statements, claim["id"], claim["token"]))
    except ValueError:
        print(claim["settle"], "failed", own.outcome(connection, statements, claim["id"], claim["token"]))
cursor.execute("SELECT count(*) FROM invoice")
print("invoices", cursor.fetchone()[0])
connection.close()
