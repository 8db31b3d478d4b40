package mssql_test

import (
	"testing"

	"github.com/queuebox/queuebox/storage/storagetest"
)

// TestConformance runs the suite that every backend runs, on the SQL Server of
// QUEUEBOX_TEST_MSSQL. The statements and the driver are also tested without one.
func TestConformance(t *testing.T) {
	storagetest.Run(t, storagetest.Backend{New: func(t *testing.T, testClock bool) *storagetest.Instance {
		t.Helper()
		return newDatabase(t, testClock).instance()
	}})
}
