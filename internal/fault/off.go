//go:build !faults

package fault

// Point is a moment at which a crash is tried; without the build tag it does
// nothing.
func Point(string) {}

// Environ is what a child that starts with an environment of its own needs for
// its points: nothing, without the build tag.
func Environ() []string { return nil }
