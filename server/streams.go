package server

import "sync"

// streams tells the open streams of the server, and every later one, to leave.
type streams struct {
	once     sync.Once
	draining chan struct{}
}

func newStreams() *streams { return &streams{draining: make(chan struct{})} }

func (s *streams) drain() { s.once.Do(func() { close(s.draining) }) }
