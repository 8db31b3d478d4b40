package config

import (
	"fmt"
	"strings"
)

// Page returns docs/configuration.md, made from the table.
func Page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	writeTables(&b, Table())
	writeTables(&b, ClientTable())
	b.WriteString(clientFoot)
	return b.String()
}

func writeTables(b *strings.Builder, table []Option) {
	group := ""
	for _, o := range table {
		if o.Group != group {
			group = o.Group
			fmt.Fprintf(b, "\n## %s\n\n| flag | variable | default | meaning |\n|---|---|---|---|\n", group)
		}
		flag := "--" + o.Flag
		if o.Placeholder != "" {
			flag += "=" + o.Placeholder
		}
		value := ""
		if o.Default != "" {
			value = "`" + o.Default + "`"
		}
		help := o.Help
		if o.Secret {
			help += " Masked where it is printed."
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s | %s |\n", flag, o.Env, value, help)
	}
}

const clientFoot = `
These four belong to [the commands of an operator](cli.md), which speak to a server that runs. They are given by flag or variable; the file is
the server's and does not hold them.
`

const pageHead = `<!-- Made by "make generate" from internal/config/options.go; edit that file. -->
# Configuration

Every option of ` + "`queuebox-server`" + ` can be given in three ways. A flag wins over an environment variable, a variable
wins over the configuration file, and the file wins over the default.

- **Flag:** ` + "`--max-wait=10s`" + `. A switch is turned on by its name and off by ` + "`--no-`" + ` before it: ` + "`--no-create-queues`" + `.
- **Variable:** ` + "`QUEUEBOX_MAX_WAIT=10s`" + `. Switches take ` + "`true` and `false`" + `.
- **File:** named by ` + "`--config`" + `, YAML, one ` + "`name: value`" + ` a line. A name is that of the flag without the dashes in front:

` + "```yaml\nstorage-file: /run/secrets/queuebox-storage\nlisten: 127.0.0.1:7420\nmax-wait: 10s\ncreate-queues: false\n```" + `

A name that no option has stops the start, and the message names the nearest one that exists. This holds for flags, for
keys and for all variables that begin with ` + "`QUEUEBOX_`" + ` (but for ` + "`QUEUEBOX_TEST_…`" + `, which belong to the tests of this repository).

A secret has a companion that ends in ` + "`-file`" + ` and reads the value from a file; giving both in the same way is an error. The
server masks secrets wherever it prints its configuration.

Durations are written ` + "`250ms`, `30s`, `10m`, `12h`" + `; sizes ` + "`65536`, `64KiB`, `1MiB`" + `.

` + "`serve`" + ` takes all options, ` + "`migrate`" + ` those of the groups General, Storage and Log, ` + "`healthcheck`" + ` takes ` + "`--config`, `--listen`" + ` and
` + "`--timeout`" + `. All of them read the same variables and the same file.
`
