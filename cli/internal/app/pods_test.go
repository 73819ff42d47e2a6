package app

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestEachPod: the pods of a command do not wait for each other, and are reported in their order.
func TestEachPod(t *testing.T) {
	var out bytes.Buffer
	second := make(chan struct{})
	err := (&App{Out: &out}).EachPod([]string{"a", "b", "none", "c"}, func(ref string) (string, error) {
		switch ref {
		case "a":
			select {
			case <-second:
			case <-time.After(10 * time.Second):
				return "", errors.New("b waits for a")
			}
		case "b":
			close(second)
		case "none":
			return "", errors.New("not found")
		}
		return "pod " + ref, nil
	})
	if out.String() != "pod a\npod b\npod c\n" || err == nil || err.Error() != "not found" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
