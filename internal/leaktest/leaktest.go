// Package leaktest holds the tests of a package to what they must leave behind: no goroutine.
package leaktest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// patience is for how long goroutines that were told to end may go on: the hundreds with which a
// server serves its streams end after it has answered. goleak alone looks for half a second, and a
// machine that is busy with the tests of other packages can take longer. A leak never ends.
const patience = 15 * time.Second

// Main runs the tests of a package and ends the process with their result: failed also where
// goroutines are left. It is for TestMain.
func Main(m interface{ Run() int }) {
	code := m.Run()
	if code == 0 {
		if err := find(patience); err != nil {
			_, _ = fmt.Fprintf(os.Stderr, "goleak: goroutines are left %v after the tests: %v\n", patience, err)
			code = 1
		}
	}
	os.Exit(code)
}

// find looks until no goroutine is left, or the time is over.
func find(patience time.Duration) error {
	over := time.After(patience)
	for {
		err := goleak.Find()
		if err == nil {
			return nil
		}
		select {
		case <-over:
			return err //nolint:wrapcheck // what is left, in the words of goleak
		default:
		}
	}
}
