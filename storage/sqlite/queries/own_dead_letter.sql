-- Dead-letters a claim in the caller's own transaction (E12). Every placeholder stands once and in order.
-- Leans on the primary keys.
WITH RECURSIVE given AS (
    SELECT ? AS message_id, ? AS claim_token, 3 AS action, NULL AS delay_ms, CAST(? AS TEXT) AS reason_code, CAST(? AS TEXT) AS error, NULL AS result
),
{{own_mark}}
