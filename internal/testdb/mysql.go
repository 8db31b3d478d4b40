package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MySQL makes an empty database for this test on the MariaDB or MySQL of the environment and
// returns its URL, in the form of --storage. The database goes away with t.
func MySQL(t testing.TB) string {
	t.Helper()
	u := server(t, "mysql", EnvMySQL, " (run the tests under scripts/with-mariadb)")
	admin, name := *u, newName()
	onMySQL(t, &admin, func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, "CREATE DATABASE "+name)
		return err
	})
	t.Cleanup(func() {
		onMySQL(t, &admin, func(ctx context.Context, conn *sql.Conn) error { return dropMySQL(ctx, conn, name) })
	})
	u.Path = "/" + name
	return u.String()
}

// dropMySQL ends the sessions of the database first, since a test may have left one that
// holds a lock on purpose.
func dropMySQL(ctx context.Context, conn *sql.Conn, name string) error {
	for {
		ids, err := sessionsOf(ctx, conn, name)
		if err != nil {
			return err
		}
		for _, id := range ids {
			_, _ = conn.ExecContext(ctx, fmt.Sprintf("KILL %d", id)) // it may have ended by itself
		}
		// Short, so that a session which came meanwhile is met by the next round.
		if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 2"); err != nil {
			return err
		}
		if _, err = conn.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name); err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func sessionsOf(ctx context.Context, conn *sql.Conn, name string) (ids []int64, err error) {
	rows, err := conn.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = ?", name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// MySQLConfig reads a URL of the form mysql://user:password@host:port/database as the driver's
// configuration, without the parameters of the URL, which are those of the backend.
func MySQLConfig(u *url.URL) *mysql.Config {
	c := mysql.NewConfig()
	c.Net, c.Addr = "tcp", u.Host
	if u.Port() == "" {
		c.Addr += ":3306"
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.DBName = strings.TrimPrefix(u.Path, "/")
	c.ParseTime, c.Loc = true, time.UTC
	return c
}

func onMySQL(t testing.TB, admin *url.URL, do func(ctx context.Context, conn *sql.Conn) error) {
	t.Helper()
	ctx, cancel := patience()
	defer cancel()
	connector, err := mysql.NewConnector(MySQLConfig(admin))
	if err != nil {
		t.Fatalf("%s: %v", EnvMySQL, err)
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatalf("connect to the test server: %v", err)
	}
	defer func() { _ = conn.Close() }()
	if err := do(ctx, conn); err != nil {
		t.Fatalf("test database: %v", err)
	}
}
