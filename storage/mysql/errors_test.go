package mysql_test

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"

	driversql "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/mysql"
)

func answer(number uint16, message string) error {
	return fmt.Errorf("statement: %w", &driversql.MySQLError{Number: number, Message: message})
}

// D8: only what proves a rollback is one. Whatever else comes in answer to a COMMIT may come
// after it.
func TestD8WhatProvesARollback(t *testing.T) {
	proofs := []uint16{1020, 1021, 1114, 1205, 1206, 1213, 1290, 1412, 1615, 1792, 1836, 3101}
	for n := range uint16(5000) {
		want := false
		for _, p := range proofs {
			want = want || n == p
		}
		require.Equal(t, want, mysql.Errors.RolledBack(answer(n, "x")), "%d", n)
	}
	require.True(t, mysql.Errors.RolledBack(driver.ErrBadConn), "nothing was sent")
	for _, err := range []error{
		driversql.ErrInvalidConn, driversql.ErrMalformPkt, context.Canceled, context.DeadlineExceeded, net.ErrClosed, errors.New("else"),
	} {
		require.False(t, mysql.Errors.RolledBack(err), "%v", err)
	}
}

func TestMeaningOfErrors(t *testing.T) {
	is := map[string]func(error) bool{
		"again": mysql.Errors.Again, "duplicate": mysql.Errors.Duplicate, "locked": mysql.Errors.LockTimeout,
		"schema": mysql.Errors.Schema, "broken": mysql.Errors.Broken, "unavailable": mysql.Errors.Unavailable,
	}
	for n, want := range map[uint16][]string{
		1020: {"again"}, 1213: {"again"}, 3101: {"again"}, 1062: {"duplicate"}, 1205: {"locked"}, 3572: {"locked"},
		1146: {"schema"}, 1054: {"schema"}, 1049: {"schema"},
		1040: {"unavailable"}, 1203: {"unavailable"}, 1226: {"unavailable"}, 1290: {"unavailable"}, 1836: {"unavailable"},
		1792: {"unavailable"}, 1317: {"unavailable"}, 3024: {"unavailable"}, 1969: {"unavailable"}, 1045: {"unavailable"},
		1021: {"unavailable"}, 1114: {"unavailable"}, 1030: {"unavailable"}, 1047: {"unavailable"},
		1053: {"broken", "unavailable"}, 1927: {"broken", "unavailable"}, 3169: {"broken", "unavailable"}, 4031: {"broken", "unavailable"},
		1064: {}, 1142: {}, 1366: {}, 1406: {}, 1690: {}, 4025: {},
	} {
		for name, ask := range is {
			require.Equal(t, slices.Contains(want, name), ask(answer(n, "x")), "%d is %s", n, name)
		}
	}
	for _, err := range []error{driver.ErrBadConn, driversql.ErrInvalidConn} {
		require.True(t, mysql.Errors.Broken(err))
		require.True(t, mysql.Errors.Unavailable(err))
	}
}

// A password that is not encoded is told as what it is, and not as a database that is missing.
func TestPasswordThatIsNotEncoded(t *testing.T) {
	for _, password := range []string{"se#cret", "se@cr#et/x", "se/cret", "se?cret", "se cret", "se%cret"} {
		err := mysql.CheckURL("mysql://u:" + password + "@db/q")
		require.ErrorContains(t, err, "percent-encoded")
		require.NotContains(t, err.Error(), "cret")
	}
	require.NoError(t, mysql.CheckURL("mysql://u:p%40ss%2Fw%23r%3Fd%25%20@db/q"))
}

// Whoever names a certificate means that it is checked.
func TestCertificateThatNobodyWouldCheck(t *testing.T) {
	for _, query := range []string{"tls=preferred&ca=/x", "tls=skip-verify&server-name=db", "tls=false&ca=/x"} {
		require.ErrorContains(t, mysql.CheckURL("mysql://u@db/q?"+query), "want tls=true, or no tls", query)
	}
	require.ErrorContains(t, mysql.CheckURL("mysql://u@db/q?tls=false&cert=/x&key=/y"), "leave tls=false out")
	require.NoError(t, mysql.CheckURL("mysql://u@db/q?server-name=other"))
}

// A log learns what happened, and nothing of what stood in the rows, of users and hosts.
func TestPlainErrorsHoldNoSecrets(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{answer(1062, "Duplicate entry 'it's secret' for key 'queue_name'"), "Duplicate entry '…' (error 1062)"},
		{answer(1045, "Access denied for user 'secret'@'secret.example' (using password: YES)"), "Access denied for user '…' (using password: YES) (error 1045); check the user and the password in the URL, from which hosts that user may log in, and whether it has to use TLS"},
		{answer(1142, "INSERT command denied to user 'secret'@'secret' for table `q`.`message`"), "INSERT command denied to user '…' for table `q`.`message` (error 1142); grant this role its rights: see \"Rights\" in docs/operations.md"},
		{answer(1366, "Incorrect string value: '\\xFFsecret\nsecret' for column"), "Incorrect string value: '…' for column (error 1366)"},
		{answer(1064, "You have an error near 'FORM message WHERE name = 'secret' AND' at line 1"), "You have an error near 'FORM message WHERE name = … (error 1064)"},
		{answer(1146, "Table 'q.message' doesn't exist"), "Table 'q.message' doesn't exist (error 1146)"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "secret.example", IsNotFound: true}}, "connection not made: no such host"},
		{fmt.Errorf("secret: %w", &tls.CertificateVerificationError{Err: errors.New("secret")}), "connection not made: the certificate of the database is not accepted; check ca and server-name of the URL, or the host in it: see docs/operations.md"},
		{driversql.ErrNoTLS, "connection not made: the database does not encrypt connections; set TLS up in the database, or leave tls out of the URL"},
		{driversql.ErrInvalidConn, "connection broken, or what answers is neither MySQL nor MariaDB: invalid connection"},
		{&net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{}, Err: errors.New("reset")}, "connection broken: reset"},
	} {
		got := mysql.Errors.Plain(c.err).Error()
		require.Equal(t, c.want, got)
		require.NotContains(t, got, "secret")
	}
	err := mysql.Errors.Plain(answer(1213, "Deadlock found when trying to get lock; try restarting transaction"))
	require.True(t, mysql.Errors.Again(err), "the number stays")
}
