package process

import (
	"errors"
	"testing"
)

func TestOutputs(t *testing.T) {
	t.Parallel()
	b := &bounded{}
	if n, err := b.Write(make([]byte, maxOutput)); n != maxOutput || err != nil {
		t.Errorf("all that is allowed: %d, %v", n, err)
	}
	if n, err := b.Write([]byte{0}); n != 0 || !errors.Is(err, ErrOutput) || b.Len() != maxOutput {
		t.Errorf("a byte more: %d, %v", n, err)
	}
	c := &clipped{limit: 5}
	for _, text := range []string{"abc", "def", "ghi"} {
		if n, err := c.Write([]byte(text)); n != 3 || err != nil {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	if c.String() != "abcde" {
		t.Errorf("kept %q", c)
	}
}

func TestAlone(t *testing.T) {
	for given, want := range map[string]string{"": "own", "bob": "own", "bob:": "own", "bob:extra": "bob:extra:strict", ":7": ":7:strict"} {
		if got := alone(given, "own"); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}
