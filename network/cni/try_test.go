package cni

import "testing"

// TestTry: where the tests of pods' networks run, nothing is lacking.
func TestTry(t *testing.T) {
	if taps, redirection := Try(); taps != nil || redirection != nil {
		t.Errorf("%v, %v", taps, redirection)
	}
}
