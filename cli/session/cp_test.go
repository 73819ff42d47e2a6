package session

import (
	"bytes"
	"testing"
)

func TestParsePlace(t *testing.T) {
	for arg, want := range map[string]place{
		"web:/etc": {"web", "/etc"}, "default/web:etc/x": {"default/web", "etc/x"}, "web:": {"web", ""}, "web:a:b": {"web", "a:b"},
		"file": {"", "file"}, "./a:b": {"", "./a:b"}, "/a:b": {"", "/a:b"}, "../a:b": {"", "../a:b"}, ":x": {"", ":x"}, "-": {"", "-"},
	} {
		if got := parsePlace(arg); got != want {
			t.Errorf("%q: %q, want %q", arg, got, want)
		}
	}
}

func TestNotes(t *testing.T) {
	var out bytes.Buffer
	n := &noteWriter{w: &out}
	for _, piece := range []string{"left ", "out \x1b[31m\"a\"\nleft out b\n", "unfinished"} {
		if k, err := n.Write([]byte(piece)); k != len(piece) || err != nil {
			t.Errorf("%q: %d, %v", piece, k, err)
		}
	}
	if want := "bulkhead: left out [31m\"a\"\nbulkhead: left out b\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
