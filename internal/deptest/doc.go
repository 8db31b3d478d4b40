// Package deptest has no code, only tests: they prove over whole dependency trees who
// depends on whom. The depguard rules of .golangci.yaml say the same about single import
// lines and point at them while one types; what comes in through a third package shows
// here alone.
package deptest
