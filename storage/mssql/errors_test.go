package mssql

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	mssqldb "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/rowlock"
)

// TestD8_WhatAnErrorMeans: what is not named here means nothing, so it is a defect.
func TestD8_WhatAnErrorMeans(t *testing.T) {
	const (
		rolledBack = 1 << iota
		again
		duplicate
		lockTimeout
		broken
		schema
		unavailable
	)
	said := func(n int32) error { return fmt.Errorf("statement: %w", mssqldb.Error{Number: n, Message: "text"}) }
	judge := func(err error) (out int) {
		m := meaning{}
		for bit, yes := range map[int]bool{
			rolledBack: m.RolledBack(err), again: m.Again(err), duplicate: m.Duplicate(err), lockTimeout: m.LockTimeout(err),
			broken: m.Broken(err), schema: m.Schema(err), unavailable: m.Unavailable(err),
		} {
			if yes {
				out |= bit
			}
		}
		return out
	}
	for n, want := range map[int32]int{
		0:    unavailable,
		102:  0, // syntax
		547:  0, // a constraint
		2628: 0, // a text too long
		1205: rolledBack | again, 3960: rolledBack | again, 41302: rolledBack | again, 41305: rolledBack | again, 41325: rolledBack | again,
		1222: rolledBack | lockTimeout,
		2601: duplicate, 2627: duplicate,
		207: schema, 208: schema,
		229:  0,
		3902: rolledBack | unavailable, 3930: rolledBack | unavailable, 3998: rolledBack | unavailable, 3903: unavailable,
		4060: unavailable, 18456: unavailable, 18452: unavailable, 18486: unavailable, 916: unavailable, 40615: unavailable,
		10928: unavailable, 10929: unavailable, 10936: unavailable, 40501: unavailable, 40613: unavailable,
		49918: unavailable, 49919: unavailable, 49920: unavailable,
		1105: unavailable, 9002: unavailable, 1101: unavailable, 701: unavailable, 1204: unavailable, 40544: unavailable,
		3906: rolledBack | unavailable, 976: unavailable, 978: unavailable, 983: unavailable,
		20: unavailable | broken, 64: unavailable | broken, 121: unavailable | broken, 233: unavailable | broken,
		10053: unavailable | broken, 10054: unavailable | broken, 10060: unavailable | broken,
		596: unavailable | broken, 6005: unavailable | broken, 40197: unavailable | broken,
	} {
		require.Equal(t, want, judge(said(n)), n)
	}
	require.Equal(t, lockTimeout, judge(fmt.Errorf("claim: %w", rowlock.ErrBusy)))
	require.Equal(t, again, judge(&lockError{code: lockVictim}))
	require.Equal(t, unavailable, judge(&lockError{code: lockCancelled}))
	require.Zero(t, judge(&lockError{code: -999}))
	require.Equal(t, unavailable|broken, judge(mssqldb.StreamError{InnerError: io.EOF}))
	require.Equal(t, unavailable|broken, judge(mssqldb.ServerError{}))
	require.Equal(t, unavailable|broken, judge(driver.ErrBadConn))
	require.Equal(t, rolledBack, judge(&undone{err: errFailed}))
	require.Zero(t, judge(errors.New("anything")))
}

// An error that reaches a log or a caller has no values, logins, hosts and names of databases.
func TestPlain(t *testing.T) {
	said := func(n int32, text string) error { return mssqldb.Error{Number: n, State: 2, Message: text} }
	for _, c := range []struct {
		err  error
		want string
	}{
		{
			said(2627, "Violation of UNIQUE KEY constraint 'queue_name'. Cannot insert duplicate key in object 'queuebox.queue'. The duplicate key value is (0x736563726574)."),
			"Violation of UNIQUE KEY constraint '…'. The duplicate key value is (…). (error 2627, state 2)",
		},
		{said(18456, "login error: Login failed for user 'secret'."), "login error: Login failed for user '…'. (error 18456, state 2); check the login and the password in the URL; the log of the database tells more"},
		{said(4060, `Cannot open database "secret" requested by the login. The login failed.`), `Cannot open database "…" requested by the login. The login failed. (error 4060, state 2)`},
		{said(2628, "String or binary data would be truncated in table 't', column 'c'. Truncated value: 'it's secret'."), "String or binary data would be truncated in table '…'. (error 2628, state 2)"},
		{said(208, "Invalid object name 'queuebox.queue'."), "Invalid object name 'queuebox.queue'. (error 208, state 2)"},
		{
			said(229, "The SELECT permission was denied on the object 'queue', database 'd', schema 'queuebox'."),
			`The SELECT permission was denied on the object 'queue', database 'd', schema 'queuebox'. (error 229, state 2); grant this login its rights: see "Rights" in docs/operations.md`,
		},
		{&net.DNSError{Name: "secret", IsNotFound: true}, "connection not made: no such host"},
		{fmt.Errorf("dial secret: %w", os.NewSyscallError("connect", syscall.ECONNREFUSED)), "connection not made: connection refused"},
		{
			fmt.Errorf("secret: %w", &tls.CertificateVerificationError{Err: errors.New("secret")}),
			"connection not made: the certificate of the database is not accepted; check certificate and hostnameincertificate of the URL, or the host in it: see docs/operations.md",
		},
		{&net.OpError{Op: "read", Net: "tcp", Addr: &net.UnixAddr{Name: "secret"}, Err: io.EOF}, "connection broken: EOF"},
		{context.DeadlineExceeded, "the database did not answer in time: context deadline exceeded"},
		{&lockError{procedure: "sp_getapplock", code: lockVictim}, "sp_getapplock: victim of a deadlock (code -3)"},
	} {
		got := meaning{}.Plain(c.err)
		require.EqualError(t, got, c.want)
		require.NotContains(t, got.Error(), "secret")
	}
}

func TestExplain(t *testing.T) {
	said := func(n int32) error { return mssqldb.Error{Number: n, Message: "text 'secret'"} }
	for _, n := range []int32{4060, 18456, 40613, 1222, 1205, 0} {
		require.ErrorIs(t, explain("open", said(n)), storage.ErrUnavailable, n)
	}
	require.ErrorContains(t, explain("open", said(4060)), "make it first (CREATE DATABASE)")
	require.ErrorIs(t, explain("open", said(208)), storage.ErrSchema)
	require.ErrorIs(t, explain("open", io.EOF), storage.ErrUnavailable)
	err := explain("open", said(102))
	require.NotErrorIs(t, err, storage.ErrUnavailable)
	require.NotContains(t, err.Error(), "secret")
	require.ErrorIs(t, explain("open", fmt.Errorf("look: %w", storage.ErrNoSchema)), storage.ErrNoSchema)
}
