package mssql

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mssql/internal/faketds"
	"github.com/queuebox/queuebox/storage/rowlock"
)

func TestClaimLock_WhatItAsks(t *testing.T) {
	_, conn, s := connect(t, nil)
	tx, err := begin(t.Context(), conn)
	require.NoError(t, err)
	g := new(gates)
	require.NoError(t, g.lock(t.Context(), tx, 7))
	// A deadline that is near makes the wait in the server shorter than itself.
	ctx, cancel := context.WithTimeout(t.Context(), 1150*time.Millisecond)
	defer cancel()
	require.NoError(t, g.lock(ctx, tx, 8))
	require.NoError(t, tx.Commit(t.Context()))
	sent := s.Requests()
	require.Equal(t, []faketds.Kind{faketds.Begin, faketds.RPC, faketds.RPC, faketds.Commit}, kinds(sent))
	require.Equal(t, "sys.sp_getapplock", sent[1].Procedure)
	require.Equal(t, []faketds.Param{
		{Name: "Resource", Type: "nvarchar(16)", Value: "queuebox:claim:7"},
		{Name: "LockMode", Type: "nvarchar(9)", Value: "Exclusive"},
		{Name: "LockOwner", Type: "nvarchar(11)", Value: "Transaction"},
		{Name: "LockTimeout", Type: "int", Value: int64(1000)},
	}, sent[1].Params)
	require.NotZero(t, sent[1].Transaction)
	wait, _ := sent[2].Param("LockTimeout")
	require.LessOrEqual(t, wait.Value.(int64), int64(950)) //nolint:forcetypeassert // A test.
	name, _ := sent[2].Param("Resource")
	require.Equal(t, "queuebox:claim:8", name.Value)
	require.LessOrEqual(t, len("queuebox:claim:-2147483648"), 32, "seen whole in sys.dm_tran_locks")
}

func TestClaimLock_Codes(t *testing.T) {
	for code, check := range map[int32]func(t *testing.T, err error){
		0: func(t *testing.T, err error) { t.Helper(); require.NoError(t, err) },
		1: func(t *testing.T, err error) { t.Helper(); require.NoError(t, err) },
		-1: func(t *testing.T, err error) {
			t.Helper()
			require.ErrorIs(t, err, rowlock.ErrBusy)
			require.ErrorIs(t, err, storage.ErrLocked)
		},
		-2: func(t *testing.T, err error) { t.Helper(); require.True(t, meaning{}.Unavailable(err)) },
		-3: func(t *testing.T, err error) { t.Helper(); require.True(t, meaning{}.Again(err)) },
		-999: func(t *testing.T, err error) {
			t.Helper()
			require.ErrorContains(t, err, "-999")
			require.False(t, meaning{}.Again(err) || meaning{}.Unavailable(err) || meaning{}.LockTimeout(err))
		},
	} {
		_, conn, _ := connect(t, func(r faketds.Request) faketds.Answer {
			if r.Kind == faketds.RPC {
				return faketds.Answer{Return: code}
			}
			return faketds.Answer{}
		})
		tx, err := begin(t.Context(), conn)
		require.NoError(t, err)
		check(t, new(gates).lock(t.Context(), tx, 7))
		require.NoError(t, tx.Rollback(t.Context()), "a victim of a deadlock still has its transaction")
	}
}

func TestClaimLock_Cancelled(t *testing.T) {
	running, hold := make(chan struct{}, 1), make(chan struct{})
	_, conn, s := connect(t, func(r faketds.Request) faketds.Answer {
		if r.Kind == faketds.RPC {
			running <- struct{}{}
			return faketds.Answer{Hold: hold}
		}
		return faketds.Answer{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx, err := begin(ctx, conn)
	require.NoError(t, err)
	go func() {
		<-running
		cancel()
	}()
	g := new(gates)
	require.ErrorIs(t, g.lock(ctx, tx, 7), context.Canceled)
	require.Equal(t, 1, s.Attentions())
	require.NoError(t, tx.Rollback(t.Context()))
	// The gate is open again.
	tx, err = begin(t.Context(), conn)
	require.NoError(t, err)
	close(hold)
	require.NoError(t, g.lock(t.Context(), tx, 7))
	require.NoError(t, tx.Rollback(t.Context()))
}

// TestClaimLock_OneWaiterAQueue: of many claims one at a time waits in the server, and those of
// another queue do not wait for it.
func TestClaimLock_OneWaiterAQueue(t *testing.T) {
	const claims = 8
	var (
		mu            sync.Mutex
		waiting, most int
	)
	asked, hold := make(chan struct{}, claims), make(chan struct{})
	s := faketds.Start(t, func(r faketds.Request) faketds.Answer {
		if name, ok := r.Param("Resource"); ok && name.Value == "queuebox:claim:7" {
			mu.Lock()
			waiting++
			most = max(most, waiting)
			mu.Unlock()
			asked <- struct{}{}
			<-hold
			mu.Lock()
			waiting--
			mu.Unlock()
		}
		return faketds.Answer{}
	})
	target, err := parseURL(s.URL())
	require.NoError(t, err)
	db := target.pool("")
	defer func() { require.NoError(t, db.Close()) }()
	g := new(gates)
	claim := func(queueID int32) error {
		conn, err := db.Conn(t.Context())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		tx, err := begin(t.Context(), conn)
		if err != nil {
			return err
		}
		return errors.Join(g.lock(t.Context(), tx, queueID), tx.Rollback(t.Context()))
	}
	failed := make(chan error, claims)
	for range claims {
		go func() { failed <- claim(7) }()
	}
	<-asked
	require.NoError(t, claim(8))
	// Those who cannot get through the gate in time say that the queue is busy.
	for range claims - 1 {
		require.ErrorIs(t, <-failed, rowlock.ErrBusy)
	}
	close(hold)
	require.NoError(t, <-failed)
	require.Equal(t, 1, most)
	require.NoError(t, claim(7))
}
