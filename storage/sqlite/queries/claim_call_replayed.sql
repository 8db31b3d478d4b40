-- Notes that a repeat has received the claims, so that they are never given back (C15).
UPDATE claim_call SET replayed = 1 WHERE id = ?1
