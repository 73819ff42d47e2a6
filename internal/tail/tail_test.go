package tail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "", " \n\n": "", "one": "one", "one\ntwo": "two", "one\r\n two \r\n\n": "two",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestFile(t *testing.T) {
	for _, tt := range []struct{ name, written, want string }{
		{name: "nothing"},
		{name: "a little", written: "why\n", want: "why\n"},
		{name: "as much as fits", written: strings.Repeat("x", Most), want: strings.Repeat("x", Most)},
		{name: "more", written: "y" + strings.Repeat("x", Most), want: strings.Repeat("x", Most)},
		{name: "no UTF-8", written: "a\xffb", want: "a?b"},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(tt.written); err != nil {
			t.Fatal(err)
		}
		if got := File(f); got != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
		f.Close()
		if got := File(f); got != "" {
			t.Errorf("a closed file: %q", got)
		}
	}
}
