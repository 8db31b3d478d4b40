-- The message and the token that the wire names: base 32, five bits a letter. The position is the
-- bits 32 to 95 of the id, and the token is told as hexadecimal. What no server made names
-- nothing.
position_bits (n, v) AS (
    SELECT 6, (instr('0123456789abcdefghjkmnpqrstvwxyz', substr(message_id, 8, 1)) - 1) & 7 FROM given
    UNION ALL
    SELECT n + 1, (v << 5) | (instr('0123456789abcdefghjkmnpqrstvwxyz', substr(message_id, n + 3, 1)) - 1) FROM position_bits, given WHERE n < 18
),
token_digits (n, v) AS (
    SELECT 0, ''
    UNION ALL
    SELECT n + 1, v || substr('0123456789ABCDEF', 1 + (((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(claim_token, 2 + n * 4 / 5, 1)) - 1) << 5)
        | (instr('0123456789abcdefghjkmnpqrstvwxyz', substr(claim_token, 3 + n * 4 / 5, 1)) - 1)) >> (6 - (n * 4 - 5 * (n * 4 / 5)))) & 15), 1)
    FROM token_digits, given WHERE n < 32
),
named AS (
    SELECT g.*, (p.v << 1) | ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(g.message_id, 21, 1)) - 1) >> 4) AS position, t.v AS token
    FROM given AS g CROSS JOIN position_bits AS p CROSS JOIN token_digits AS t
    WHERE p.n = 18 AND t.n = 32
      AND length(CAST(g.message_id AS BLOB)) = 27 AND g.message_id GLOB 'm*' AND g.message_id NOT GLOB '*[^0-9a-hjkmnp-tv-z]*'
      AND length(CAST(g.claim_token AS BLOB)) = 33 AND g.claim_token GLOB 't*' AND g.claim_token NOT GLOB '*[^0-9a-hjkmnp-tv-z]*'
)
