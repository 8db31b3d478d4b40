package dispatch

import (
	"testing"

	"github.com/queuebox/queuebox/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
