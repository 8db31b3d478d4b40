//go:build unix

package main

import (
	"os"
	"syscall"
)

// pause stops a process as a debugger, a frozen container or a machine that sleeps does: it
// runs no instruction until resume, and cannot notice.
func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// resume lets a stopped process go on.
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// terminate asks a process to end.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
