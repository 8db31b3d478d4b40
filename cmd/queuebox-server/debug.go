package main

import (
	"net/http"
	"net/http/pprof"
	"runtime"
)

// The parts of what happens that the profiles of contention show: one lock in ten that somebody
// waited for, and one wait in every ten microseconds of waiting.
const (
	mutexFraction = 10
	blockRate     = 10_000
)

// profiling serves the profiles of the process under the usual names. It is a port of its own, on a
// loopback address and only when asked for: a profile names functions, a trace shows when who
// called, the command line may hold a password, and each costs time while it is taken.
func profiling() http.Handler {
	runtime.SetMutexProfileFraction(mutexFraction)
	runtime.SetBlockProfileRate(blockRate)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
