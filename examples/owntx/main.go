// Command owntx shows a settlement inside a transaction of the program's own (contract rule
// E12). It has a table of its own, shipment, in the database of the queue. An order is taken
// down and enqueued in one transaction; it is shipped, which is one more row, and its message is
// completed in one transaction. One worker loses its claim in the middle of its work, and its
// row is not there afterwards.
//
//	go run ./cmd/queuebox-server --storage sqlite:///tmp/owntx.db --listen 127.0.0.1:7420
//	go run ./examples/owntx --server 127.0.0.1:7420 --database /tmp/owntx.db
//
// With PostgreSQL or SQL Server --database is a URL of the database of the server, with MySQL
// and MariaDB that of any database of the same database server, best one of the shop's own. Its
// role may make and drop tables there, and has the rights of docs/own-transaction.md.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"  // the driver "pgx"
	_ "github.com/microsoft/go-mssqldb" // the driver "sqlserver"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	_ "modernc.org/sqlite" // the driver "sqlite"

	queuebox "github.com/queuebox/queuebox/client/go"
	"github.com/queuebox/queuebox/client/go/sqltx"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

const queue = "orders"

func main() {
	server := flag.String("server", "127.0.0.1:7420", "address of the QueueBox server")
	database := flag.String("database", "", "database of the server (MySQL, MariaDB: any database beside it): a postgres://, mysql:// or sqlserver:// URL, or the path of a SQLite file")
	orders := flag.Int("orders", 10, "how many orders to take down and ship")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *server, *database, *orders)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "owntx:", err)
		os.Exit(1)
	}
}

// shop is the program: a client of the queue and a database that is its own as well.
type shop struct {
	client *queuebox.Client
	db     *sql.DB
	out    io.Writer
	// run makes the idempotency keys of this run its own.
	run string
}

func run(ctx context.Context, out io.Writer, server, database string, orders int) error {
	client, err := queuebox.Dial(server, queuebox.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	db, err := open(database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	s := &shop{client: client, db: db, out: out, run: rand.Text()}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := s.takeDown(ctx, orders); err != nil {
		return err
	}
	for left := orders; left > 0; {
		shipped, err := s.ship(ctx)
		if err != nil {
			return err
		}
		if shipped {
			left--
		}
	}
	return s.report(ctx)
}

// open opens the database of the server: as a user's program would, with a driver of its own.
func open(database string) (*sql.DB, error) {
	switch {
	case database == "":
		return nil, errors.New("--database is missing")
	case strings.HasPrefix(database, "postgres://"), strings.HasPrefix(database, "postgresql://"):
		return sql.Open("pgx", database)
	case strings.HasPrefix(database, "mysql://"), strings.HasPrefix(database, "mariadb://"):
		return openMySQL(database)
	case strings.HasPrefix(database, "sqlserver://"):
		return sql.Open("sqlserver", database)
	default:
		return sql.Open("sqlite", "file:"+database+"?_pragma=busy_timeout(10000)")
	}
}

// openMySQL takes the URL apart, which the driver wants in a form of its own.
func openMySQL(database string) (*sql.DB, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, errors.New("--database is no URL")
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	if u.Port() == "" {
		config.Addr += ":3306"
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.TLSConfig = u.Query().Get("tls")
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// prepare makes the queue and the tables of the shop, empty.
func (s *shop) prepare(ctx context.Context) error {
	_, err := queueboxv1.NewAdminServiceClient(s.client.Conn()).CreateQueue(ctx, &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: queue}})
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return err
	}
	for _, text := range []string{
		"DROP TABLE IF EXISTS shipment", "DROP TABLE IF EXISTS purchase",
		"CREATE TABLE purchase (number INTEGER PRIMARY KEY)",
		// No constraint: a second row for an order would stay, and the report would tell.
		"CREATE TABLE shipment (number INTEGER NOT NULL, attempt INTEGER NOT NULL)",
	} {
		if _, err := s.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// takeDown writes each order into the shop's table and into the queue, in one transaction. An
// order that is rolled back is in neither.
func (s *shop) takeDown(ctx context.Context, orders int) error {
	for n := range orders + 1 {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := s.takeDownOne(ctx, tx, n, n == orders); err != nil {
			_ = tx.Rollback()
			if n == orders {
				_, _ = fmt.Fprintf(s.out, "order %d: %v, so it is neither in the table nor in the queue\n", n, err)
				continue
			}
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(s.out, "%d orders taken down\n", orders)
	return nil
}

func (s *shop) takeDownOne(ctx context.Context, tx *sql.Tx, n int, changesHisMind bool) error {
	// The queue first: on SQLite a transaction must begin with a write.
	err := sqltx.Enqueue(ctx, tx, s.client, queue, queuebox.NewMessage{
		Payload: fmt.Appendf(nil, "%d", n), IdempotencyKey: fmt.Sprintf("order-%d-%s", n, s.run),
	})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO purchase VALUES (%d)", n)); err != nil {
		return err
	}
	if changesHisMind {
		return errors.New("the buyer changes his mind")
	}
	return sqltx.Notify(ctx, tx, s.client, queue)
}

// ship claims one order, writes its shipment and completes it, in one transaction. It tells
// whether it did.
func (s *shop) ship(ctx context.Context) (bool, error) {
	handles, err := s.client.Claim(ctx, queuebox.ClaimOptions{Queue: queue, Lease: 30 * time.Second, Wait: 20 * time.Second})
	if err != nil {
		return false, err
	}
	if len(handles) == 0 {
		return false, errors.New("no order came")
	}
	h := handles[0]
	m := h.Message()
	if n, err := strconv.Atoi(string(m.Payload)); err == nil && n%3 == 1 && m.Attempt == 1 {
		// Every third order: an operator takes the claim away, as the end of a lease would after a
		// long pause. The worker does not know yet.
		_, err := queueboxv1.NewAdminServiceClient(s.client.Conn()).RevokeClaim(ctx, &queueboxv1.RevokeClaimRequest{Queue: queue, MessageId: m.ID})
		if err != nil {
			return false, err
		}
	}
	_, err = sqltx.Complete(ctx, s.db, h, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO shipment VALUES (%s, %d)", m.Payload, m.Attempt))
		return err
	})
	if errors.Is(err, queuebox.ErrClaimLost) {
		_, _ = fmt.Fprintf(s.out, "order %s: attempt %d lost its claim and left no row\n", m.Payload, m.Attempt)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, _ = fmt.Fprintf(s.out, "order %s: shipped by attempt %d\n", m.Payload, m.Attempt)
	return true, nil
}

// report counts. Each order has exactly one shipment.
func (s *shop) report(ctx context.Context) error {
	var orders, shipments, wrong int
	err := s.db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM purchase), (SELECT count(*) FROM shipment),
		(SELECT count(*) FROM purchase p WHERE (SELECT count(*) FROM shipment s WHERE s.number = p.number) <> 1)`).Scan(&orders, &shipments, &wrong)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.out, "%d orders, %d shipments, %d orders without exactly one\n", orders, shipments, wrong)
	if wrong > 0 || orders != shipments {
		return errors.New("something was shipped twice, or not at all")
	}
	return nil
}
