-- Tells which of the keys in queuebox.names other sessions hold: idempotency keys, and the rows of
-- ordering keys. Each is taken and given back at once, in a subtransaction of its own, so that
-- nobody waits for this and it never waits with a key in hand; one that is not had within
-- lock_timeout is held. A key that an open transaction has just made cannot be seen, only run into.
-- Leans on idempotency_key_pkey and ordering_key_name_key.
DO LANGUAGE plpgsql $find$
DECLARE
    item record;
    held text := '';
BEGIN
    FOR item IN
        SELECT i.ord, i.queue_id, i.name COLLATE "C" AS name, i.ordering
        FROM json_to_recordset(current_setting('queuebox.names')::json)
            AS i (ord integer, queue_id integer, name text, ordering boolean)
    LOOP
        BEGIN
            IF item.ordering THEN
                PERFORM 1 FROM queuebox.ordering_key k WHERE k.queue_id = item.queue_id AND k.name = item.name FOR UPDATE;
                IF NOT FOUND THEN
                    INSERT INTO queuebox.ordering_key (queue_id, name) VALUES (item.queue_id, item.name)
                    ON CONFLICT (queue_id, name) DO NOTHING;
                END IF;
            ELSE
                PERFORM 1 FROM queuebox.idempotency_key k WHERE k.queue_id = item.queue_id AND k.key = item.name FOR UPDATE;
                IF NOT FOUND THEN
                    INSERT INTO queuebox.idempotency_key (queue_id, key, position, create_time, content_hash)
                    VALUES (item.queue_id, item.name, 0, now(), '') ON CONFLICT (queue_id, key) DO NOTHING;
                END IF;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'QB000';
        EXCEPTION
            WHEN SQLSTATE 'QB000' THEN NULL;
            WHEN lock_not_available THEN held := held || item.ord || ',';
        END;
    END LOOP;
    PERFORM set_config('queuebox.held', held, true);
END
$find$
