package postgres_test

import (
	"testing"

	"github.com/queuebox/queuebox/storage/storagetest"
)

// TestConformance runs the suite that every backend runs.
func TestConformance(t *testing.T) {
	storagetest.Run(t, storagetest.Backend{
		New: func(t *testing.T, clock bool) *storagetest.Instance {
			t.Helper()
			return newDatabase(t, clock).instance(clock)
		},
	})
}
