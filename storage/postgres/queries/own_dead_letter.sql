-- Dead-letters a claim in the caller's own transaction (E12); own_mark.sql is the rest of the text.
WITH given AS MATERIALIZED (
    SELECT CAST($1 AS text) AS message_id, CAST($2 AS text) AS claim_token, 3 AS action, CAST(NULL AS bigint) AS delay_ms,
        CAST($3 AS text) AS reason_code, CAST($4 AS text) AS error, CAST(NULL AS bytea) AS result
),
