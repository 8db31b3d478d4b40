-- Completes a claim in the caller's own transaction (E12); own_mark.sql is the rest of the text.
WITH given AS MATERIALIZED (
    SELECT CAST($1 AS text) AS message_id, CAST($2 AS text) AS claim_token, 1 AS action, CAST(NULL AS bigint) AS delay_ms,
        CAST(NULL AS text) AS error, CAST(NULL AS text) AS reason_code, CAST($3 AS bytea) AS result
),
