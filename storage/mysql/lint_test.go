package mysql_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/mysql"
)

// A text in a list has the character set of the database unless the statement says another,
// and whoever made the database may have chosen one that has not every letter. Tokens and
// bytes are hexadecimal, in CHAR and LONGTEXT.
func TestE11TextsOfListsNameTheirCharacterSet(t *testing.T) {
	bare := regexp.MustCompile(`(?i)\b(VARCHAR\(\d+\)|MEDIUMTEXT|TINYTEXT|TEXT)\s+PATH`)
	require.True(t, bare.MatchString("name VARCHAR(255) PATH '$[1]'"))
	names, err := mysql.Statements()
	require.NoError(t, err)
	for _, name := range names {
		text, err := mysql.Statement(name)
		require.NoError(t, err)
		require.Empty(t, bare.FindString(text), name)
	}
}

// now() stands still while a statement waits (S13).
func TestS13StatementsReadTheClockThatGoesOn(t *testing.T) {
	still := regexp.MustCompile(`(?i)\bnow\s*\(|\b(current_timestamp|utc_timestamp|localtime|localtimestamp)\b`)
	require.True(t, still.MatchString("lease_end > NOW(6)"))
	names, err := mysql.Statements()
	require.NoError(t, err)
	for _, name := range names {
		text, err := mysql.Statement(name)
		require.NoError(t, err)
		require.Empty(t, still.FindString(text), name)
	}
}
