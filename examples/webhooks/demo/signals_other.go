//go:build !unix

package main

import (
	"errors"
	"os"
	"syscall"
)

// pause is not to be had here, and with it the demo.
func pause(*os.Process) error {
	return errors.New("the demo stops a process with SIGSTOP, which this system does not have")
}

func resume(*os.Process) error { return nil }

func terminate(p *os.Process) error { return p.Kill() }

func ownGroup() *syscall.SysProcAttr { return nil }
