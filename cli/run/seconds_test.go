package run

import "testing"

func TestSeconds(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "90": 90, "1m30s": 90, "3s": 3, "1500ms": 2, "1ms": 1, "24h": 86400,
		"-1": -1, "-1s": -1, "": -1, "soon": -1, "2147483648": -1, "1000000h": -1,
	} {
		var s seconds
		err := s.Set(text)
		if (err != nil) != (want < 0) || err == nil && int64(s) != want {
			t.Errorf("%q: %d, %v, want %d", text, s, err, want)
		}
	}
}
