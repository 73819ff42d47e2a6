package session

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/bulkhead-project/bulkhead/shim/stream"
)

func TestParseKeys(t *testing.T) {
	for text, want := range map[string]string{
		"": "", detachKeys: "\x10\x11", "ctrl-a": "\x01", "CTRL-Z,q": "\x1aq", "ctrl-]": "\x1d", "ctrl-@,ctrl-^": "\x00\x1e", "a,b,a": "aba",
	} {
		keys, err := parseKeys(text)
		if err != nil || string(keys) != want {
			t.Errorf("%q: %q, %v", text, keys, err)
		}
	}
	for _, text := range []string{"ctrl-", "ctrl-1", "ctrl-ab", "ab", ",", "a,", " ", "é"} {
		if keys, err := parseKeys(text); err == nil || !strings.Contains(err.Error(), "is not a key") {
			t.Errorf("%q: %q, %v", text, keys, err)
		}
	}
}

func TestEscape(t *testing.T) {
	for _, tc := range []struct {
		typed, passed string
		left          bool
	}{
		{"plain\x03\x04", "plain\x03\x04", false},
		{"ab\x10\x11cd", "ab", true},
		{"\x10\x11", "", true},
		{"\x10x\x11", "\x10x\x11", false},
		{"\x10\x10\x11", "\x10", true},
		{"a\x10", "a\x10", false}, // the first key is passed on at the end
		{"\x11\x10", "\x11\x10", false},
	} {
		for name, r := range map[string]io.Reader{
			"at once":    strings.NewReader(tc.typed),
			"key by key": iotest.OneByteReader(strings.NewReader(tc.typed)),
		} {
			e := &escapeReader{r: r, keys: []byte("\x10\x11")}
			var passed bytes.Buffer
			_, err := io.Copy(&passed, onlyReader{e})
			if passed.String() != tc.passed || errors.Is(err, stream.ErrLeft) != tc.left {
				t.Errorf("%q %s: %q, %v", tc.typed, name, passed.String(), err)
			}
		}
	}
	e := &escapeReader{r: strings.NewReader("aaab"), keys: []byte("aab")}
	if passed, err := io.ReadAll(e); string(passed) != "a" || !errors.Is(err, stream.ErrLeft) {
		t.Errorf("keys that begin within themselves: %q, %v", passed, err)
	}
}

// onlyReader hides the methods that io.Copy would prefer to Read.
type onlyReader struct{ io.Reader }
