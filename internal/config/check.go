package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// The bounds of the contract.
const (
	maxPayload            = Bytes(32 << 20)
	maxLease              = 7 * 24 * time.Hour
	minCompletedRetention = 10 * time.Minute
)

// RangeError tells an option whose value is out of its range.
type RangeError struct {
	Name string
	// Want is the range. It may name other options.
	Want string
}

func (e *RangeError) Error() string { return e.Name + ": want " + e.Want }

// Check is Options.Check, with an error that tells a value out of range, where it was set,
// and the values of the options that it is compared with.
func (l *Loader) Check(o *Options) error {
	err := o.Check()
	wrong, ok := errors.AsType[*RangeError](err)
	if !ok {
		return err
	}
	values := o.values()
	said := func(name string) string { return fmt.Sprintf("%s (%s)", values[name], l.where(name)) }
	var compared strings.Builder
	for word := range strings.FieldsSeq(wrong.Want) {
		if l.Known(word) {
			fmt.Fprintf(&compared, "; %s is %s", word, said(word))
		}
	}
	return fmt.Errorf("%w, got %s%s", err, said(wrong.Name), compared.String())
}

// where names the place at which an option was set.
func (l *Loader) where(name string) string {
	switch l.origin[name] {
	case FromFlag:
		return "flag --" + name
	case FromEnv:
		return EnvName(name)
	case FromFile:
		return "key in the configuration file"
	case FromDefault:
	}
	return "default"
}

// Check reports the first option whose value cannot be served.
func (o *Options) Check() error {
	if err := o.ListenOptions.Check(); err != nil {
		return err
	}
	if o.Storage == "" {
		return errors.New("storage: is empty; give a URL such as sqlite://queuebox.db")
	}
	for _, c := range []struct {
		name string
		ok   bool
		want string
	}{
		{"max-conns", o.MaxConns >= 0, "0 or more"},
		{"max-connection-age", o.MaxConnectionAge >= 0, "0 or more"},
		{"drain-timeout", o.DrainTimeout > 0, "more than 0"},
		{"max-wait", o.MaxWait > 0 && o.MaxWait <= 20*time.Second, "more than 0 and at most 20s"},
		{"poll-interval", o.PollInterval >= 10*time.Millisecond && o.PollInterval <= time.Second, "10ms to 1s"},
		{"max-waiters", o.MaxWaiters > 0, "1 or more"},
		{"max-stream-bytes", o.MaxStreamBytes > 0, "more than 0"},
		{"max-payload-bytes", o.MaxPayloadBytes > 0 && o.MaxPayloadBytes <= maxPayload, "1 to 32MiB"},
		{"max-queues", o.MaxQueues >= 0, "0 or more"},
		{"queue-labels", o.QueueLabels >= 0, "0 or more"},
		{"queue-min-lease", o.QueueMinLease >= time.Millisecond, "1ms or more"},
		{"queue-max-lease", o.QueueMaxLease >= o.QueueMinLease && o.QueueMaxLease <= maxLease, "queue-min-lease to 168h"},
		{"queue-lease", o.QueueLease >= o.QueueMinLease && o.QueueLease <= o.QueueMaxLease, "queue-min-lease to queue-max-lease"},
		{"queue-max-attempts", o.QueueMaxAttempts >= 0 && o.QueueMaxAttempts <= 1<<31-1, "0 or more"},
		{"queue-retry-min", o.QueueRetryMin >= 0, "0 or more"},
		{"queue-retry-max", o.QueueRetryMax >= o.QueueRetryMin, "queue-retry-min or more"},
		{"queue-retry-multiplier", o.QueueRetryMultiplier >= 1 && o.QueueRetryMultiplier <= 10, "1 to 10"},
		{"queue-retry-jitter", o.QueueRetryJitter >= 0 && o.QueueRetryJitter <= 1, "0 to 1"},
		{"queue-completed-retention", o.QueueCompletedRetention >= minCompletedRetention, "10m or more"},
		{"queue-dead-retention", o.QueueDeadRetention >= 0, "0 or more"},
	} {
		if !c.ok {
			return &RangeError{Name: c.name, Want: c.want}
		}
	}
	return nil
}

// Check refuses addresses that cannot be used, and the gRPC port on an address that
// others can reach unless that was asked for.
func (o *ListenOptions) Check() error {
	loopback, err := isLoopback(o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if !loopback && !o.Insecure {
		return fmt.Errorf("listen: %s can be reached from other machines and this server has no encryption and no authentication;"+
			" listen on 127.0.0.1, or pass --insecure on a network that you trust", o.Listen)
	}
	if o.DebugListen != "" {
		loopback, err := isLoopback(o.DebugListen)
		if err != nil {
			return fmt.Errorf("debug-listen: %w", err)
		}
		if !loopback {
			return fmt.Errorf("debug-listen: %s can be reached from other machines, and whoever reaches it can slow the server down;"+
				" listen on 127.0.0.1 and take profiles there, or through a tunnel", o.DebugListen)
		}
	}
	if o.MetricsOff() {
		return nil
	}
	if _, err := isLoopback(o.MetricsListen); err != nil {
		return fmt.Errorf("metrics-listen: %w", err)
	}
	return nil
}

// Check refuses an address that cannot be dialled, and one of another machine unless it was
// said how to speak to it.
func (o *ClientOptions) Check() error {
	loopback, err := isLoopback(o.Server)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	tls := o.ServerTLS || o.ServerCA != ""
	switch {
	case tls && o.ServerPlaintext:
		return errors.New("server-plaintext: cannot stand beside server-tls or server-ca; give one of them")
	case !tls && !loopback && !o.ServerPlaintext:
		return fmt.Errorf("server: %s is not this machine; pass --server-tls where a proxy encrypts, or --server-plaintext on a network that you trust", o.Server)
	}
	return nil
}

// MetricsOff tells whether the HTTP port is switched off.
func (o *ListenOptions) MetricsOff() bool {
	return o.MetricsListen == "" || o.MetricsListen == "off"
}

// MetricsExposed tells whether other machines can reach the HTTP port though nobody said
// that the network is trusted. That deserves a warning.
func (o *ListenOptions) MetricsExposed() bool {
	if o.MetricsOff() || o.Insecure {
		return false
	}
	loopback, err := isLoopback(o.MetricsListen)
	return err == nil && !loopback
}

// SplitAddress splits an address and refuses a port that no machine has.
func SplitAddress(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if err != nil {
		return "", "", fmt.Errorf("want HOST:PORT such as 127.0.0.1:7420, got %q", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", fmt.Errorf("want a port of 0 to 65535, got %q", address)
	}
	return host, port, nil
}

// isLoopback judges a host by its text and asks no resolver: what a name means can
// change after the start. "localhost" is loopback by RFC 6761.
func isLoopback(address string) (bool, error) {
	host, _, err := SplitAddress(address)
	if err != nil {
		return false, err
	}
	if strings.EqualFold(host, "localhost") {
		return true, nil
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback(), nil
}
