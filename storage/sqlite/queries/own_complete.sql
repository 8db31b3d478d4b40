-- Completes a claim in the caller's own transaction (E12). Every placeholder stands once and in order.
-- Leans on the primary keys.
WITH RECURSIVE given AS (
    SELECT ? AS message_id, ? AS claim_token, 1 AS action, NULL AS delay_ms, NULL AS error, NULL AS reason_code, CAST(? AS BLOB) AS result
),
{{own_mark}}
