//go:build unix

package mssql

import (
	"net"
	"syscall"
)

// alive tells, without a word to the other side, that it has not closed an idle connection. It
// looks and takes nothing, since what is there may belong to TLS.
func alive(conn net.Conn) bool {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		open = n > 0 || err == syscall.EAGAIN || err == syscall.EINTR
		return true
	})
	return err == nil && open
}
