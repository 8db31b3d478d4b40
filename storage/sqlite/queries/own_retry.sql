-- Retries a claim in the caller's own transaction (E12). Every placeholder stands once and in order.
-- Leans on the primary keys.
WITH RECURSIVE given AS (
    SELECT ? AS message_id, ? AS claim_token, 2 AS action, CAST(? AS INTEGER) AS delay_ms, CAST(? AS TEXT) AS error, NULL AS reason_code, NULL AS result
),
{{own_mark}}
