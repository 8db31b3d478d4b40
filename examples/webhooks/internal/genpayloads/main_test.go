package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const testdata = "../../testdata"

// The committed files are those that this program makes.
func TestTheCommittedFilesAreCurrent(t *testing.T) {
	files, err := render()
	require.NoError(t, err)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(testdata, filepath.FromSlash(name)))
		require.NoError(t, err, "run: go run ./examples/webhooks/internal/genpayloads examples/webhooks/testdata")
		require.Equal(t, string(want), string(got), "%s differs", name)
	}
	for _, sub := range []string{"deliveries", "malformed"} {
		entries, err := os.ReadDir(filepath.Join(testdata, sub))
		require.NoError(t, err)
		for _, e := range entries {
			require.Contains(t, files, sub+"/"+e.Name(), "a file that nothing makes")
		}
	}
}

// Each delivery has the parts that GitHub documents for all events, and the size that
// real ones have.
func TestDeliveriesAreOfRealSizeAndShape(t *testing.T) {
	files, err := render()
	require.NoError(t, err)
	var headers []header
	require.NoError(t, json.Unmarshal(files["headers.json"], &headers))
	seen := map[string]bool{}
	for _, h := range headers {
		require.False(t, seen[h.Delivery], "delivery %s twice", h.Delivery)
		seen[h.Delivery] = true
		require.Regexp(t, "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", h.Delivery)
		if !strings.HasPrefix(h.File, "deliveries/") {
			continue
		}
		require.Greater(t, len(files[h.File]), 5000, h.File)
		require.Less(t, len(files[h.File]), 50_000, h.File)
		var body struct {
			Repository struct {
				FullName string `json:"full_name"`
			} `json:"repository"`
			Sender struct {
				Login string `json:"login"`
			} `json:"sender"`
		}
		require.NoError(t, json.Unmarshal(files[h.File], &body), h.File)
		require.NotEmpty(t, body.Repository.FullName, h.File)
		require.NotEmpty(t, body.Sender.Login, h.File)
	}
	require.GreaterOrEqual(t, len(headers), 36)
}
