package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/queuebox/queuebox/internal/config"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/backends"
)

// explainStorage adds to an error of a database what its operator can do about it. It
// replaces the URL where a driver has put it into its text: it may hold a password.
// schemaHint is for a schema that this build does not work with, where the way out
// depends on the command.
func explainStorage(url, schemaHint string, err error) error {
	if errors.Is(err, backends.ErrURL) {
		return err // says by itself how to write one, and holds no secret
	}
	hint := ""
	switch {
	case advised(err):
	case errors.Is(err, storage.ErrSchema):
		hint = schemaHint
	case errors.Is(err, storage.ErrUnsafeDurability):
		hint = "change that setting, or pass --allow-unsafe-durability if acknowledged messages may be lost"
	case backends.File(url) != "":
		hint = fmt.Sprintf("check that the directory %s exists and that this user may write to it", filepath.Dir(absolute(backends.File(url))))
	case errors.Is(err, storage.ErrUnavailable):
		hint = "check that the database runs and that --storage names it"
	}
	shown := config.MaskURL(url)
	text := strings.ReplaceAll(err.Error(), url, shown)
	if hint != "" {
		text += "; " + hint
	}
	return &explained{text: fmt.Sprintf("storage %s: %s", shown, text), err: err}
}

// advised tells whether the text of an error says by itself what to do.
func advised(err error) bool {
	type adviser interface {
		error
		Advice() string
	}
	a, ok := errors.AsType[adviser](err)
	return ok && a.Advice() != ""
}

// checkStorage refuses URLs that their text alone shows to be wrong. listenURL may be empty.
func checkStorage(url, listenURL string) error {
	if err := backends.Check(url); err != nil {
		return explainStorage(url, "", err)
	}
	if listenURL == "" {
		return nil
	}
	if err := backends.Check(listenURL); err != nil {
		return fmt.Errorf("listen-url %s: %w", config.MaskURL(listenURL), err)
	}
	return nil
}

// shownStorage is how the start block names the storage. It is asked before the storage is
// opened: a file that is made now is one that an operator may not have meant.
func shownStorage(url string) string {
	shown := config.MaskURL(url)
	file := backends.File(url)
	if file == "" {
		return shown
	}
	state := ""
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		state = ", new"
	}
	return fmt.Sprintf("%s  (%s%s)", shown, absolute(file), state)
}

// absolute makes a path absolute where the system tells how.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// explained says the same as its cause in the words of the operator.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

// explainListen adds to an error of net.Listen what its operator can do about it.
func explainListen(option, address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s %s: the port is in use, perhaps by another queuebox-server; stop that process or give another --%s",
			option, address, option)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s %s: this user may not open that port; give one above 1023 by --%s", option, address, option)
	}
	return fmt.Errorf("%s %s: %w", option, address, err)
}
