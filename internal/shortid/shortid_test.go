package shortid

import "testing"

func TestOf(t *testing.T) {
	for id, want := range map[string]string{"": "", "abc": "abc", "0123456789ab": "0123456789ab", "0123456789abc": "0123456789ab"} {
		if got := Of(id); got != want {
			t.Errorf("%q: %q", id, got)
		}
	}
}
