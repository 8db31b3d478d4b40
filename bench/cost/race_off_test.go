//go:build !race

package cost

// raceEnabled: the race detector keeps several times the memory of the program.
const raceEnabled = false
