package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// step is one of several statements that need nothing of each other's answers.
type step struct {
	q    statement
	args []Arg
	// rows is called for every row of a statement that reads; where it is nil, the statement
	// changes rows, and changed is called with how many it matched.
	rows    func(rows *sql.Rows) error
	changed func(n int64) error
}

// reading is a step that reads rows.
func reading(q statement, args []Arg, rows func(rows *sql.Rows) error) step {
	return step{q: q, args: args, rows: rows}
}

// changing is a step that changes rows, and puts down how many it matched.
func changing(q statement, n *int64, args ...Arg) step {
	return step{q: q, args: args, changed: func(matched int64) error {
		*n = matched
		return nil
	}}
}

// matching is a step that has to match so many rows, see exactly.
func matching(q statement, rows int, args ...Arg) step {
	return step{q: q, args: args, changed: func(n int64) error {
		if n != int64(rows) {
			return errAgain
		}
		return nil
	}}
}

// clock is a step that reads the clock of the database.
func clock(now *time.Time) step {
	return reading(qNow, nil, func(rows *sql.Rows) error {
		err := rows.Scan(now)
		*now = now.UTC()
		return err
	})
}

// maxTogether bounds the arguments of statements that go in one text: a driver that finds no
// room for them there would prepare it, which is for single statements.
const maxTogether = 4 << 20

// together runs statements in their order, in one round trip where the engine can. Each of them
// is a statement by itself to the database, with its own view of what is committed, so the order
// of locks, looks and writes is as if they were sent one by one. What a step says of its answer
// ends the call with an error, while the steps after it may have run: whoever writes rolls back
// then, as after every error.
func (c *session) together(ctx context.Context, steps ...step) error {
	if len(steps) < 2 || c.s.engine.MatchedRows == "" {
		return c.oneByOne(ctx, steps)
	}
	var (
		text  strings.Builder
		all   []any
		bytes int
	)
	for i, st := range steps {
		compiled, err := c.statement(st.q)
		if err != nil {
			return err
		}
		if i > 0 {
			text.WriteString(";\n")
		}
		text.WriteString(compiled.text)
		if st.rows == nil {
			text.WriteString(";\n")
			text.WriteString(c.s.engine.MatchedRows)
		}
		for _, v := range compiled.bind(st.args) {
			bytes += byteSize(v)
			all = append(all, v)
		}
	}
	if bytes > maxTogether {
		return c.oneByOne(ctx, steps)
	}
	rows, err := c.q.QueryContext(ctx, text.String(), all...)
	if err != nil {
		return fmt.Errorf("%s and what goes with it: %w", steps[0].q, err)
	}
	defer func() { _ = rows.Close() }()
	for i, st := range steps {
		if i > 0 && !rows.NextResultSet() {
			err := rows.Err()
			if err == nil {
				err = errors.New("the database has not answered it")
			}
			return fmt.Errorf("%s: %w", st.q, err)
		}
		if err := st.read(rows); err != nil {
			return fmt.Errorf("%s: %w", st.q, err)
		}
	}
	// What comes after the last answer may be an error.
	if rows.NextResultSet() {
		return fmt.Errorf("%s: more answers than statements", steps[len(steps)-1].q)
	}
	return rows.Err()
}

// read reads the answer of one of several statements to its end.
func (st step) read(rows *sql.Rows) error {
	count, found := int64(0), false
	for rows.Next() {
		found = true
		var err error
		if st.rows != nil {
			err = st.rows(rows)
		} else {
			err = rows.Scan(&count)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case rows.Err() != nil:
		return rows.Err()
	case st.rows != nil:
		return nil
	case !found:
		return sql.ErrNoRows
	}
	return st.changed(count)
}

func (c *session) oneByOne(ctx context.Context, steps []step) error {
	for _, st := range steps {
		if st.rows != nil {
			if err := c.each(ctx, st.q, st.args, st.rows); err != nil {
				return err
			}
			continue
		}
		n, err := c.change(ctx, st.q, st.args...)
		if err == nil {
			err = st.changed(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byteSize is about how much room a value takes in the text of a statement.
func byteSize(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	default:
		return 0
	}
}
