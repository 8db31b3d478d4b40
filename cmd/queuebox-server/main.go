// Command queuebox-server serves queues over gRPC on a database that is already there.
// Without any flag it keeps its messages in a SQLite file in the working directory and
// listens on loopback addresses. docs/configuration.md lists the options.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/queuebox/queuebox/cmd/queuebox-server/ops"
	"github.com/queuebox/queuebox/internal/config"
)

// Exit codes: a start or a check that failed, and a command line, variable or file that
// makes no sense.
const (
	exitFailure = 1
	exitUsage   = 2
)

type commands struct {
	Serve       serveCmd       `cmd:"" default:"withargs" help:"Serve queues (the default)."`
	Migrate     migrateCmd     `cmd:"" help:"Bring the schema of the database up to date."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
	Healthcheck healthcheckCmd `cmd:"" help:"Ask the server on this machine whether it is healthy: exit code 0 if it is."`

	ops.Commands
}

// app is what the commands share.
type app struct {
	loader *config.Loader
	stdout io.Writer
	stderr io.Writer
}

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

func run(args, environ []string, stdout, stderr io.Writer) int {
	var (
		c        commands
		helped   bool
		helpCode int
	)
	a := &app{loader: config.NewLoader(environ), stdout: stdout, stderr: stderr}
	parser, err := kong.New(&c,
		kong.Name("queuebox-server"),
		kong.Description("A message queue with fenced claims on the database that you already run.\n\n"+
			"Options of a command: queuebox-server serve --help, queuebox-server queues update --help"),
		kong.Writers(stdout, stderr),
		kong.Resolvers(a.loader),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ValueFormatter(a.formatHelp),
		kong.Bind(a, ops.NewEnv(os.Stdin, stdout, stderr)),
		// Help ends the parser; that it ends the process is not for a library to say.
		kong.Exit(func(code int) { helped, helpCode = true, code }),
	)
	if err != nil {
		return complain(stderr, fmt.Errorf("command line: %w", err), exitFailure)
	}
	if len(args) > 0 && args[0] == ops.CompleteCommand {
		// Whatever goes wrong has no place on a command line that is being typed.
		_ = ops.Complete(parser.Model.Node, args[1:], a.loader.Client(), stdout)
		return 0
	}
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"} // what most programs call it
	}
	if err := readable(args); err != nil {
		return complain(stderr, err, exitUsage)
	}
	ctx, err := parser.Parse(args)
	if helped {
		return helpCode
	}
	if err != nil {
		return complain(stderr, fmt.Errorf("%s (%s)", plainly(err), way(parser.Model.Node, args)), exitUsage)
	}
	if err := ctx.Run(); err != nil {
		code := exitFailure
		_, own := errors.AsType[usageError](err)
		if _, operators := errors.AsType[ops.UsageError](err); own || operators {
			code = exitUsage
		}
		return complain(stderr, err, code)
	}
	return 0
}

// readable refuses what is no text. The parser would put another character in its place, and so
// enqueue another body, or purge another queue, than the one that was named.
func readable(args []string) error {
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			return fmt.Errorf("the argument %+q is not valid UTF-8; a body of any bytes comes from --payload-file=PATH", arg)
		}
	}
	return nil
}

// plainly is the text of a parser's error in the words of an operator.
func plainly(err error) string {
	text := err.Error()
	flag, rest, _ := strings.Cut(text, ": ")
	if strings.HasPrefix(rest, "missing value") || strings.HasSuffix(rest, "(<EOL>)") || strings.Contains(rest, "(long flag)") {
		return flag + " needs a value"
	}
	return text
}

// way says how to go on after a command line that makes no sense. A flag that stands before its
// command is read as one of serve, which is the default.
func way(root *kong.Node, args []string) string {
	command := slices.IndexFunc(args, func(arg string) bool {
		return slices.ContainsFunc(root.Children, func(child *kong.Node) bool { return child.Name == arg && arg != "serve" })
	})
	if command > 0 && strings.HasPrefix(args[0], "-") {
		return fmt.Sprintf("the flags of %s stand after it; see queuebox-server %s", args[command], helpFor(root, args[command:]))
	}
	return "see queuebox-server " + helpFor(root, args)
}

// helpFor names the help that lists the options of the command that was meant.
func helpFor(root *kong.Node, args []string) string {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return "serve --help"
	}
	var words strings.Builder
	node := root
	for _, arg := range args {
		at := slices.IndexFunc(node.Children, func(child *kong.Node) bool { return child.Name == arg })
		if at < 0 {
			break
		}
		node = node.Children[at]
		words.WriteString(arg + " ")
	}
	return words.String() + "--help"
}

// usageError is about what the user asked for, not about what happened.
type usageError struct{ error }

// complain prints one line, however many the error has: drivers list every address that
// they tried on a line of its own.
func complain(stderr io.Writer, err error, code int) int {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	_, _ = fmt.Fprintln(stderr, "queuebox-server: "+strings.Join(lines, " "))
	return code
}

// formatHelp adds the default and the variable to the help of an option. The tag that kong has
// for the variable would make kong read it too, which is the work of the loader.
func (a *app) formatHelp(value *kong.Value) string {
	if value.Flag == nil || !a.loader.Known(value.Name) {
		return value.Help
	}
	start := ""
	if value.HasDefault {
		start = "default " + value.Default + ", "
	}
	return value.Help + " (" + start + "$" + config.EnvName(value.Name) + ")"
}
