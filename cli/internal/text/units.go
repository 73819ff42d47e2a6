package text

import (
	"fmt"
	"time"
)

// Percent prints a share as top does. 100 is one processor.
func Percent(share float64) string { return fmt.Sprintf("%.1f", 100*share) }

// Brief prints bytes in at most five characters: 999, 1.2k, 34M.
func Brief(n float64) string {
	const units = "kMGTP"
	if n < 1000 {
		return fmt.Sprintf("%.0f", n)
	}
	u := -1
	for n >= 999.5 && u < len(units)-1 {
		n, u = n/1000, u+1
	}
	if n < 9.95 {
		return fmt.Sprintf("%.1f%c", n, units[u])
	}
	return fmt.Sprintf("%.0f%c", n, units[u])
}

// Age prints the time since a moment in one unit, like kubectl.
func Age(since time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	d := time.Since(since)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Size prints bytes with three digits and a unit of powers of 1000, like podman.
func Size(n int64) string {
	const units = "kMGT"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f, u := float64(n)/1000, 0
	for f >= 999.5 && u < len(units)-1 {
		f, u = f/1000, u+1
	}
	return fmt.Sprintf("%.3g %cB", f, units[u])
}
