package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// server is what a database says of itself.
type server struct {
	version   string
	mariadb   bool
	settings  map[string]string // by name in lower case
	maxPacket int
	// clockStands: SYSDATE is but another name of NOW.
	clockStands bool
}

// The versions from which on all that the statements need is there. MariaDB 10.6 brought
// SKIP LOCKED and JSON_TABLE. MySQL had SKIP LOCKED in 8.0.1, a milestone release, enforces
// CHECK constraints since 8.0.16, has the collation utf8mb4_0900_bin since 8.0.17, and lets
// every session count its ids by one since 8.0.18.
var (
	floorMariaDB = [3]int{10, 6, 0}
	floorMySQL   = [3]int{8, 0, 18}
)

// minPacket is the smallest max_allowed_packet that serves: the default of MariaDB. A
// message with the default of --max-payload-bytes fits with room to spare.
const minPacket = 16 << 20

// watchedSettings reads what judge looks at. Not every database has each.
const watchedSettings = `SHOW GLOBAL VARIABLES WHERE Variable_name IN (
 'max_allowed_packet', 'read_only', 'super_read_only', 'innodb_read_only', 'log_bin', 'binlog_format', 'sync_binlog',
 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'innodb_flush_method',
 'wsrep_on', 'group_replication_single_primary_mode', 'group_replication_group_name')`

// look asks a database about itself, on a connection of its own.
func look(ctx context.Context, t target) (server, error) {
	db, err := t.pool(0)
	if err != nil {
		return server{}, err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return server{}, err
	}
	defer func() { _ = conn.Close() }()
	return lookAt(ctx, conn)
}

func lookAt(ctx context.Context, conn *sql.Conn) (server, error) {
	s := server{settings: map[string]string{}}
	var before, after time.Time
	var slept int
	// The pause stands between the two looks at the clock, since a list is worked off from
	// left to right.
	err := single(ctx, conn, "SELECT VERSION(), SYSDATE(6), SLEEP(0.002), SYSDATE(6)", nil, &s.version, &before, &slept, &after)
	if err != nil {
		return s, err
	}
	s.clockStands = !after.After(before)
	s.mariadb = isMariaDB(s.version)
	rows, err := conn.QueryContext(ctx, watchedSettings)
	if err != nil {
		return s, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return s, err
		}
		s.settings[strings.ToLower(name)] = value
	}
	s.readPacket()
	return s, rows.Err()
}

func isMariaDB(version string) bool { return strings.Contains(strings.ToLower(version), "mariadb") }

func (s *server) readPacket() { s.maxPacket, _ = strconv.Atoi(s.settings["max_allowed_packet"]) }

// collation compares by bytes and without padding.
func (s server) collation() string {
	if s.mariadb {
		return "utf8mb4_nopad_bin"
	}
	return "utf8mb4_0900_bin"
}

// floor refuses a version that lacks what the statements need.
func (s server) floor() error {
	least, name := floorMySQL, "MySQL"
	if s.mariadb {
		least, name = floorMariaDB, "MariaDB"
	}
	have := numbers(s.version)
	for i := range have {
		if have[i] != least[i] {
			if have[i] < least[i] {
				return fmt.Errorf("the server is %s %s, want %d.%d.%d or later", name, s.version, least[0], least[1], least[2])
			}
			break
		}
	}
	return nil
}

// numbers reads the first three numbers of a version. Old MariaDB puts 5.5.5- in front, for
// clients that know no two digits.
func numbers(version string) (out [3]int) {
	if rest, ok := strings.CutPrefix(version, "5.5.5-"); ok {
		version = rest
	}
	for i, part := range strings.SplitN(version, ".", 3) {
		end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		if end >= 0 {
			part = part[:end]
		}
		out[i], _ = strconv.Atoi(part)
	}
	return out
}

// judgement is what follows from the settings of a database that can be worked with.
type judgement struct {
	// unsafe names the settings by which the database may lose what it acknowledged (D9).
	unsafe     string
	durability string
}

// judge refuses what would break a promise. A server that only takes no writes right now is
// unavailable: a failover may make it the one that does.
func judge(s server, t target) (judgement, error) {
	var j judgement
	if err := s.floor(); err != nil {
		return j, err
	}
	if s.clockStands {
		return j, errors.New("the server runs with sysdate-is-now: SYSDATE stands still while a statement waits, and a lease that " +
			"has run out would live on; start it without that option")
	}
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only"} {
		if s.on(name) {
			return j, fmt.Errorf("%w: the server takes no writes (%s is %s): is it a replica?", storage.ErrUnavailable, name, s.settings[name])
		}
	}
	if s.on("log_bin") && strings.EqualFold(s.settings["binlog_format"], "STATEMENT") {
		return j, errors.New("binlog_format is STATEMENT: the server refuses writes at READ COMMITTED; set it to ROW or MIXED")
	}
	if s.maxPacket < minPacket {
		return j, fmt.Errorf("max_allowed_packet is %d bytes, want at least %d", s.maxPacket, minPacket)
	}
	if err := s.cluster(t); err != nil {
		return j, err
	}
	var unsafe []string
	bad := func(name string) { unsafe = append(unsafe, name+" is "+s.settings[name]) }
	// 3 is 1 with one more write to the disk, MariaDB alone has it.
	if v := s.settings["innodb_flush_log_at_trx_commit"]; v != "1" && v != "3" {
		bad("innodb_flush_log_at_trx_commit")
	}
	if s.on("log_bin") && s.settings["sync_binlog"] != "1" {
		bad("sync_binlog")
	}
	switch strings.ToUpper(s.settings["innodb_doublewrite"]) {
	case "OFF", "0", "DETECT_ONLY":
		bad("innodb_doublewrite")
	}
	switch strings.ToLower(s.settings["innodb_flush_method"]) {
	case "nosync", "littlesync":
		bad("innodb_flush_method")
	}
	j.unsafe = strings.Join(unsafe, ", ")
	j.durability = "durable: an acknowledged write survives a crash of the database and a power cut (innodb_flush_log_at_trx_commit " +
		s.settings["innodb_flush_log_at_trx_commit"] + ")"
	if j.unsafe != "" {
		j.durability = "UNSAFE: an acknowledged write may be lost (" + j.unsafe + ")"
	}
	return j, nil
}

// cluster refuses a cluster in which several nodes take writes: a row that is only locked is
// locked on one node, so two servers on two nodes would both hold the lock of an ordering
// key or of a limit. Galera cannot tell how it is used, so the URL has to.
func (s server) cluster(t target) error {
	if s.on("wsrep_on") && !t.oneWriter {
		return errors.New("the server is a node of a Galera cluster: locks of rows hold on one node alone, so every QueueBox server has to " +
			"write to the same node; where that is so, add cluster=one-writer to the URL")
	}
	if s.settings["group_replication_group_name"] != "" && !s.on("group_replication_single_primary_mode") {
		return errors.New("group replication runs with several primaries: locks of rows hold on one node alone; " +
			"set group_replication_single_primary_mode to ON")
	}
	return nil
}

// on tells whether a setting is there and says anything but no.
func (s server) on(name string) bool {
	switch strings.ToUpper(s.settings[name]) {
	case "", "OFF", "0", "NO":
		return false
	}
	return true
}
