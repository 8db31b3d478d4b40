package queuebox

import (
	"testing"

	"github.com/queuebox/queuebox/internal/leaktest"
)

// TestMain holds every test to K9: what a client started has ended with it.
func TestMain(m *testing.M) {
	leaktest.Main(m)
}
