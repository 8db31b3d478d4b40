//go:build !race

package blackbox

// raceEnabled makes the server under test watch for data races where the tests do.
const raceEnabled = false
