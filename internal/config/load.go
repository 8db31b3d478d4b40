package config

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Source says where the value of an option comes from. A larger one wins.
type Source int

// The sources, in rising order.
const (
	FromDefault Source = iota
	FromFile
	FromEnv
	FromFlag
)

// String names a source as the start block prints it.
func (s Source) String() string {
	switch s {
	case FromFile:
		return "file"
	case FromEnv:
		return "environment"
	case FromFlag:
		return "flag"
	case FromDefault:
	}
	return "default"
}

// Loader fills options that are not on the command line from the environment and the
// configuration file. It is a [kong.Resolver]; the variables are read here and not by
// kong, because kong puts the value into its error texts and a value may be a secret.
type Loader struct {
	table   map[string]Option
	environ []string

	started bool
	err     error
	env     map[string]string
	file    map[string]string
	origin  map[string]Source
}

// NewLoader makes a loader over an environment as [os.Environ] gives it.
func NewLoader(environ []string) *Loader {
	table := map[string]Option{}
	for _, o := range slices.Concat(Table(), ClientTable()) {
		table[o.Flag] = o
	}
	return &Loader{table: table, environ: environ, origin: map[string]Source{}}
}

// Known tells whether the table has an option of that name.
func (l *Loader) Known(flag string) bool {
	_, known := l.table[flag]
	return known
}

// Validate reports what went wrong in Resolve. Kong would put the name of an innocent
// flag in front of an error that Resolve returns.
func (l *Loader) Validate(*kong.Application) error { return l.err }

// Resolve gives the value of a flag that is not on the command line.
func (l *Loader) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !l.Known(flag.Name) {
		return nil, nil // a flag of one command alone, such as --timeout
	}
	l.start(ctx)
	if l.err != nil {
		return nil, nil //nolint:nilerr // kong's way to say "no value"; Validate reports the error
	}
	name, source := EnvName(flag.Name), FromEnv
	value, found := l.env[name]
	if !found {
		name, source = flag.Name+" in the configuration file", FromFile
		value, found = l.file[flag.Name]
	}
	if !found {
		return nil, nil // not set anywhere: the default stays
	}
	if err := l.try(flag, value); err != nil {
		l.err = fmt.Errorf("%s: %w", name, err)
		return nil, nil // Validate reports the error
	}
	l.origin[flag.Name] = source
	return value, nil
}

// try parses a value into a scratch place, so that an error names the variable or the
// key instead of the flag.
func (l *Loader) try(flag *kong.Flag, value string) error {
	scratch := reflect.New(flag.Target.Type()).Elem()
	if err := flag.Parse(kong.Scan().PushTyped(value, kong.FlagValueToken), scratch); err != nil {
		if l.table[flag.Name].Secret {
			return errors.New("cannot be read")
		}
		return err
	}
	if flag.Enum != "" && !slices.Contains(strings.Split(flag.Enum, ","), value) {
		return fmt.Errorf("must be one of %s, got %q", flag.Enum, value)
	}
	return nil
}

// start reads the environment and the file once, with the strictness of both: a name
// that nobody knows is a typing error, and a typing error must not start a server with
// a default that its operator believes changed.
func (l *Loader) start(ctx *kong.Context) {
	if l.started {
		return
	}
	l.started = true
	for _, path := range ctx.Path {
		if path.Flag != nil {
			l.origin[path.Flag.Name] = FromFlag
		}
	}
	if l.env, l.err = l.readEnv(); l.err != nil {
		return
	}
	path := ""
	for _, flag := range ctx.Flags() {
		if flag.Name != "config" {
			continue
		}
		// A command without the flag has nothing to read from the file either.
		path = l.env[EnvName("config")]
		if value, ok := ctx.FlagValue(flag).(string); ok && value != "" {
			path = value
		}
	}
	if path == "" {
		return
	}
	if l.file, l.err = readFile(path); l.err != nil {
		return
	}
	known := map[string]bool{}
	for _, o := range l.table {
		known[o.Flag] = o.InFile
	}
	for _, key := range slices.Sorted(maps.Keys(l.file)) {
		if key == "config" {
			l.err = fmt.Errorf("configuration file %s: a file cannot name another with 'config'", path)
			return
		}
		if !known[key] {
			l.err = fmt.Errorf("configuration file %s: unknown key %q; the nearest known one is %q",
				path, key, nearest(key, trueKeys(known)))
			return
		}
	}
}

// Client returns the options of an operator's command without a command line; the defaults
// where the variables make no sense. It is for what must not complain, such as the completion
// of a shell.
func (l *Loader) Client() ClientOptions {
	var o ClientOptions
	parser, err := kong.New(&o, kong.NoDefaultHelp(), kong.Resolvers(l))
	if err == nil {
		_, err = parser.Parse(nil)
	}
	if err != nil {
		return ClientOptions{}
	}
	return o
}

// trueKeys are the keys of a set.
func trueKeys(set map[string]bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for key, in := range set {
			if in && !yield(key) {
				return
			}
		}
	}
}

func (l *Loader) readEnv() (map[string]string, error) {
	known := map[string]bool{}
	for _, o := range l.table {
		known[o.Env] = true
	}
	values := map[string]string{}
	for _, entry := range l.environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, EnvPrefix) || strings.HasPrefix(name, testEnvPrefix) {
			continue
		}
		if !known[name] {
			return nil, fmt.Errorf("unknown environment variable %s; the nearest known one is %s",
				name, nearest(name, maps.Keys(known)))
		}
		values[name] = value
	}
	return values, nil
}

// Finish reads the secrets that are in files. It is called once, after parsing; c is nil
// for a command that has no connection options.
func (l *Loader) Finish(s *StorageOptions, c *ConnectionOptions) error {
	if err := l.secret("storage", &s.Storage, s.StorageFile); err != nil || c == nil {
		return err
	}
	return l.secret("listen-url", &c.ListenURL, c.ListenURLFile)
}

// secret replaces the value of an option by the content of its file, where the file was
// named by a source that wins over the one that gave the value.
func (l *Loader) secret(name string, value *string, path string) error {
	file := name + "-file"
	switch {
	case path == "" || l.origin[file] < l.origin[name]:
		return nil
	case l.origin[file] == l.origin[name]:
		return fmt.Errorf("both %s and %s are set; give one of them", name, file)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	// Editors and `echo` end a file with a line break, which is never part of a URL.
	*value = strings.TrimRight(string(content), "\r\n")
	if *value == "" {
		return fmt.Errorf("%s: %s is empty", file, path)
	}
	l.origin[name] = l.origin[file]
	return nil
}

// Setting is an option that does not have its default, fit to be printed.
type Setting struct {
	Name   string
	Value  string
	Source Source
}

// Settings lists the options that were set, in the order of the table, with secrets
// masked.
func (l *Loader) Settings(o *Options) []Setting {
	values := o.values()
	var settings []Setting
	for _, option := range Table() {
		source := l.origin[option.Flag]
		if source == FromDefault {
			continue
		}
		value := values[option.Flag]
		if option.Secret {
			value = MaskURL(value)
		}
		settings = append(settings, Setting{Name: option.Flag, Value: value, Source: source})
	}
	return settings
}

// values returns the present values by flag name.
func (o *Options) values() map[string]string {
	parser, err := kong.New(o, kong.NoDefaultHelp())
	if err != nil {
		panic(fmt.Sprintf("config: tags of Options: %v", err))
	}
	values := make(map[string]string, len(parser.Model.Flags))
	for _, flag := range parser.Model.Flags {
		values[flag.Name] = fmt.Sprint(flag.Target.Interface())
	}
	return values
}
