package rowlock

import (
	"encoding/json"
	"time"
)

// list is the argument :list, which a statement reads row by row: JSON text, an array of
// arrays. Numbers, texts, booleans and null stand in it as they are, a token as
// Values.TokenText gives it, a name as Values.NameText does, bytes as base64, a time as instant.
func (c *session) list(rows [][]any) Arg { return c.named("list", rows) }

// ids is the argument :list of a statement that takes ids alone.
func (c *session) ids(ids []int64) Arg {
	rows := make([][]any, len(ids))
	for i, id := range ids {
		rows[i] = []any{id}
	}
	return c.list(rows)
}

// named is a list under another name, where a statement takes two.
func (c *session) named(name string, rows [][]any) Arg {
	if rows == nil {
		rows = [][]any{}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		// No driver takes it, so the statement fails and tells why.
		return a(name, missing{err.Error()})
	}
	return a(name, c.s.engine.Values.List(text))
}

// instant is a time as it stands in the JSON of a list; every engine reads it as UTC.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000") }

// maxListBytes cuts a list whose texts are long, such as the results of completions: a
// statement has to fit into what the database takes at once.
const maxListBytes = 4 << 20

// listable tells how many of the rows go into one list: one at least.
func listable(rows [][]any) int {
	bytes := 0
	for i, row := range rows {
		for _, v := range row {
			if text, ok := v.(string); ok {
				bytes += len(text)
			}
		}
		if i > 0 && bytes > maxListBytes {
			return i
		}
	}
	return len(rows)
}
