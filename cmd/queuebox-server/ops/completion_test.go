package ops

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/config"
)

// complete returns the candidates for the last word, without their help.
func complete(t *testing.T, server string, words ...string) []string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Complete(parser(t, &Env{}, nil).Model.Node, words, config.ClientOptions{Server: server}, &out))
	var values []string
	for line := range strings.Lines(out.String()) {
		value, _, _ := strings.Cut(line, "\t")
		values = append(values, value)
	}
	return values
}

func TestCandidates(t *testing.T) {
	b := serve(t)
	b.ok("queues", "create", "jobs")
	b.ok("queues", "create", "mail")
	for _, tt := range []struct {
		words string // split at spaces; the last one is at the cursor
		want  string
	}{
		{"q", "queues"},
		{"queues ", "create get list pause resume stats update"},
		{"queues pa", "pause"},
		{"queues get ", "jobs mail"},
		{"queues get j", "jobs"},
		{"queues get jobs ", ""},
		{"queues stats jobs m", "mail"},
		{"messages list --state d", "dead"},
		{"messages list --state=d", "--state=dead"},
		{"messages list --state = d", "dead"}, // bash takes the word apart
		{"messages list --state =", "cancelled completed dead pending processing"},
		{"messages list -o j", "json"},
		{"messages list --all jobs --sin", "--since"},
		{"messages list --limit 5 j", "jobs"},
		{"messages list --limit = 5 j", "jobs"},
		{"messages list --limit 5 jobs --li", ""},
		{"messages list --state dead --sta", "--state"},
		{"messages get jobs ", ""},
		{"completion ", "bash fish zsh"},
		{"queues update jobs --ordering ", "block-on-dead skip-dead"},
		{"queues get -- --", ""},
		{"nonsense ", ""},
		{"messages list --payl", "--payload"},
		{"enqueue jobs --payload-file ", ""},
	} {
		require.Equal(t, strings.Fields(tt.want), append([]string{}, complete(t, b.addr, strings.Split(tt.words, " ")...)...), tt.words)
	}
	require.Equal(t, []string{"jobs", "mail"}, complete(t, "127.0.0.1:1", "queues", "get", "--server", b.addr, ""), "the address on the line counts")
	require.Empty(t, complete(t, "127.0.0.1:1", "queues", "get", ""), "nobody is there")
	require.Contains(t, complete(t, b.addr), "queues")
	require.Contains(t, complete(t, b.addr, "queues", "list", "--"), "--server-tls")
}

func TestCandidatesHaveHelp(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Complete(parser(t, &Env{}, nil).Model.Node, []string{"queues", "create", "x", "--comp"}, config.ClientOptions{}, &out))
	require.Equal(t, "--completed-retention\tHow long completed messages are kept, at least 10m\n", out.String())
}

// shell returns a shell, or ends the test where this machine has none.
func shell(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("this machine has no %s", name)
	}
	return path
}

// tab is a program under the name of the server that answers as Complete does, from a file, and
// keeps the words that it was asked about.
func tab(t *testing.T, answer string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\nprintf '%s|' \"$@\" >>" + dir + "/asked\nprintf '" + answer + "'\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "queuebox-server"), []byte(script), 0o700))
	return dir
}

func scriptOf(t *testing.T, dir, name string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, (&completionCmd{Shell: name}).Run(&Env{Stdout: &out}))
	path := filepath.Join(dir, "_queuebox-server")
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	return path
}

func runShell(t *testing.T, dir, path string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func asked(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "asked"))
	require.NoError(t, err)
	return string(b)
}

func TestBash(t *testing.T) {
	bash := shell(t, "bash")
	dir := tab(t, "jobs\\tqueue\\nmy mail\\tqueue\\n")
	script := scriptOf(t, dir, "bash")
	runShell(t, dir, bash, "-n", script)
	out := runShell(t, dir, bash, "--norc", "-c", `source "$0"
complete -p queuebox-server
COMP_WORDS=(queuebox-server queues get "") COMP_CWORD=3
_queuebox_server
printf '<%s>\n' "${COMPREPLY[@]}"`, script)
	require.Equal(t, "complete -o default -F _queuebox_server queuebox-server\n<jobs>\n<my\\ mail>\n", out)
	require.Equal(t, "__complete|queues|get||", asked(t, dir))
}

func TestZsh(t *testing.T) {
	zsh := shell(t, "zsh")
	dir := tab(t, "jobs\\tqueue\\na:b\\tqueue\\n")
	script := scriptOf(t, dir, "zsh")
	runShell(t, dir, zsh, "-n", script)
	out := runShell(t, dir, zsh, "-f", "-c", `compdef() { print "compdef $@" }
_describe() { print -rl -- "${(@P)2}" }
source "$0"
words=(queuebox-server queues get "") CURRENT=4
_queuebox_server`, script)
	require.Equal(t, "compdef _queuebox_server queuebox-server\njobs:queue\na\\:b:queue\n", out)
	require.Equal(t, "__complete|queues|get||", asked(t, dir))
}

func TestFish(t *testing.T) {
	fish := shell(t, "fish")
	dir := tab(t, "jobs\\tqueue\\nmail\\tqueue\\n")
	script := scriptOf(t, dir, "fish")
	runShell(t, dir, fish, "--no-config", "-n", script)
	out := runShell(t, dir, fish, "--no-config", "-c", "source "+script+"; complete -C 'queuebox-server queues get '")
	require.Equal(t, "jobs\tqueue\nmail\tqueue\n", out)
	require.Equal(t, "__complete|queues|get||", asked(t, dir))
}
