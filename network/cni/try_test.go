package cni

import "testing"

// TestTry: hosts that run the tests of pods' networks lack nothing.
func TestTry(t *testing.T) {
	if taps, redirection := Try(); taps != nil || redirection != nil {
		t.Errorf("%v, %v", taps, redirection)
	}
}
