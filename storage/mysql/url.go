package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	driversql "github.com/go-sql-driver/mysql"
)

// target is a parsed URL.
type target struct {
	config *driversql.Config
	// oneWriter: the URL promises that every server writes to the same node of a cluster.
	oneWriter bool
}

// errURL says no more than that, since the text of a URL can hold a password.
var errURL = errors.New("mysql: the URL cannot be parsed (want mysql://user:password@host:port/database, " +
	"where special characters of a name or a password are percent-encoded: %25 is %, %40 is @, %2F is /, %23 is #, %20 is a space)")

// parameters are those that a URL may have.
var parameters = []string{"tls", "ca", "cert", "key", "server-name", "socket", "cluster"}

// CheckURL tells whether a URL can be opened, as far as its text tells. The error holds no
// secrets.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

func parseURL(raw string) (target, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "mysql" && u.Scheme != "mariadb") || u.Opaque != "" || u.Fragment != "" {
		return target{}, errURL
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return target{}, errURL
	}
	for name, values := range q {
		if !slices.Contains(parameters, name) {
			return target{}, fmt.Errorf("mysql: parameter %q of the URL is not known; there are %s", name, strings.Join(parameters, ", "))
		}
		if len(values) > 1 {
			return target{}, fmt.Errorf("mysql: parameter %q stands twice in the URL", name)
		}
	}
	c := driversql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	if c.User == "" {
		return target{}, errors.New("mysql: the URL names no user (want mysql://user:password@host:port/database)")
	}
	c.DBName = strings.TrimPrefix(u.Path, "/")
	switch {
	case c.DBName == "":
		return target{}, errors.New("mysql: the URL names no database (want mysql://user:password@host:port/database)")
	case strings.ContainsAny(c.DBName, "/`\x00") || len(c.DBName) > 64:
		return target{}, errors.New("mysql: the URL names no database that can be: want a name of up to 64 bytes without / and `")
	}
	switch socket := q.Get("socket"); {
	case socket != "" && u.Host != "":
		return target{}, errors.New("mysql: the URL has a host and a socket: want one of the two")
	case socket != "":
		c.Net, c.Addr = "unix", socket
	case u.Hostname() == "":
		return target{}, errors.New("mysql: the URL names no host; for a socket write mysql://user:password@/database?socket=/path")
	default:
		port := u.Port()
		if port == "" {
			port = "3306"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return target{}, errURL
		}
		c.Net, c.Addr = "tcp", net.JoinHostPort(u.Hostname(), port)
	}
	if err := encrypt(c, q, u.Hostname()); err != nil {
		return target{}, err
	}
	t := target{config: c}
	switch q.Get("cluster") {
	case "":
	case "one-writer":
		t.oneWriter = true
	default:
		return target{}, errors.New("mysql: parameter cluster of the URL: want one-writer")
	}
	c.Timeout = connectTimeout
	c.ParseTime = true
	c.ClientFoundRows = true // D10: a row that was found counts, changed or not
	c.InterpolateParams = true
	c.MultiStatements = true          // several statements of a transaction in one round trip
	c.Logger = &driversql.NopLogger{} // what it would say comes back as an error too
	return t, nil
}

// encrypt sets TLS up. Without a word the connection is encrypted where the database can.
func encrypt(c *driversql.Config, q url.Values, host string) error {
	mode := q.Get("tls")
	ca, cert, key := q.Get("ca"), q.Get("cert"), q.Get("key")
	if mode == "" && (ca != "" || cert != "" || key != "" || q.Get("server-name") != "") {
		mode = "true"
	}
	own := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if name := q.Get("server-name"); name != "" {
		own.ServerName = name
	}
	if mode != "true" && (ca != "" || q.Get("server-name") != "") {
		return errors.New("mysql: ca and server-name of the URL want tls=true, or no tls: with another one no certificate is checked")
	}
	if mode == "false" && (cert != "" || key != "") {
		return errors.New("mysql: cert and key of the URL want TLS: leave tls=false out")
	}
	switch mode {
	case "true":
		if own.ServerName == "" {
			return errors.New("mysql: tls=true over a socket needs server-name in the URL")
		}
	case "skip-verify":
		own.InsecureSkipVerify = true // the URL asks for it
	case "", "preferred":
		own.InsecureSkipVerify = true // better than the plain text that would be the other choice
		c.AllowFallbackToPlaintext = true
	case "false":
		return nil
	default:
		return errors.New("mysql: parameter tls of the URL: want true, skip-verify, preferred or false")
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("mysql: parameter ca of the URL: %w", err)
		}
		own.RootCAs = x509.NewCertPool()
		if !own.RootCAs.AppendCertsFromPEM(pem) {
			return errors.New("mysql: parameter ca of the URL: the file holds no certificate in PEM form")
		}
	}
	if (cert == "") != (key == "") {
		return errors.New("mysql: the URL has one of cert and key: want both")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("mysql: parameters cert and key of the URL: %w", err)
		}
		own.Certificates = []tls.Certificate{pair}
	}
	c.TLS = own
	return nil
}
