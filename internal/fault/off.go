//go:build !faults

package fault

// Point is a point where a test can stop the process. Without the build tag it does nothing.
func Point(string) {}

// Environ returns the variables that a child with an environment of its own needs for its points: none, without the
// build tag.
func Environ() []string { return nil }
