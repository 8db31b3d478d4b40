package storagetest

import "testing"

// Run runs the whole suite against a backend.
func Run(t *testing.T, b Backend) {
	t.Helper()
	_ = b
}
