package text

import "testing"

func TestFold(t *testing.T) {
	for _, tc := range []struct {
		width, indent int
		want          string
	}{
		{0, 4, "one two  three four five six seven"},
		{34, 4, "one two three four five six\n    seven"},
		{24, 4, "one two three four\n    five six seven"},
		{20, 4, "one two  three four five six seven"}, // no room to fold in
	} {
		if got := Fold("one two  three four five six seven", tc.width, tc.indent); got != tc.want {
			t.Errorf("width %d: %q", tc.width, got)
		}
	}
}
