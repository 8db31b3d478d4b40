package mysql

import (
	"context"
	"database/sql"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// What the tests of this package look at from outside.

// Errors is what the numbers of the database mean.
var Errors rowlock.Errors = meaning{}

// Statement gives a statement as the driver takes it, with the clock of the database, and the
// names of its arguments in their order.
func Statement(name string) (text string, err error) { return rowlock.Text(engine(Config{}, ""), name) }

// Statements are the names of all statements.
func Statements() ([]string, error) {
	entries, err := queries.ReadDir("queries")
	var names []string
	for _, e := range entries {
		if n := len(e.Name()) - len(".sql"); !e.IsDir() && n > 0 {
			names = append(names, e.Name()[:n])
		}
	}
	return names, err
}

// Judge is what Open says of a server: what makes it unsafe, and why it is refused.
func Judge(version string, settings map[string]string, clockStands bool, url string) (unsafe, durability string, err error) {
	t, err := parseURL(url)
	if err != nil {
		return "", "", err
	}
	s := server{version: version, mariadb: isMariaDB(version), settings: settings, clockStands: clockStands}
	s.readPacket()
	j, err := judge(s, t)
	return j.unsafe, j.durability, err
}

// Pool makes a pool as the store has one.
func Pool(url string) (*sql.DB, error) {
	t, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	return t.pool(minPacket)
}

// Begin makes a transaction as the store has them.
func Begin(ctx context.Context, conn *sql.Conn) (rowlock.Transaction, error) { return begin(ctx, conn) }
