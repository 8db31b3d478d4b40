package mssql_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// mysqlStatement is what can be told of a statement of MySQL without a parser of its SQL.
type mysqlStatement struct {
	parameters []string
	columns    []string // of its rows; nil where it changes rows
}

var (
	quoted     = regexp.MustCompile(`'[^']*'`)
	parameter  = regexp.MustCompile(`:([a-z][a-z0-9_]*)`)
	mysqlAlias = regexp.MustCompile("(?is)^(.*)\\s+AS\\s+`?(\\w+)`?$")
	lastName   = regexp.MustCompile("^`?(?:\\w+`?\\.`?)?(\\w+)`?$")
)

func readMySQL(t *testing.T, name string) mysqlStatement {
	t.Helper()
	text, err := rowlock.Text(&rowlock.Engine{Queries: os.DirFS("../mysql"), Now: "sysdate(6)"}, name)
	require.NoError(t, err, filepath.Join("../mysql/queries", name+".sql"))
	var s mysqlStatement
	for _, m := range parameter.FindAllStringSubmatch(quoted.ReplaceAllString(text, "''"), -1) {
		if !slices.Contains(s.parameters, m[1]) {
			s.parameters = append(s.parameters, m[1])
		}
	}
	slices.Sort(s.parameters)
	if list, ok := selectList(text); ok {
		for _, e := range split(list) {
			e = strings.TrimSpace(e)
			if m := mysqlAlias.FindStringSubmatch(e); m != nil {
				s.columns = append(s.columns, m[2])
			} else if m := lastName.FindStringSubmatch(e); m != nil {
				s.columns = append(s.columns, m[1])
			} else {
				s.columns = append(s.columns, "?")
			}
		}
	}
	return s
}

// selectList is what stands between SELECT and FROM, where a statement begins with SELECT or
// with a parenthesis and SELECT.
func selectList(text string) (string, bool) {
	text = strings.TrimLeft(text, " \n\t(")
	if !strings.HasPrefix(strings.ToUpper(text), "SELECT") {
		return "", false
	}
	text = strings.TrimSpace(text[len("SELECT"):])
	for _, word := range []string{"DISTINCT ", "STRAIGHT_JOIN ", "SQL_NO_CACHE "} {
		text = strings.TrimPrefix(text, word)
	}
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
			if depth < 0 {
				return text[:i], true
			}
		case ';':
			return text[:i], true
		}
		if depth == 0 && i > 0 && isBlank(text[i-1]) {
			for _, word := range []string{"FROM", "WHERE", "UNION"} {
				if strings.HasPrefix(text[i:], word) && i+len(word) < len(text) && isBlank(text[i+len(word)]) {
					return text[:i], true
				}
			}
		}
	}
	return text, true
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' }

// split splits at the commas outside of parentheses and quotes.
func split(list string) []string {
	var parts []string
	depth, start, quote := 0, 0, false
	for i := range len(list) {
		switch c := list[i]; {
		case c == '\'':
			quote = !quote
		case quote:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, list[start:i])
			start = i + 1
		}
	}
	return append(parts, list[start:])
}
