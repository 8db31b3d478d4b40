package config

import (
	"net/url"
	"strings"
)

// masked stands where a secret was.
const masked = "***"

// MaskURL returns a storage URL that is fit to be printed: the password is masked,
// also where it stands in the query. A text that is no URL is masked whole, since
// nobody can tell where the secret in it lies.
func MaskURL(raw string) string {
	if raw == "" {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" || (u.Opaque != "" && strings.Contains(u.Opaque, "@")) {
		return masked
	}
	var b strings.Builder
	b.WriteString(u.Scheme)
	b.WriteString(":")
	if u.Opaque != "" {
		b.WriteString(u.Opaque)
	} else {
		b.WriteString("//")
		if u.User != nil {
			b.WriteString(url.User(u.User.Username()).String())
			if _, has := u.User.Password(); has {
				b.WriteString(":" + masked)
			}
			b.WriteString("@")
		}
		b.WriteString(u.Host)
		b.WriteString(u.EscapedPath())
	}
	if u.RawQuery != "" {
		b.WriteString("?" + maskQuery(u.RawQuery))
	}
	return b.String()
}

// maskQuery masks the parameters that hold a password and leaves the order of the
// others as it was written.
func maskQuery(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, found := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if found && (err != nil || strings.Contains(strings.ToLower(plain), "pass")) {
			pairs[i] = name + "=" + masked
		}
	}
	return strings.Join(pairs, "&")
}
