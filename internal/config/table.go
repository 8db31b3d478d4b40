package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// Option is one row of the table.
type Option struct {
	// Flag is the name without the dashes in front. It is the key in the file too.
	Flag string
	// Env is the name of the variable.
	Env string
	// Default as text; "" where there is none.
	Default string
	Help    string
	Group   string
	// Placeholder stands for the value in the help text, "" for a switch.
	Placeholder string
	// Secret values are masked where they are printed.
	Secret bool
	// InFile is false for --config and for the options of the operator's commands.
	InFile bool
}

// Table returns every option of the server in the order of [Options].
func Table() []Option {
	table := tableOf(&Options{})
	for i := range table {
		table[i].InFile = table[i].Flag != "config"
	}
	return table
}

// ClientTable returns the options in the order of [ClientOptions].
func ClientTable() []Option { return tableOf(&ClientOptions{}) }

func tableOf(options any) []Option {
	// Only a broken tag can fail here, and then every test does.
	parser, err := kong.New(options, kong.NoDefaultHelp())
	if err != nil {
		panic(fmt.Sprintf("config: tags of %T: %v", options, err))
	}
	table := make([]Option, 0, len(parser.Model.Flags))
	for _, flag := range parser.Model.Flags {
		o := Option{
			Flag:    flag.Name,
			Env:     EnvName(flag.Name),
			Default: flag.Default,
			Help:    flag.Help,
			Secret:  flag.Tag.Has("secret"),
		}
		if flag.Group != nil {
			o.Group = flag.Group.Title
		}
		if flag.Target.Kind() == reflect.Bool {
			if o.Default == "" {
				o.Default = "false"
			}
		} else {
			o.Placeholder = flag.FormatPlaceHolder()
		}
		table = append(table, o)
	}
	return table
}

// EnvName returns the variable of a flag.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
