// Command genpayloads writes the webhook deliveries that the demo reads:
// examples/webhooks/testdata. They have the shape and the size that GitHub
// documents for its webhooks; the organisations, repositories and accounts in them
// are invented. The files are committed, and a test compares them with what this
// program makes, so run it after a change here:
//
//	go run ./examples/webhooks/internal/genpayloads examples/webhooks/testdata
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genpayloads DIRECTORY")
		os.Exit(2)
	}
	files, err := render()
	if err == nil {
		err = write(os.Args[1], files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "genpayloads:", err)
		os.Exit(1)
	}
}

// header is what a receiver of webhooks keeps beside a body: the part of the HTTP
// headers that names the delivery and the event.
type header struct {
	File        string `json:"file"`
	Delivery    string `json:"x-github-delivery"`
	Event       string `json:"x-github-event"`
	ContentType string `json:"content-type"`
}

// render returns every file below testdata by its relative name.
func render() (map[string][]byte, error) {
	files := map[string][]byte{}
	var headers []header
	for i, d := range deliveries() {
		name := fmt.Sprintf("deliveries/%02d-%s.json", i+1, d.name)
		body, err := encode(d.body)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		files[name] = body
		headers = append(headers, header{name, deliveryID(name), d.event, "application/json"})
	}
	bad, err := malformed()
	if err != nil {
		return nil, err
	}
	for i, m := range bad {
		name := fmt.Sprintf("malformed/%02d-%s", i+1, m.name)
		files[name] = m.body
		headers = append(headers, header{name, deliveryID(name), m.event, m.contentType})
	}
	index, err := encode(headers)
	if err != nil {
		return nil, fmt.Errorf("encode the headers: %w", err)
	}
	files["headers.json"] = index
	return files, nil
}

// encode writes JSON as GitHub does: <, > and & stay as they are. It is indented only
// so that the committed files can be read.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// deliveryID makes the GUID of a delivery from the name of its file, so that a second
// run of this program changes nothing.
func deliveryID(name string) string {
	h := sha256.Sum256([]byte("delivery " + name))
	return fmt.Sprintf("%x-%x-11ef-9%03x-%x", h[0:4], h[4:6], uint16(h[6])<<4|uint16(h[7])>>4, h[8:14])
}

// write replaces the two folders and the index below dir.
func write(dir string, files map[string][]byte) error {
	for _, sub := range []string{"deliveries", "malformed"} {
		if err := os.RemoveAll(filepath.Join(dir, sub)); err != nil { //nolint:gosec // the directory that was asked for
			return fmt.Errorf("empty the folder: %w", err)
		}
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil { //nolint:gosec // the directory that was asked for
			return fmt.Errorf("make the folder: %w", err)
		}
	}
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), body, 0o644); err != nil { //nolint:gosec // files of the repository, for everybody to read
			return fmt.Errorf("write the payload: %w", err)
		}
	}
	return nil
}
