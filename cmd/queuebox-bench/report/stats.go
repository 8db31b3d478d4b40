package report

import "slices"

// median of at least one number.
func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	n := len(all)
	if n%2 == 1 {
		return all[n/2]
	}
	return (all[n/2-1] + all[n/2]) / 2
}

// Ratio is how two contenders compare: the median of the ratios within rounds, and the smallest
// and largest of them. A round is a few windows after each other, so what else the machine did
// touched both much alike.
type Ratio struct {
	Median, Least, Most float64
	Rounds              int
}

// Compare divides a figure of a by that of b, round by round; false where no round has both.
func Compare(a, b *Contender, f Figure) (Ratio, bool) { return CompareTwo(a, f, b, f) }

// CompareTwo divides one figure of a by another of b.
func CompareTwo(a *Contender, fa Figure, b *Contender, fb Figure) (Ratio, bool) {
	if a == nil || b == nil {
		return Ratio{}, false
	}
	var all []float64
	for i := range a.Windows {
		for j := range b.Windows {
			if a.Windows[i].Round != b.Windows[j].Round {
				continue
			}
			over, under := fa(&a.Windows[i]), fb(&b.Windows[j])
			if over != unknown && under > 0 {
				all = append(all, over/under)
			}
		}
	}
	if len(all) == 0 {
		return Ratio{}, false
	}
	return Ratio{Median: median(all), Least: slices.Min(all), Most: slices.Max(all), Rounds: len(all)}, true
}
