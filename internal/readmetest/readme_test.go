package readmetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/pythontest"
)

// The addresses that the README prints are those of a server without flags.
const (
	defaultAddress = "127.0.0.1:7420"
	defaultMetrics = "127.0.0.1:7421"
)

func TestBlocksFindsEveryMark(t *testing.T) {
	found, err := blocks("a\n<!-- readmetest: paste -->\n```sh\nx\n```\nb\n<!-- readmetest: go -->\n```go\ny\n```\n")
	require.NoError(t, err)
	require.Equal(t, []block{{"paste", "x\n"}, {"go", "y\n"}}, found)
	_, err = blocks("<!-- readmetest: paste -->\n\n```sh\nx\n```\n")
	require.Error(t, err)
}

// The lines of the README are run as printed, in order, and each of the eight calls does
// what the README says.
func TestPasteLines(t *testing.T) {
	page := readme(t)
	address, admin := serve(t)
	calls := paste(t, texts(page, "paste"), address, installGrpcurl(t, texts(page, "install")))

	names := make([]string, len(calls))
	for i, c := range calls {
		names[i] = c.Method
	}
	require.Equal(t, []string{
		"Enqueue", "Enqueue", "Claim", "Renew", "Complete", "Claim", "Retry", "Claim", "DeadLetter", "ListQueues", "GetQueueStats",
	}, names)

	// What each answer said.
	first, second := calls[0].text(t, "messageId"), calls[1].text(t, "messageId")
	require.NotEqual(t, first, second)
	require.NotContains(t, calls[0].Answer, "duplicate")
	require.Contains(t, calls[2].Answer, first)
	require.Contains(t, calls[2].Answer, "aGVsbG8=")
	require.Contains(t, calls[2].Answer, "claimToken")
	require.Regexp(t, `"leaseRemainingMs": "(5\d|60)\d{3}"`, calls[3].Answer)
	require.NotEmpty(t, calls[4].text(t, "completeTime"))
	require.Contains(t, calls[5].Answer, second)
	require.Equal(t, "SETTLE_OUTCOME_RETRIED", calls[6].text(t, "outcome"))
	require.Contains(t, calls[7].Answer, second)
	require.Contains(t, calls[7].Answer, `"attempt": 2`)
	require.Contains(t, calls[9].Answer, `"queue": "hello"`)
	require.Equal(t, "1", calls[10].text(t, "completedCount"))
	require.Equal(t, "1", calls[10].text(t, "deadCount"))

	// What the messages became, asked by another client.
	m := getMessage(t, admin, first)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, m.GetState())
	require.Equal(t, int32(1), m.GetAttempt())
	m = getMessage(t, admin, second)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_DEAD, m.GetState())
	require.Equal(t, queueboxv1.DeadReason_DEAD_REASON_REJECTED, m.GetDeadReason())
	require.Equal(t, "no_paper", m.GetReasonCode())
	require.Equal(t, int32(2), m.GetAttempt())

	// "Run a line twice and the second answer says duplicate" (E1).
	line, _, _ := strings.Cut(texts(page, "paste"), "\n")
	again := paste(t, line+"\n", address, installGrpcurl(t, texts(page, "install")))
	require.Contains(t, again[0].Answer, `"duplicate": true`)
	require.Equal(t, first, again[0].text(t, "messageId"))
}

// The Go program of the README builds against this module, completes its message, and ends in
// order at the first Ctrl-C and at once at the second.
func TestGoSnippet(t *testing.T) {
	source := texts(readme(t), "go")
	require.NotEmpty(t, source)
	address, admin := serve(t)
	program, log := runSnippet(t, strings.ReplaceAll(source, defaultAddress, address))
	require.Eventually(t, func() bool {
		list, err := admin.ListMessages(t.Context(), &queueboxv1.ListMessagesRequest{Queue: "mail"})
		return err == nil && len(list.GetMessages()) == 1 &&
			list.GetMessages()[0].GetState() == queueboxv1.MessageState_MESSAGE_STATE_COMPLETED
	}, time.Minute, 10*time.Millisecond, "%s", log)
	require.NoError(t, program.Process.Signal(os.Interrupt))
	require.NoError(t, program.Wait(), "%s", log)
	require.Contains(t, log.String(), "attempt 1 of hello")
	require.NotContains(t, log.String(), "WARN")

	// A handler that ignores its context has the whole stop budget, unless Ctrl-C comes again.
	const end, key = "return ctx.Err()", `"mail-1"`
	require.Equal(t, 1, strings.Count(source, end))
	require.Equal(t, 1, strings.Count(source, key))
	source = strings.ReplaceAll(strings.ReplaceAll(source, end, "select {}"), key, `"mail-2"`)
	program, log = runSnippet(t, strings.ReplaceAll(source, defaultAddress, address))
	requireSoon := func(text string) {
		require.Eventually(t, func() bool { return strings.Contains(log.String(), text) }, time.Minute, 10*time.Millisecond, "%s", log)
	}
	requireSoon("attempt 1 of hello")
	require.NoError(t, program.Process.Signal(os.Interrupt))
	requireSoon("stopping")
	require.NoError(t, program.Process.Signal(os.Interrupt))
	require.Error(t, program.Wait())
	status, ok := program.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled() && status.Signal() == os.Interrupt, "it is ended by the signal, not by its budget\n%s", log)
}

// runSnippet builds a Go program and starts it.
func runSnippet(t *testing.T, source string) (*exec.Cmd, *syncBuffer) {
	t.Helper()
	dir := t.TempDir()
	file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "snippet")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	command(t, root, "go", "build", "-o", binary, file)
	program, log := exec.CommandContext(t.Context(), binary), &syncBuffer{}
	program.Stdout, program.Stderr = log, log
	require.NoError(t, program.Start())
	t.Cleanup(func() {
		if program.ProcessState == nil {
			_ = program.Process.Kill()
			_ = program.Wait()
		}
	})
	return program, log
}

// The Python program of the README runs and completes its message.
func TestPythonSnippet(t *testing.T) {
	source := texts(readme(t), "python")
	require.NotEmpty(t, source)
	python := pythontest.Find(t)
	address, admin := serve(t)
	out := command(t, root, python, "-B", "-c", strings.ReplaceAll(source, defaultAddress, address))
	require.Equal(t, "completed b'hello' None\n", out)
	list, err := admin.ListMessages(t.Context(), &queueboxv1.ListMessagesRequest{Queue: "letters"})
	require.NoError(t, err)
	require.Len(t, list.GetMessages(), 1)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, list.GetMessages()[0].GetState())
}

const root = "../.."

func readme(t *testing.T) []block {
	t.Helper()
	return page(t, "README.md")
}

func page(t *testing.T, name string) []block {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	all, err := blocks(string(page))
	require.NoError(t, err)
	return all
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s %v\n%s%s", name, args, out.String(), errs.String())
	return out.String()
}

// serve builds the server and starts it in an empty directory: without flags where the
// default ports are free, else on others, which paste then puts into the lines.
func serve(t *testing.T) (string, queueboxv1.AdminServiceClient) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "queuebox-server")
	command(t, root, "go", "build", "-o", binary, "./cmd/queuebox-server")
	if free(t, defaultAddress) && free(t, defaultMetrics) {
		if admin, err := start(t, binary, defaultAddress); err == nil {
			return defaultAddress, admin
		}
		// Another program may have taken a port since the look.
		require.False(t, free(t, defaultAddress) && free(t, defaultMetrics), "a server without flags starts where its ports are free")
	}
	address := freeAddress(t)
	t.Logf("the default ports are taken, so the server runs on %s", address)
	admin, err := start(t, binary, address, "serve", "--listen", address, "--metrics-listen", freeAddress(t))
	require.NoError(t, err)
	return address, admin
}

// start starts a server that is ended in order with the test, and waits until it answers.
func start(t *testing.T, binary, address string, args ...string) (queueboxv1.AdminServiceClient, error) {
	t.Helper()
	server := exec.Command(binary, args...) // no context: it is ended in order below
	server.Dir = t.TempDir()
	server.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "QUEUEBOX_") && !strings.HasPrefix(v, "QUEUEBOX_TEST_")
	})
	var log syncBuffer
	server.Stdout, server.Stderr = &log, &log
	require.NoError(t, server.Start())
	exited := make(chan struct{})
	var exit error
	go func() {
		exit = server.Wait()
		close(exited)
	}()

	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	admin := queueboxv1.NewAdminServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	go func() {
		select {
		case <-exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	_, err = admin.GetServerInfo(ctx, &queueboxv1.GetServerInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		_ = server.Process.Kill()
		<-exited
		return nil, fmt.Errorf("the server does not answer: %w (exit: %v)\n%s", err, exit, log.String()) //nolint:errorlint // one cause is enough
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
			require.NoError(t, exit, "the server ends in order\n%s", log.String())
		case <-time.After(60 * time.Second):
			_ = server.Process.Kill()
			t.Errorf("the server does not end on SIGTERM\n%s", log.String())
		}
	})
	return admin, nil
}

func free(t *testing.T, address string) bool {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	require.NoError(t, listener.Close())
	return true
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// installGrpcurl runs the install line of the README with a directory of this repository as
// the target, and returns that directory. What is there already is kept: the line names a
// version, and so does the directory.
func installGrpcurl(t *testing.T, line string) string {
	t.Helper()
	version := regexp.MustCompile(`^go install \S+/grpcurl@(v\S+)\n$`).FindStringSubmatch(line)
	require.NotNil(t, version, "the install line is one go install of a pinned version: %q", line)
	dir, err := filepath.Abs(filepath.Join(root, ".tools", "grpcurl-"+version[1]))
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(dir, "grpcurl")); err == nil {
		return dir
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", line)
	cmd.Dir = t.TempDir() // outside this module, as a reader may be
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// call is one run of grpcurl.
type call struct {
	Method string
	Answer string
}

// text reads one field at the top of the answer.
func (c call) text(t *testing.T, field string) string {
	t.Helper()
	var answer map[string]any
	require.NoError(t, json.Unmarshal([]byte(c.Answer), &answer), c.Answer)
	require.Contains(t, answer, field, c.Answer)
	return fmt.Sprint(answer[field])
}

// paste runs lines in bash as a reader would, and stops at the first that fails. A wrapper
// with the name of grpcurl stands first in PATH and keeps each answer.
func paste(t *testing.T, lines, address, grpcurl string) []call {
	t.Helper()
	dir := t.TempDir()
	wrapper := `#!/bin/bash
set -o pipefail
n=$(ls "` + dir + `/answers" | wc -l)
last=${!#}
"` + grpcurl + `/grpcurl" "$@" | tee "$(printf '` + dir + `/answers/%03d-%s' "$n" "${last##*/}")"
`
	require.NoError(t, os.Mkdir(filepath.Join(dir, "answers"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "grpcurl"), []byte(wrapper), 0o700))
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", strings.ReplaceAll(lines, defaultAddress, address))
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	entries, err := os.ReadDir(filepath.Join(dir, "answers"))
	require.NoError(t, err)
	calls := make([]call, len(entries))
	for i, e := range entries {
		body, err := os.ReadFile(filepath.Join(dir, "answers", e.Name()))
		require.NoError(t, err)
		_, calls[i].Method, _ = strings.Cut(e.Name(), "-")
		calls[i].Answer = string(body)
	}
	return calls
}

func getMessage(t *testing.T, admin queueboxv1.AdminServiceClient, id string) *queueboxv1.Message {
	t.Helper()
	answer, err := admin.GetMessage(t.Context(), &queueboxv1.GetMessageRequest{Queue: "hello", MessageId: id})
	require.NoError(t, err)
	return answer.GetMessage()
}

// syncBuffer keeps the output of the server, which is written beside the test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
