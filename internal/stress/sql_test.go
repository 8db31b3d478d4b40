package stress

import "github.com/queuebox/queuebox/internal/blackbox"

// looks are the statements with which the checker looks into a database.
type looks struct {
	// look finds keys with two heads or two live leases; stuck what no claim will ever find;
	// live counts, left shows the live messages, finals tells every message's state and finish time.
	look, stuck, live, left, finals string
	// dead finds some dead messages, with their finish time.
	dead string
	// deadlocks counts those that the database had to end so far, in this database or in all;
	// empty where it does not tell.
	deadlocks string
	// neighbours: it counts those of other databases, too, and so of tests that run beside.
	neighbours bool
	// perDeadlock is how many messages one deadlock may come in; 0 where there must be none.
	perDeadlock int
}

var looksOf = map[string]looks{
	blackbox.EnginePostgres: {
		look: `SELECT 'two heads', key_id, array_agg(position)::text FROM queuebox.message WHERE place < 2 AND key_id IS NOT NULL GROUP BY key_id HAVING count(*) > 1
				UNION ALL
				SELECT 'two leases', key_id, array_agg(position)::text FROM queuebox.message WHERE key_id IS NOT NULL AND state = 1 AND lease_end > clock_timestamp() GROUP BY key_id HAVING count(*) > 1`,
		stuck: `SELECT 'no head', k.key_id, count(*) FROM queuebox.ordering_key k JOIN queuebox.message m ON m.key_id = k.key_id
				WHERE NOT EXISTS (SELECT 1 FROM queuebox.dead d WHERE d.queue_id = k.queue_id AND d.position = k.blocked_by AND d.state = 4)
				GROUP BY k.key_id HAVING count(*) FILTER (WHERE m.place < 2) <> 1
				UNION ALL
				SELECT 'parked without a key', position, 1 FROM queuebox.message WHERE place = 2 AND key_id IS NULL
				UNION ALL
				SELECT 'delayed past its time', position, 1 FROM queuebox.message WHERE state = 0 AND place < 2 AND attempt >= max_attempts`,
		live: `SELECT count(*) FROM queuebox.message`,
		left: `SELECT m.position, m.place, m.state, m.attempt, m.max_attempts, m.ready_time, m.lease_end, m.cancel_requested, k.name, k.blocked_by
				FROM queuebox.message m LEFT JOIN queuebox.ordering_key k ON k.key_id = m.key_id ORDER BY k.name, m.position LIMIT 40`,
		finals: `SELECT queue_id, position, state::bigint, 0::double precision FROM queuebox.message
				UNION ALL SELECT queue_id, position, 2, extract(epoch FROM finish_time)::double precision FROM queuebox.completed
				UNION ALL SELECT queue_id, position, state, extract(epoch FROM finish_time)::double precision FROM queuebox.dead`,
		dead:      `SELECT queue_id, position, extract(epoch FROM finish_time)::double precision FROM queuebox.dead WHERE state = 4 ORDER BY random() LIMIT 20`,
		deadlocks: `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`,
	},
	blackbox.EngineSQLite: {
		look: `SELECT 'two heads', key_id, group_concat(position) FROM message WHERE place < 2 AND key_id IS NOT NULL GROUP BY key_id HAVING count(*) > 1
			UNION ALL
			SELECT 'two leases', key_id, group_concat(position) FROM message WHERE key_id IS NOT NULL AND state = 1 AND lease_end > unixepoch('subsec') * 1000 GROUP BY key_id HAVING count(*) > 1`,
		stuck: `SELECT 'no head', k.id, count(*) FROM ordering_key k JOIN message m ON m.key_id = k.id
			WHERE NOT EXISTS (SELECT 1 FROM dead d WHERE d.queue_id = k.queue_id AND d.position = k.blocked_by AND d.state = 4)
			GROUP BY k.id HAVING count(*) FILTER (WHERE m.place < 2) <> 1
			UNION ALL
			SELECT 'parked without a key', position, 1 FROM message WHERE place = 2 AND key_id IS NULL
			UNION ALL
			SELECT 'delayed past its time', position, 1 FROM message WHERE state = 0 AND place < 2 AND attempt >= max_attempts`,
		live: `SELECT count(*) FROM message`,
		left: `SELECT m.position, m.place, m.state, m.attempt, m.max_attempts, m.ready_time, m.lease_end, m.cancel_requested, k.key, k.blocked_by
			FROM message m LEFT JOIN ordering_key k ON k.id = m.key_id ORDER BY k.key, m.position LIMIT 40`,
		finals: `SELECT queue_id, position, state, 0.0 FROM message
			UNION ALL SELECT queue_id, position, 2, finish_time / 1000.0 FROM completed
			UNION ALL SELECT queue_id, position, state, finish_time / 1000.0 FROM dead`,
		dead: `SELECT queue_id, position, finish_time / 1000.0 FROM dead WHERE state = 4 ORDER BY random() LIMIT 20`,
	},
	blackbox.EngineMySQL: {
		look: `SELECT 'two heads', key_id, group_concat(id) FROM message WHERE place < 2 AND key_id IS NOT NULL GROUP BY key_id HAVING count(*) > 1
			UNION ALL
			SELECT 'two leases', key_id, group_concat(id) FROM message WHERE key_id IS NOT NULL AND state = 1 AND lease_end > sysdate(6) GROUP BY key_id HAVING count(*) > 1`,
		stuck: `SELECT 'no head', k.key_id, count(*) FROM ordering_key k JOIN message m ON m.key_id = k.key_id
			WHERE NOT EXISTS (SELECT 1 FROM dead d WHERE d.queue_id = k.queue_id AND d.id = k.blocked_by DIV 2 AND d.state = 4)
			GROUP BY k.key_id HAVING sum(m.place < 2) <> 1
			UNION ALL
			SELECT 'parked without a key', id, 1 FROM message WHERE place = 2 AND key_id IS NULL
			UNION ALL
			SELECT 'delayed past its time', id, 1 FROM message WHERE state = 0 AND place < 2 AND attempt >= max_attempts`,
		live: `SELECT count(*) FROM message`,
		left: `SELECT m.id, m.place, m.state, m.attempt, m.max_attempts, m.ready_time, m.lease_end, m.cancel_requested, k.name, k.blocked_by
			FROM message m LEFT JOIN ordering_key k ON k.key_id = m.key_id ORDER BY k.name, m.id LIMIT 40`,
		finals: `SELECT queue_id, id * 2 + (key_id IS NOT NULL), state, 0e0 FROM message
			UNION ALL SELECT queue_id, id * 2 + (ordering_key <> ''), 2, timestampdiff(MICROSECOND, '1970-01-01', finish_time) / 1e6 FROM completed
			UNION ALL SELECT queue_id, id * 2 + (ordering_key <> ''), state, timestampdiff(MICROSECOND, '1970-01-01', finish_time) / 1e6 FROM dead`,
		dead:       `SELECT queue_id, id * 2 + (ordering_key <> ''), timestampdiff(MICROSECOND, '1970-01-01', finish_time) / 1e6 FROM dead WHERE state = 4 ORDER BY rand() LIMIT 20`,
		deadlocks:  `SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'`,
		neighbours: true,
		// A unique index is looked at around an entry before one is made, under locks of the
		// neighbours; so two promotions of keys that stand side by side may meet there, and one of
		// them is run again (D2). A wrong order of locks would be found by the hundreds.
		perDeadlock: 500,
	},
	blackbox.EngineMSSQL: {
		look: `SELECT 'two heads', key_id, string_agg(CAST(id AS varchar(20)), ',') FROM queuebox.message WHERE place < 2 AND key_id IS NOT NULL GROUP BY key_id HAVING count(*) > 1
			UNION ALL
			SELECT 'two leases', key_id, string_agg(CAST(id AS varchar(20)), ',') FROM queuebox.message WHERE key_id IS NOT NULL AND state = 1 AND lease_end > sysutcdatetime() GROUP BY key_id HAVING count(*) > 1`,
		stuck: `SELECT 'no head', k.key_id, count(*) FROM queuebox.ordering_key k JOIN queuebox.message m ON m.key_id = k.key_id
			WHERE NOT EXISTS (SELECT 1 FROM queuebox.dead d WHERE d.queue_id = k.queue_id AND d.id = k.blocked_by / 2 AND d.state = 4)
			GROUP BY k.key_id HAVING sum(CASE WHEN m.place < 2 THEN 1 ELSE 0 END) <> 1
			UNION ALL
			SELECT 'parked without a key', id, 1 FROM queuebox.message WHERE place = 2 AND key_id IS NULL
			UNION ALL
			SELECT 'delayed past its time', id, 1 FROM queuebox.message WHERE state = 0 AND place < 2 AND attempt >= max_attempts`,
		live: `SELECT count(*) FROM queuebox.message`,
		left: `SELECT TOP (40) m.id, m.place, m.state, m.attempt, m.max_attempts, m.ready_time, m.lease_end, m.cancel_requested, k.name, k.blocked_by
			FROM queuebox.message m LEFT JOIN queuebox.ordering_key k ON k.key_id = m.key_id ORDER BY k.name, m.id`,
		finals: `SELECT queue_id, id * 2 + CASE WHEN key_id IS NULL THEN 0 ELSE 1 END, CAST(state AS bigint), 0e0 FROM queuebox.message
			UNION ALL SELECT queue_id, id * 2 + CASE WHEN datalength(ordering_key) = 0 THEN 0 ELSE 1 END, 2, datediff_big(MICROSECOND, '1970-01-01', finish_time) / 1e6 FROM queuebox.completed
			UNION ALL SELECT queue_id, id * 2 + CASE WHEN datalength(ordering_key) = 0 THEN 0 ELSE 1 END, state, datediff_big(MICROSECOND, '1970-01-01', finish_time) / 1e6 FROM queuebox.dead`,
		dead: `SELECT TOP (20) queue_id, id * 2 + CASE WHEN datalength(ordering_key) = 0 THEN 0 ELSE 1 END, datediff_big(MICROSECOND, '1970-01-01', finish_time) / 1e6 FROM queuebox.dead WHERE state = 4 ORDER BY newid()`,
	},
}

func (r *run) sql() looks { return looksOf[r.engine.Name] }
