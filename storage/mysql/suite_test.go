package mysql_test

import (
	"testing"

	"github.com/queuebox/queuebox/storage/storagetest"
)

// TestConformance runs the whole suite.
func TestConformance(t *testing.T) {
	storagetest.Run(t, storagetest.Backend{New: func(t *testing.T, testClock bool) *storagetest.Instance {
		t.Helper()
		return newDatabase(t, testClock).instance(t)
	}})
}
