package containerv1

import (
	"errors"
	"strings"
	"testing"
)

func TestParseID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint32{"0": 0, "00": 0, "1000": 1000, "01000": 1000, "4294967294": 1<<32 - 2} {
		if id, number, err := ParseID(text); id != want || !number || err != nil {
			t.Errorf("%q: %d, %v, %v", text, id, number, err)
		}
	}
	for _, name := range []string{"", "root", "3proxy", "1000x", "-", "１０００", "1 0", "0x0", "1e3", "1_0"} {
		if _, number, err := ParseID(name); number || err != nil {
			t.Errorf("%q: %v, %v", name, number, err)
		}
	}
	for _, text := range []string{
		"+1000", "-1", "-0", " 1000", "1000 ", "1000\n", "\t0", " +0", "4294967295", "4294967296", "18446744073709551616",
	} {
		if _, number, err := ParseID(text); number || !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v, %v", text, number, err)
		}
	}
}

func TestValidID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"a": true, "0123456789abcdef": true, "A_b-c.d": true, strings.Repeat("a", 128): true, "": false, ".": false, "..": false,
		"-a": false, "_a": false, "a/b": false, "a b": false, "a\x00": false, "a\n": false, "ä": false, strings.Repeat("a", 129): false,
	} {
		if ValidID(id) != want {
			t.Errorf("%q: %t", id, !want)
		}
	}
}
