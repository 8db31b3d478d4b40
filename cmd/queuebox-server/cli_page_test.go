package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/cmd/queuebox-server/ops"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
)

// pageBlock is a marked piece of docs/cli.md: commands, or what one of them prints.
type pageBlock struct {
	mark, kind, text string
}

func cliPage(t *testing.T) (string, []pageBlock) {
	t.Helper()
	page, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	blocks := markedBlocks(string(page))
	require.Len(t, blocks, strings.Count(string(page), "```\n"), "every piece of the page is run or compared")
	return string(page), blocks
}

// markedBlocks are the pieces of a page that are run or compared.
func markedBlocks(page string) []pageBlock {
	var blocks []pageBlock
	for _, m := range regexp.MustCompile("(?s)<!-- clitest(?:: ([a-z ]+))? -->\n```([a-z]+)\n(.*?)```\n").FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, pageBlock{mark: m[1], kind: m[2], text: m[3]})
	}
	return blocks
}

// TestTheCommandsOfThePage runs the lines of docs/cli.md as printed, in order, in one shell, and compares what
// the page says that they print.
func TestTheCommandsOfThePage(t *testing.T) {
	_, blocks := cliPage(t)
	runBlocks(t, blocks)
}

// TestTheRedriveAndPurgeOfTheOperationsPage does the same for the marked pieces of docs/operations.md.
func TestTheRedriveAndPurgeOfTheOperationsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	blocks := markedBlocks(string(page))
	require.NotEmpty(t, blocks)
	runBlocks(t, blocks)
}

func runBlocks(t *testing.T, blocks []pageBlock) {
	t.Helper()
	server := blackbox.Start(t, blackbox.Options{Storage: "sqlite://" + filepath.Join(t.TempDir(), "queuebox.db")})
	dir := t.TempDir()
	require.NoError(t, os.Symlink(blackbox.Binary(t), filepath.Join(dir, "queuebox-server")))

	// Each command's output goes to a file of its own, by way of a mark on standard output.
	const mark = "##### "
	var script strings.Builder
	var commands []string
	for _, b := range blocks {
		if b.kind != "sh" {
			continue
		}
		if b.mark != "" {
			script.WriteString("echo '" + b.mark + "' >&3; read -r _ <&4\n")
		}
		for line := range strings.Lines(b.text) {
			script.WriteString("echo '" + mark + "'\n" + line)
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "QUEUEBOX_") })
	cmd.Env = append(cmd.Env, "QUEUEBOX_SERVER="+server.Addr, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	scenes(t, cmd, server.Client(t))
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, stderr.String())
	outputs := strings.Split(string(out), mark+"\n")[1:]
	require.Len(t, outputs, len(commands))

	last, first := -1, -1
	for _, b := range blocks {
		if b.kind == "sh" {
			n := strings.Count(b.text, "\n")
			first, last = last+1, last+n
			continue
		}
		at := last
		if strings.Contains(b.mark, "first") {
			at = first
		}
		require.Equal(t, alike(b.text), alike(outputs[at]), "%s", commands[at])
	}
}

// scenes plays the workers of the page: a block may say in its mark what has happened before it.
func scenes(t *testing.T, cmd *exec.Cmd, c *blackbox.Client) {
	t.Helper()
	asked, ask, err := os.Pipe()
	require.NoError(t, err)
	answered, answer, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{ask, answered}
	played := make(chan struct{})
	go func() {
		defer close(played)
		lines := bufio.NewScanner(asked)
		for lines.Scan() {
			if err := play(t.Context(), c, lines.Text()); err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
			}
			_, _ = answer.WriteString("\n")
		}
	}()
	t.Cleanup(func() {
		_ = ask.Close()
		<-played
		for _, f := range []*os.File{asked, answered, answer} {
			_ = f.Close()
		}
	})
}

func play(ctx context.Context, c *blackbox.Client, scene string) error {
	claim := func(n int) ([]*queueboxv1.ClaimedMessage, error) {
		for range n {
			if _, err := c.Enqueue(ctx, &queueboxv1.EnqueueRequest{Queue: "jobs", Payload: []byte("x")}); err != nil {
				return nil, err
			}
		}
		out, err := c.Claim(ctx, &queueboxv1.ClaimRequest{Queue: "jobs", WorkerId: "worker-7", MaxMessages: int32(n)})
		return out.GetMessages(), err
	}
	switch scene {
	case "a worker holds a message":
		_, err := claim(1)
		return err
	case "messages are dead":
		claimed, err := claim(3)
		for _, m := range claimed {
			if _, err := c.DeadLetter(ctx, &queueboxv1.DeadLetterRequest{
				Queue: "jobs", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), Error: "dial db:5432: connection refused",
			}); err != nil {
				return err
			}
		}
		return err
	case "the queue was counted":
		for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			out, err := c.Admin.GetQueueStats(ctx, &queueboxv1.GetQueueStatsRequest{Queue: "jobs"})
			if err != nil || out.GetAsOfTime().AsTime().After(start) {
				return err
			}
		}
	default:
		return errors.New("no such scene")
	}
}

// alike keeps of a text what does not differ from run to run.
func alike(text string) string {
	for _, r := range [][2]string{
		{`\bm[0-9a-z]{24,}\b`, "ID"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "WHEN"},
		{`\d\d:\d\d:\d\d`, "TIME"},
		{`\b(\d+(\.\d+)?(ms|s|m|h|d))+\b`, "SPAN"},
		{` +`, " "},
		{`(?m) $`, ""},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// Every command of an operator stands on the page.
func TestThePageNamesEveryCommand(t *testing.T) {
	page, _ := cliPage(t)
	p, err := kong.New(&ops.Commands{}, kong.Name("queuebox-server"))
	require.NoError(t, err)
	leaves := p.Model.Leaves(true)
	require.NotEmpty(t, leaves)
	for _, leaf := range leaves {
		require.Contains(t, page, leaf.FullPath(), "docs/cli.md")
	}
}
