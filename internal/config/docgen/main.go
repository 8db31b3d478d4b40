// Command docgen writes the page of configuration options to the file that its
// argument names.
package main

import (
	"fmt"
	"os"

	"github.com/queuebox/queuebox/internal/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docgen FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(config.Page()), 0o644); err != nil { //nolint:gosec // a page for everybody to read
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}
