// Package stress holds the long stress run (`make stress`): producers, claimers and
// operators on real server processes that are killed again and again, beside a checker
// that looks into the database every 10 ms. What every caller sent and was answered goes
// into a [History], and at the end the history is judged against the rules of
// docs/contract.md. The tests of this package run the same for some seconds, and prove
// that the judge finds what it is there to find.
package stress
