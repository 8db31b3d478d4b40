package mysql_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mysql"
)

// certificate makes a certificate that vouches for itself, and writes it and its key beside the
// data of a server.
func certificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	write := func(file, kind string, der []byte) {
		// The server runs as another user.
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644))
	}
	write(cert, "CERTIFICATE", der)
	write(key, "PRIVATE KEY", secret)
	return cert, key
}

func TestEncryptedConnections(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	cert, key := certificate(t, p.dir, "database.example")
	other, _ := certificate(t, p.dir, "other.example")
	p.start(t, "--ssl-cert="+cert, "--ssl-key="+key)
	_, _, err := mysql.Migrate(t.Context(), mysql.Config{URL: p.url("queuebox")})
	require.NoError(t, err)
	p.set(t, "require_secure_transport = ON")
	with := func(parameters ...string) string {
		u, err := url.Parse(p.url("queuebox"))
		require.NoError(t, err)
		q := url.Values{}
		for i := 0; i < len(parameters); i += 2 {
			q.Set(parameters[i], parameters[i+1])
		}
		u.RawQuery = q.Encode()
		return u.String()
	}
	for _, good := range []string{
		with(), // where the server can
		with("tls", "skip-verify"),
		with("ca", cert, "server-name", "database.example"),
		with("tls", "true", "ca", cert, "server-name", "database.example"),
	} {
		open(t, mysql.Config{URL: good})
	}
	for bad, want := range map[string]string{
		with("tls", "false"): "Access denied",
		with("ca", cert):     "certificate of the database is not accepted", // its name is another one
		with("ca", other, "server-name", "database.example"): "certificate of the database is not accepted",
		with("tls", "true"): "certificate of the database is not accepted",
	} {
		_, err := mysql.Open(t.Context(), mysql.Config{URL: bad})
		require.ErrorContains(t, err, want, bad)
	}
	_, err = mysql.Open(t.Context(), mysql.Config{URL: with("tls", "true")})
	require.ErrorIs(t, err, storage.ErrUnavailable)
}
