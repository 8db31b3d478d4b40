package storagetest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ruleID is how a rule of the contract stands in the name of a test.
var ruleID = regexp.MustCompile(`(?:^|[_/])([CRSEDWOLT]\d+)(?:$|[_/])`)

// idsOf returns the rules that a test names.
func idsOf(name string) []string {
	var ids []string
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '/' }) {
		if m := ruleID.FindStringSubmatch(part); m != nil {
			ids = append(ids, m[1])
		}
	}
	return ids
}

// TestThePageOfTheTestsIsTrue compares docs/testing.md with the names of the rules of
// this suite, both ways.
func TestThePageOfTheTestsIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../docs/testing.md")
	require.NoError(t, err)
	told := map[string]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, id := range idsOf(strings.TrimSpace(cells[1])) {
			told[id] = strings.TrimSpace(cells[2])
		}
	}
	require.NotEmpty(t, told)
	groups := map[string]map[string]bool{}
	for _, s := range sections() {
		for _, g := range s.groups {
			for _, r := range g.rules {
				for _, id := range idsOf(r.name) {
					if groups[id] == nil {
						groups[id] = map[string]bool{}
					}
					groups[id][g.name] = true
				}
			}
		}
	}
	for id, in := range groups {
		require.Contains(t, told, id, "docs/testing.md has no line for %s", id)
		for name := range in {
			require.Contains(t, strings.Split(told[id], ", "), name, "docs/testing.md, %s", id)
		}
	}
	for id, cell := range told {
		for name := range strings.SplitSeq(cell, ", ") {
			if name == "-" {
				continue
			}
			require.True(t, groups[id][name], "docs/testing.md says that %s is tested in %q; no test there names it", id, name)
		}
	}
}

func TestNamesOfTestsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sections() {
		for _, g := range s.groups {
			for _, r := range g.rules {
				name := s.name + "/" + g.name + "/" + r.name
				require.False(t, seen[name], name)
				require.NotZero(t, r.clocks, name)
				seen[name] = true
			}
		}
	}
}
