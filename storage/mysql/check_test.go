package mysql_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mysql"
)

// healthy are the settings of a server that is as it should be.
func healthy(change ...string) map[string]string {
	s := map[string]string{
		"max_allowed_packet": "16777216", "read_only": "OFF", "innodb_read_only": "OFF", "log_bin": "ON", "binlog_format": "ROW",
		"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON", "innodb_flush_method": "O_DIRECT",
		"wsrep_on": "OFF",
	}
	for i := 0; i < len(change); i += 2 {
		s[change[i]] = change[i+1]
	}
	return s
}

const anyURL = "mysql://someone@db/q"

func TestVersionFloor(t *testing.T) {
	for version, good := range map[string]bool{
		"10.6.0-MariaDB": true, "10.11.19-MariaDB-0+deb12u1": true, "5.5.5-10.6.12-MariaDB": true, "11.8.2-MariaDB-ubu2404": true,
		"10.5.29-MariaDB": false, "5.5.5-10.3.39-MariaDB": false, "12.0.2-MariaDB": true,
		"8.0.18": true, "8.0.43-0ubuntu0.24.04.1": true, "8.4.6": true, "9.5.0": true, "8.1.0-cluster": true,
		"8.0.17": false, "8.0.1-dmr": false, "5.7.44-log": false, "8.0.11-TiDB-v8.5.3": false, "nonsense": false,
	} {
		_, _, err := mysql.Judge(version, healthy(), false, anyURL)
		require.Equal(t, good, err == nil, "%s: %v", version, err)
		if !good {
			require.ErrorContains(t, err, "or later")
		}
	}
}

func TestD9UnsafeSettingsAreNamed(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"innodb_flush_log_at_trx_commit", "2"},
		{"innodb_flush_log_at_trx_commit", "0"},
		{"sync_binlog", "0"},
		{"sync_binlog", "100"},
		{"innodb_doublewrite", "OFF"},
		{"innodb_doublewrite", "0"},
		{"innodb_doublewrite", "DETECT_ONLY"},
		{"innodb_flush_method", "nosync"},
	} {
		unsafe, durability, err := mysql.Judge("8.4.6", healthy(c.name, c.value), false, anyURL)
		require.NoError(t, err)
		require.Equal(t, c.name+" is "+c.value, unsafe)
		require.Contains(t, durability, "UNSAFE")
	}
	for _, settings := range []map[string]string{
		healthy(),
		healthy("innodb_flush_log_at_trx_commit", "3"),
		healthy("log_bin", "OFF", "sync_binlog", "0"),
		healthy("innodb_doublewrite", "DETECT_AND_RECOVER"),
		healthy("innodb_doublewrite", "fast"),
	} {
		unsafe, durability, err := mysql.Judge("10.11.19-MariaDB", settings, false, anyURL)
		require.NoError(t, err)
		require.Empty(t, unsafe)
		require.Contains(t, durability, "durable")
	}
}

// What would break a promise of the contract stops the start, with a text that tells what to
// do.
func TestRefusedSettings(t *testing.T) {
	primary := map[string]string{"group_replication_group_name": "x", "group_replication_single_primary_mode": "ON"}
	for _, c := range []struct {
		why         string
		settings    map[string]string
		clockStands bool
		url         string
		want        string // empty: not refused
	}{
		{why: "the clock", settings: healthy(), clockStands: true, want: "sysdate-is-now"},
		{why: "a replica", settings: healthy("read_only", "ON"), want: "read_only is ON"},
		{why: "a replica of MariaDB 12", settings: healthy("read_only", "NO_LOCK"), want: "read_only is NO_LOCK"},
		{why: "a replica of MySQL", settings: healthy("super_read_only", "1"), want: "super_read_only is 1"},
		{why: "repair", settings: healthy("innodb_read_only", "ON"), want: "innodb_read_only is ON"},
		{why: "the log of statements", settings: healthy("binlog_format", "STATEMENT"), want: "binlog_format is STATEMENT"},
		{why: "no log", settings: healthy("binlog_format", "STATEMENT", "log_bin", "OFF")},
		{why: "packets", settings: healthy("max_allowed_packet", "1048576"), want: "max_allowed_packet is 1048576"},
		{why: "Galera", settings: healthy("wsrep_on", "ON"), want: "cluster=one-writer"},
		{why: "Galera with one writer", settings: healthy("wsrep_on", "ON"), url: anyURL + "?cluster=one-writer"},
		{why: "a group with a primary", settings: merged(healthy(), primary)},
		{
			why: "a group with primaries", settings: merged(healthy(), primary, map[string]string{"group_replication_single_primary_mode": "OFF"}),
			want: "group_replication_single_primary_mode",
		},
		{why: "a plugin that is not used", settings: healthy("group_replication_group_name", "", "group_replication_single_primary_mode", "OFF")},
	} {
		url := c.url
		if url == "" {
			url = anyURL
		}
		_, _, err := mysql.Judge("8.4.6", c.settings, c.clockStands, url)
		if c.want == "" {
			require.NoError(t, err, c.why)
			continue
		}
		require.ErrorContains(t, err, c.want, c.why)
		require.NotErrorIs(t, err, storage.ErrUnsafeDurability, "no flag lifts it")
	}
	_, _, err := mysql.Judge("8.4.6", healthy("read_only", "ON"), false, anyURL)
	require.ErrorIs(t, err, storage.ErrUnavailable, "a failover may end it")
}

func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
