// Package readmetest proves that what the README tells a reader to paste works as printed.
// It holds nothing but tests.
package readmetest
