package mysql_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/mysql"
)

// joined is a table that is joined to what stands before it, and whether its index is named.
var joined = regexp.MustCompile(`(?i)\b(?:STRAIGHT_JOIN|JOIN)\s+([a-z_]+)\s+(?:AS\s+)?[a-z]+(\s+FORCE INDEX)?`)

// A statement that locks rows names the index of every large table that it joins: where a
// table has a few rows only, the database walks over all of it sooner than it seeks, and
// locks, or waits for, the rows of others on its way. Statistics change by the minute, so no
// plan that is looked at can prove that.
func TestC12WhatLocksNamesItsIndexes(t *testing.T) {
	names, err := mysql.Statements()
	require.NoError(t, err)
	seen := 0
	for _, name := range names {
		text, err := mysql.Statement(name)
		require.NoError(t, err)
		if strings.HasPrefix(strings.ToUpper(text), "SELECT") && !strings.Contains(text, "FOR UPDATE") {
			continue
		}
		for _, found := range joined.FindAllStringSubmatch(text, -1) {
			if slices.Contains(large, found[1]) {
				seen++
				require.NotEmpty(t, found[2], "%s: %s", name, found[0])
			}
		}
	}
	require.Greater(t, seen, 20)
}
