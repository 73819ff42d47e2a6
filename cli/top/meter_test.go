package top

import "testing"

func TestMeter(t *testing.T) {
	first, second := twoSamples()
	m := &meter{}
	for _, u := range m.add(first) {
		if u.cpu != 0 || u.netRate != (rate{}) {
			t.Errorf("add of the first sample: got %+v, want no rates", u)
		}
	}
	m.add(second)
	again := first // its counters restarted: another VM
	for _, u := range m.add(again) {
		if u.cpu != 0 || u.netRate != (rate{}) {
			t.Errorf("add of a sample of another VM: got %+v, want no rates", u)
		}
	}
}

func TestFirstKey(t *testing.T) {
	for typed, want := range map[string]string{
		"q":        "q",
		"qc":       "q",
		"\x1b":     "\x1b",
		"\x1b[A":   "\x1b[A",
		"\x1b[Bx":  "\x1b[B",
		"\x1bOA":   "\x1bOA",
		"\x1b[5~q": "\x1b[5~",
		"\x1b[1;5": "\x1b[1;5",
		"\x1bq":    "\x1b",
	} {
		if got := string(firstKey([]byte(typed))); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
