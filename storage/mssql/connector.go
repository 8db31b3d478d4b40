package mssql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	mssqldb "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"
)

const (
	// maxIdle is shorter than what the gateway of Azure SQL leaves an idle connection.
	maxIdle = 5 * time.Minute
	// maxLife moves connections on to where a name leads by now.
	maxLife = 30 * time.Minute
	// connectTimeout bounds one attempt to connect and log in.
	connectTimeout = 5 * time.Second
)

// connector makes connections. It bounds the login too: the driver bounds the dialing alone,
// and would wait for ever for a server that accepts connections and says nothing.
type connector struct {
	config  msdsn.Config
	session string // run at each start of a session; empty but for migrations
}

var _ driver.Connector = (*connector)(nil)

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	d := &dialer{keepAlive: c.config.KeepAlive}
	stop := context.AfterFunc(ctx, d.cut)
	inner := mssqldb.NewConnectorConfig(c.config)
	inner.Dialer, inner.SessionInitSQL = d, c.session
	conn, err := inner.Connect(ctx)
	if err == nil && !stop() {
		err = conn.Close()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	stop()
	if err != nil {
		return nil, err
	}
	own, ok := conn.(*mssqldb.Conn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver made a %T of a connection", conn), conn.Close())
	}
	return &link{Conn: own, cut: d.cut, alive: d.alive}, nil
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return mssqldb.NewConnectorConfig(c.config).Driver() }

// dialer keeps the connections of one login, to cut them off.
type dialer struct {
	keepAlive time.Duration

	mu    sync.Mutex
	conns []net.Conn
	over  bool
}

// DialContext implements mssqldb.Dialer. A listener of an availability group has several
// addresses, which the driver dials at once.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: d.keepAlive}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		_ = conn.Close()
		return nil, context.DeadlineExceeded
	}
	d.conns = append(d.conns, conn)
	return conn, nil
}

// alive tells whether one of the connections is: the driver closes those that it does not use,
// the slower ones of a listener with several addresses, and the first one where Azure SQL
// redirects.
func (d *dialer) alive() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.conns, alive)
}

func (d *dialer) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	for _, conn := range d.conns {
		_ = conn.Close()
	}
}

// pool makes a pool of the URL's database. session is run at each start of a session.
func (t target) pool(session string) *sql.DB {
	return sql.OpenDB(&connector{config: t.config, session: session})
}
