package rowlock

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// statement is the name of a file of queries, without .sql.
type statement string

// compiled is a statement as the driver takes it.
type compiled struct {
	text string
	bind func([]Arg) []any
}

// part is where a statement has a text of queries/parts, which others have too.
var part = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)

// load reads and compiles all statements of the engine.
func load(e *Engine) (map[statement]compiled, error) {
	files, err := fs.Glob(e.Queries, "queries/*.sql")
	if err != nil {
		return nil, err
	}
	all := make(map[statement]compiled, len(files))
	for _, file := range files {
		text, err := Text(e, strings.TrimSuffix(path.Base(file), ".sql"))
		if err != nil {
			return nil, err
		}
		c := compiled{}
		if c.text, c.bind, err = e.Compile(text); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[statement(strings.TrimSuffix(path.Base(file), ".sql"))] = c
	}
	return all, nil
}

// Text gives a statement of the engine with its parts put in, and the comments left out.
func Text(e *Engine, name string) (string, error) {
	raw, err := fs.ReadFile(e.Queries, "queries/"+name+".sql")
	if err != nil {
		return "", fmt.Errorf("read statement %s: %w", name, err)
	}
	text := bare(string(raw))
	for part.MatchString(text) && err == nil {
		text = part.ReplaceAllStringFunc(text, func(found string) string {
			name := part.FindStringSubmatch(found)[1]
			if name == "now" {
				return e.Now
			}
			raw, missing := fs.ReadFile(e.Queries, "queries/parts/"+name+".sql")
			err = errors.Join(err, missing)
			return bare(string(raw))
		})
	}
	if err != nil {
		return "", fmt.Errorf("read statement %s: %w", name, err)
	}
	return text, nil
}

// bare drops the lines that are comments: they are for readers of the file.
func bare(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// Positional compiles for a driver whose placeholders are question marks: each :name
// becomes one, and its argument is repeated as often as the name stands in the text. Texts
// in quotes are left alone.
func Positional(text string) (string, func([]Arg) []any, error) {
	var (
		b     strings.Builder
		names []string
	)
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\'' || c == '"' || c == '`':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				return "", nil, fmt.Errorf("a quote %q without end", c)
			}
			b.WriteString(text[i : i+end+2])
			i += end + 2
		case c == ':' && i+1 < len(text) && isNameStart(text[i+1]):
			end := i + 1
			for end < len(text) && isName(text[end]) {
				end++
			}
			names = append(names, text[i+1:end])
			b.WriteByte('?')
			i = end
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String(), func(args []Arg) []any {
		values := make([]any, len(names))
		for i, name := range names {
			values[i] = missing{name}
			for _, a := range args {
				if a.Name == name && a.Value != nil { // a nil without a type would fail elsewhere
					values[i] = a.Value
				}
			}
		}
		return values
	}, nil
}

// missing is an argument that was not given, or has no type: no driver takes it, so the
// statement fails.
type missing struct{ name string }

func isNameStart(c byte) bool { return c >= 'a' && c <= 'z' }
func isName(c byte) bool      { return isNameStart(c) || c >= '0' && c <= '9' || c == '_' }
