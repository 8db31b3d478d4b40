package mssql

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/microsoft/go-mssqldb/msdsn"
)

// target is a parsed URL.
type target struct{ config msdsn.Config }

// errURL says no more than that, since the text of a URL can hold a password.
var errURL = errors.New("mssql: the URL cannot be parsed (want sqlserver://user:password@host:port?database=name, " +
	"where special characters of a name or a password are percent-encoded: %25 is %, %40 is @, %2F is /, %23 is #, %20 is a space)")

// parameters are those of the driver that a URL may have; the others would change what is read
// or written (guid conversion, timezone), or what a statement's time is bounded by.
var parameters = []string{
	msdsn.Database, msdsn.Encrypt, msdsn.TrustServerCertificate, msdsn.Certificate, msdsn.ServerCertificate,
	msdsn.HostNameInCertificate, msdsn.TLSMin, msdsn.AppName, msdsn.KeepAlive, msdsn.PacketSize, msdsn.WorkstationID,
	msdsn.MultiSubnetFailover, msdsn.FailoverPartner, msdsn.FailOverPort,
}

// CheckURL tells whether a URL can be opened, as far as its text tells. The error holds no
// secrets.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

func parseURL(raw string) (target, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "sqlserver" || u.Opaque != "" || u.Fragment != "" {
		return target{}, errURL
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return target{}, errURL
	}
	var database string
	for name, given := range q {
		if !slices.Contains(parameters, strings.ToLower(name)) {
			return target{}, fmt.Errorf("mssql: parameter %q of the URL is not known; there are %s", name, strings.Join(parameters, ", "))
		}
		if len(given) > 1 {
			return target{}, fmt.Errorf("mssql: parameter %q stands twice in the URL", name)
		}
		if strings.EqualFold(name, msdsn.Database) {
			database = given[0]
		}
	}
	switch {
	case u.Hostname() == "":
		return target{}, errors.New("mssql: the URL names no host (want sqlserver://user:password@host:port?database=name)")
	case u.User.Username() == "":
		return target{}, errors.New("mssql: the URL names no user (want sqlserver://user:password@host:port?database=name)")
	case database == "":
		return target{}, errors.New("mssql: the URL names no database: add ?database=name (what follows the host after a / " +
			"is the name of an instance)")
	}
	if _, set := q[msdsn.AppName]; !set {
		add := url.QueryEscape(msdsn.AppName) + "=queuebox"
		if u.RawQuery != "" {
			add = "&" + add
		}
		u.RawQuery += add
	}
	config, err := msdsn.Parse(u.String())
	if err != nil {
		// Its text can hold any part of the URL.
		return target{}, fmt.Errorf("mssql: the driver refuses the URL: check the port and %s", strings.Join(parameters[1:], ", "))
	}
	unchecked := config.TLSConfig == nil || config.TLSConfig.InsecureSkipVerify
	if unchecked && (config.Parameters[msdsn.Certificate] != "" || config.Parameters[msdsn.HostNameInCertificate] != "") ||
		config.TLSConfig == nil && config.Parameters[msdsn.ServerCertificate] != "" {
		return target{}, errors.New("mssql: the URL names a certificate, or the name in it, and nobody would check it: add encrypt=true, " +
			"and leave trustservercertificate out")
	}
	return target{config: config}, nil
}
