package mssql

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// procedure runs a text with parameters that are declared beside it. The driver would call it
// too, but with declarations made from the lengths of the values, which is a plan for each
// length.
const procedure = "sp_executesql"

// settings stand in front of every statement and last as long as it does. XACT_ABORT rolls the
// transaction back at any error, at a cancelled statement too, and makes it impossible that
// more results follow an error, on which the driver hangs (microsoft/go-mssqldb#407).
// LOCK_TIMEOUT bounds every wait for a lock. They are set here and not at the start of a
// session, since the pool resets a session each time it hands it out, which would cost a round
// trip each time.
const settings = "SET NOCOUNT, XACT_ABORT ON; SET LOCK_TIMEOUT 2000;\n"

// variable is a parameter or a variable of a statement. Strings and quoted names match too, so
// that what is in them is skipped, and @@ROWCOUNT and its like.
var variable = regexp.MustCompile(`'[^']*'|"[^"]*"|\[[^\]]*\]|@@\w+|@(\w+)`)

// declaration is where a statement declares a variable of its own.
var declaration = regexp.MustCompile(`(?i)\bDECLARE\s+@(\w+)`)

// compile implements rowlock.Engine.Compile: the text goes to sp_executesql with the arguments
// that stand in it, each once, in the order of their first place.
func compile(text string) (string, func([]rowlock.Arg) []any, error) {
	own := map[string]bool{}
	for _, found := range declaration.FindAllStringSubmatch(text, -1) {
		own[found[1]] = true
	}
	var names []string
	for _, found := range variable.FindAllStringSubmatch(text, -1) {
		if name := found[1]; name != "" && !own[name] {
			own[name] = true
			names = append(names, name)
		}
	}
	text = settings + text
	bind := func(args []rowlock.Arg) []any {
		out := make([]any, 0, len(names)+2)
		var declarations []string
		for _, name := range names {
			value, err := argument(name, args)
			if err != nil {
				// database/sql hands it to the driver, which refuses it: the statement fails.
				return []any{refused{err}}
			}
			declarations = append(declarations, "@"+name+" "+value.declared)
			out = append(out, sql.Named(name, value.value))
		}
		if len(names) == 0 {
			return []any{text}
		}
		return append([]any{text, strings.Join(declarations, ", ")}, out...)
	}
	return procedure, bind, nil
}

func argument(name string, args []rowlock.Arg) (typed, error) {
	for _, a := range args {
		if a.Name != name {
			continue
		}
		value, err := declare(a.Value)
		if err != nil {
			return typed{}, fmt.Errorf("@%s: %w", name, err)
		}
		return value, nil
	}
	return typed{}, fmt.Errorf("@%s has no argument", name)
}

// refused is an argument list that cannot be made. It is a driver.Valuer, so that its error is
// that of the statement.
type refused struct{ err error }

// Value implements driver.Valuer.
func (r refused) Value() (driver.Value, error) { return nil, r.err }
