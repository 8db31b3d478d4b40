package readmetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var link = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)

// Every relative link of the README leads somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	n := 0
	for _, m := range link.FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		n++
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(m[1])))
		require.NoError(t, err, "the README links to %s", m[1])
	}
	require.Positive(t, n)
}
