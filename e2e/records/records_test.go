package records

import (
	"bytes"
	"errors"
	"testing"
)

// TestWhole: complete records are distinguished from torn, changed and missing ones.
func TestWhole(t *testing.T) {
	t.Parallel()
	var all []byte
	for n := range 50 {
		all = append(all, Record(n+1)...)
	}
	first := len(Record(1))
	for name, tt := range map[string]struct {
		data []byte
		n    int
		err  error
	}{
		"nothing":     {nil, 0, nil},
		"all":         {all, 50, nil},
		"a torn one":  {all[:len(all)-1], 49, nil},
		"a changed":   {append(append(bytes.Clone(all[:first+20]), '!'), all[first+21:]...), 1, ErrBroken},
		"one is lost": {append(bytes.Clone(all[:first]), Record(3)...), 1, ErrBroken},
		"zeros":       {append(bytes.Clone(all), make([]byte, 100)...), 50, ErrBroken},
		"repeated":    {append(bytes.Clone(all), Record(50)...), 50, ErrBroken},
	} {
		n, size, err := Whole(bytes.NewReader(tt.data))
		if n != tt.n || !errors.Is(err, tt.err) || !bytes.HasPrefix(tt.data, all[:size]) {
			t.Errorf("%s: %d, %d, %v", name, n, size, err)
		}
	}
}
