package mssql

import (
	"os"
	"testing"

	"github.com/microsoft/go-mssqldb/msdsn"
	"github.com/stretchr/testify/require"
)

func TestURL(t *testing.T) {
	c, err := parseURL("sqlserver://some%40one:s%25cret@db.example:1444?database=queuebox&encrypt=true&TrustServerCertificate=true")
	require.NoError(t, err)
	require.Equal(t, "some@one", c.config.User)
	require.Equal(t, "s%cret", c.config.Password)
	require.Equal(t, "db.example", c.config.Host)
	require.EqualValues(t, 1444, c.config.Port)
	require.Equal(t, "queuebox", c.config.Database)
	require.Equal(t, "queuebox", c.config.AppName)
	require.Equal(t, msdsn.Encryption(msdsn.EncryptionRequired), c.config.Encryption)
	require.False(t, c.config.Encoding.GuidConversion)
	require.Zero(t, c.config.ConnTimeout)

	c, err = parseURL("sqlserver://someone:secret@db/SQLEXPRESS?database=queuebox&app+name=mine&encrypt=strict")
	require.NoError(t, err)
	require.Equal(t, "SQLEXPRESS", c.config.Instance)
	require.Equal(t, "mine", c.config.AppName)
}

// Whoever names a certificate means that it is checked, which is not what the driver does
// without encrypt.
func TestURL_CertificateThatNobodyWouldCheck(t *testing.T) {
	ca := t.TempDir() + "/ca.pem"
	require.NoError(t, os.WriteFile(ca, nil, 0o600))
	for query, good := range map[string]bool{
		"certificate=" + ca:           false,
		"hostnameincertificate=other": false,
		"encrypt=true&trustservercertificate=true&certificate=" + ca: false,
		"encrypt=disable&hostnameincertificate=other":                false,
		"encrypt=true&certificate=" + ca:                             true,
		"encrypt=true&hostnameincertificate=other":                   true,
		"encrypt=strict&HostNameInCertificate=other":                 true,
		"encrypt=true&trustservercertificate=true":                   true,
		"trustservercertificate=false&hostnameincertificate=other":   true,
	} {
		err := CheckURL("sqlserver://u@db?database=q&" + query)
		if good {
			require.NoError(t, err, query)
		} else {
			require.ErrorContains(t, err, "nobody would check it: add encrypt=true", query)
		}
	}
}

func TestURL_SaysWhatIsWrongAndNoSecret(t *testing.T) {
	for raw, want := range map[string]string{
		"sqlserver://someone:%zzsecret@db?database=q":                   "%25 is %",
		"sqlserver://someone:secret@db:port?database=q":                 "percent-encoded",
		"sqlserver://someone:secret@db:99999?database=q":                "check the port",
		"sqlserver:someone:secret@db?database=q":                        "want sqlserver://",
		"mssql://someone:secret@db?database=q":                          "want sqlserver://",
		"sqlserver://db?database=q":                                     "names no user",
		"sqlserver://someone:secret@?database=q":                        "names no host",
		"sqlserver://someone:secret@db":                                 "add ?database=name",
		"sqlserver://someone:secret@db/queuebox":                        "add ?database=name",
		"sqlserver://someone:secret@db?database=q&database=r":           "stands twice",
		"sqlserver://someone:secret@db?database=q&Database=r":           "check the port",
		"sqlserver://someone:secret@db?database=q&encrypt=secretly":     "encrypt",
		"sqlserver://someone:secret@db?database=q&guid+conversion=1":    `parameter "guid conversion" of the URL is not known`,
		"sqlserver://someone:secret@db?database=q&timezone=x":           `parameter "timezone"`,
		"sqlserver://someone:secret@db?database=q&connection+timeout=1": `parameter "connection timeout"`,
		"sqlserver://someone:secret@db?database=q&password=secret":      `parameter "password"`,
		"sqlserver://someone:secret@db?database=q#secret":               "percent-encoded",
		"sqlserver://someone:secret@db?database=q;secret":               "percent-encoded",
	} {
		err := CheckURL(raw)
		require.ErrorContains(t, err, want, raw)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), "someone")
	}
}
