package postgres

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lockWait bounds every wait for a lock of another session: in the slow lanes, for an
// idempotency key of an open transaction, for a claim id of a running call.
const lockWait = 2 * time.Second

// connectTimeout bounds one attempt to connect, unless the URL says otherwise.
const connectTimeout = 5 * time.Second

// target is a parsed URL.
type target struct {
	config *pgxpool.Config
	// pooled: a transaction-mode pooler stands in front, so that nothing may live in a
	// session: no prepared statements, no settings, no LISTEN.
	pooled bool
}

// errURL says no more than that, since the text of a URL can hold a password.
var errURL = errors.New("postgres: the URL cannot be parsed (want postgres://user:password@host:port/database, " +
	"where special characters of a name or a password are percent-encoded: %25 is %, %40 is @, %2F is /)")

// CheckURL tells whether a URL can be opened, as far as its text tells. The error holds no
// secrets.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

// parseURL takes out what is ours (pooler) and hands the rest to pgx.
func parseURL(raw string) (target, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return target{}, errURL
	}
	var t target
	q := u.Query()
	if q.Has("pooler") {
		switch mode := q.Get("pooler"); mode {
		case "transaction":
			t.pooled = true
		case "session", "none":
		default:
			return target{}, fmt.Errorf("postgres: pooler=%q in the URL: want transaction, session or none", mode)
		}
		// The other parameters keep their bytes: encoding them anew could change them.
		var kept []string
		for part := range strings.SplitSeq(u.RawQuery, "&") {
			if !strings.HasPrefix(part, "pooler=") {
				kept = append(kept, part)
			}
		}
		u.RawQuery = strings.Join(kept, "&")
	}
	c, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return target{}, errURL
	}
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = connectTimeout
	}
	if _, ok := c.ConnConfig.RuntimeParams["application_name"]; !ok {
		c.ConnConfig.RuntimeParams["application_name"] = "queuebox"
	}
	if t.pooled {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		c.ConnConfig.StatementCacheCapacity = 0
		c.ConnConfig.DescriptionCacheCapacity = 0
	} else {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
		c.ConnConfig.StatementCacheCapacity = 256
	}
	t.config = c
	return t, nil
}

// connConfig is a copy for one connection of its own.
func (t target) connConfig() *pgx.ConnConfig { return t.config.ConnConfig.Copy() }

// finishOnContext gives a statement whose ctx ends a moment to finish, and cuts the
// connection then. Behind a pooler it stands in for cancelOnContext: a cancel request there
// is a connection of its own that has to find its way, and PgBouncer 1.18 dies of it
// ("bad client state").
func finishOnContext(c *pgconn.PgConn) ctxwatch.Handler {
	return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn(), DeadlineDelay: time.Second}
}

// cancelOnContext makes a call whose ctx ends ask the database to stop the statement,
// so that the answer, "cancelled" or "done", is still read: without it the connection
// would be cut, and every such write would end as outcome unknown. The deadline is for
// a database that does not answer at all.
func cancelOnContext(c *pgconn.PgConn) ctxwatch.Handler {
	return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 2 * time.Second}
}
