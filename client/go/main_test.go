package queuebox

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain holds every test to K9: what a client started has ended with it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
