package ops

import (
	_ "embed"
	"strings"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is the detailed help of the command.
func (completionCmd) Help() string {
	return "Names of queues are completed too, where the server answers within a moment.\n\n" +
		"bash: source <(queuebox-server completion bash)\n\n" +
		"zsh, after compinit: source <(queuebox-server completion zsh)\n\n" +
		"fish: queuebox-server completion fish | source"
}

//go:embed completion.bash
var bashCompletion string

//go:embed completion.zsh
var zshCompletion string

//go:embed completion.fish
var fishCompletion string

// Run prints the script of a shell. The scripts hold no list of commands: they ask the program
// (see [Complete]), so that they stay right when it is replaced.
func (c *completionCmd) Run(e *Env) error {
	script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	return write(e.Stdout, []byte(strings.TrimLeft(script, "\n")))
}
