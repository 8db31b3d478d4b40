-- Tells every server that this transaction has something for it (E12), at its commit. Optional:
-- without it the server looks within a second. NOTIFY takes a lock of the whole database at
-- commit and cannot stand in a transaction that is prepared (two-phase commit).
SELECT pg_notify('queuebox', 'own')
