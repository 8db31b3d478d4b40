package ops

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/config"
)

// CompleteCommand is the word by which the scripts of the shells ask for candidates. The words
// of the command line follow, the one at the cursor last.
const CompleteCommand = "__complete"

// completeTimeout bounds how long a shell waits for the names of queues.
const completeTimeout = time.Second

// candidate is a word that can stand at the cursor.
type candidate struct{ value, help string }

// line is a command line up to the cursor.
type line struct {
	node     *kong.Node        // the command so far
	wants    *kong.Flag        // the flag whose value stands at the cursor
	args     int               // positional words before it
	flags    map[string]string // values of flags
	word     string
	onlyArgs bool // after --
}

// Complete prints the candidates for the last word, one a line, with a tab and a help text
// behind. The options say where the queues are, as far as the line does not.
func Complete(root *kong.Node, words []string, options config.ClientOptions, w io.Writer) error {
	if len(words) == 0 {
		words = []string{""}
	}
	l := read(root, words)
	found := l.candidates(options)
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.value, b.value) })
	var text strings.Builder
	for _, c := range found {
		if !strings.HasPrefix(c.value, l.word) {
			continue
		}
		help, _, _ := strings.Cut(c.help, ". ")
		fmt.Fprintf(&text, "%s\t%s\n", harmless(c.value), harmless(strings.TrimSuffix(help, ".")))
	}
	return write(w, []byte(text.String()))
}

// read finds out what is at the cursor.
func read(root *kong.Node, words []string) *line {
	l := &line{node: root, flags: map[string]string{}}
	before := words[:len(words)-1]
	l.word = words[len(words)-1]
	for i := 0; i < len(before); i++ {
		word := before[i]
		switch {
		case word == "--":
			l.onlyArgs = true
		case !l.onlyArgs && strings.HasPrefix(word, "-") && word != "-":
			name, value, given := strings.Cut(word, "=")
			flag := l.flag(name)
			if given || flag == nil || takesNoValue(flag) {
				if flag != nil {
					l.flags[flag.Name] = value
				}
				continue
			}
			// Bash takes --flag=value apart into three words.
			if i+1 < len(before) && before[i+1] == "=" {
				i++
			}
			if i+1 >= len(before) {
				l.wants = flag
				if l.word == "=" { // bash, with the cursor right behind the sign
					l.word = ""
				}
				return l
			}
			i++
			l.flags[flag.Name] = before[i]
		default:
			if child := childOf(l.node, word); child != nil && l.args == 0 {
				l.node = child
			} else {
				l.args++
			}
		}
	}
	if name, _, given := strings.Cut(l.word, "="); given && strings.HasPrefix(name, "-") && !l.onlyArgs {
		l.wants = l.flag(name)
	}
	return l
}

func childOf(n *kong.Node, name string) *kong.Node {
	for _, child := range n.Children {
		if child.Name == name || slices.Contains(child.Aliases, name) {
			return child
		}
	}
	return nil
}

// nodes are the command and those above it. Flags of the default command can be given
// without its name.
func (l *line) nodes() []*kong.Node {
	var nodes []*kong.Node
	for n := l.node; n != nil; n = n.Parent {
		nodes = append(nodes, n)
	}
	if l.node.DefaultCmd != nil {
		nodes = append(nodes, l.node.DefaultCmd)
	}
	return nodes
}

func (l *line) flag(name string) *kong.Flag {
	for _, n := range l.nodes() {
		for _, f := range n.Flags {
			if name == "--"+f.Name || (f.Short != 0 && name == "-"+string(f.Short)) {
				return f
			}
		}
	}
	return nil
}

func takesNoValue(f *kong.Flag) bool { return f.IsBool() || f.IsCounter() }

func (l *line) candidates(options config.ClientOptions) []candidate {
	switch {
	case l.wants != nil:
		prefix := ""
		if name, _, given := strings.Cut(l.word, "="); given && strings.HasPrefix(name, "-") {
			prefix = name + "="
		}
		return l.values(l.wants.Value, prefix, options)
	case strings.HasPrefix(l.word, "-") && !l.onlyArgs:
		return l.flagCandidates()
	case l.args < len(l.node.Positional):
		return l.values(l.node.Positional[l.args], "", options)
	case len(l.node.Positional) > 0 && l.node.Positional[len(l.node.Positional)-1].IsSlice():
		return l.values(l.node.Positional[len(l.node.Positional)-1], "", options)
	}
	var out []candidate
	for _, child := range l.node.Children {
		if !child.Hidden && l.args == 0 {
			out = append(out, candidate{child.Name, child.Help})
		}
	}
	return out
}

func (l *line) flagCandidates() []candidate {
	var out []candidate
	for _, n := range l.nodes() {
		for _, f := range n.Flags {
			_, given := l.flags[f.Name]
			if f.Hidden || (given && !f.IsSlice() && !f.IsMap()) {
				continue
			}
			out = append(out, candidate{"--" + f.Name, f.Help})
		}
	}
	return out
}

// values are the candidates of a flag or a positional word.
func (l *line) values(v *kong.Value, prefix string, options config.ClientOptions) []candidate {
	var out []candidate
	switch {
	case v.Enum != "":
		for _, value := range v.EnumSlice() {
			out = append(out, candidate{prefix + value, ""})
		}
	case v.Tag.Get("complete") == "queue":
		for _, name := range l.queues(options) {
			out = append(out, candidate{prefix + name, "queue"})
		}
	}
	return out
}

// forNow is the context of what a time limit ends soon.
func forNow() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }

// queues asks the server for the names of its queues. A shell that gets no answer in a moment
// offers nothing; an error has no place at the cursor.
func (l *line) queues(options config.ClientOptions) []string {
	c := &connection{ClientOptions: options, Timeout: completeTimeout}
	for flag, value := range l.flags {
		switch flag {
		case "server":
			c.Server = value
		case "server-ca":
			c.ServerCA = value
		case "server-tls":
			c.ServerTLS = true
		case "server-plaintext":
			c.ServerPlaintext = true
		}
	}
	var names []string
	_ = c.with(&Env{Stdout: io.Discard, Stderr: io.Discard, Begin: forNow}, func(ctx context.Context, s *session) error {
		page, err := call(ctx, s, s.admin.ListQueues, &queueboxv1.ListQueuesRequest{PageSize: 1000})
		for _, q := range page.GetQueues() {
			names = append(names, q.GetQueue())
		}
		return err
	})
	return names
}
