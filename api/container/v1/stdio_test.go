package containerv1

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStdioIsWhatWasPrinted(t *testing.T) {
	for _, tt := range []struct {
		in    Stdio
		words [3]string
	}{
		{in: Discard{}},
		{in: Discard{Stdin: StdinOnce}, words: [3]string{"stream:once", "", ""}},
		{in: Stream{}, words: [3]string{"", "stream:", ""}},
		{in: Stream{Stdin: OpenStdin}, words: [3]string{"stream:", "stream:", ""}},
		{in: Log{File: "log-1"}, words: [3]string{"", "log:log-1", ""}},
		{in: Log{File: "log-1", Stdin: StdinOnce}, words: [3]string{"stream:once", "log:log-1", ""}},
		{in: Descriptors{}, words: [3]string{"", "host:", ""}},
		{in: Descriptors{Stdin: true}, words: [3]string{"host:", "host:", ""}},
	} {
		stdin, stdout, stderr := EncodeStdio(tt.in)
		if got := [3]string{stdin, stdout, stderr}; got != tt.words {
			t.Errorf("%#v is printed as %q", tt.in, got)
		}
		got, err := ParseStdio(stdin, stdout, stderr)
		if err != nil {
			t.Errorf("%#v: %v", tt.in, err)
		}
		if diff := cmp.Diff(tt.in, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestParseStdio(t *testing.T) {
	if got, err := ParseStdio("", "log:l", "log:l"); err != nil || got != (Log{File: "l"}) {
		t.Errorf("stderr as stdout: %#v, %v", got, err)
	}
	if got, err := ParseStdio("host:", "host:", "host:"); err != nil || got != (Descriptors{Stdin: true}) {
		t.Errorf("stderr as stdout: %#v, %v", got, err)
	}
	for _, tt := range []struct {
		name  string
		words [3]string
		want  error
	}{
		{name: "a fifo as stdin", words: [3]string{"/run/in", "", ""}, want: errors.ErrUnsupported},
		{name: "a fifo as stdout", words: [3]string{"", "/run/out", ""}, want: errors.ErrUnsupported},
		{name: "a fifo as stderr", words: [3]string{"", "log:l", "/run/err"}, want: errors.ErrUnsupported},
		{name: "a log without a name", words: [3]string{"", "log:", ""}, want: ErrInvalid},
		{name: "two logs", words: [3]string{"", "log:a", "log:b"}, want: ErrInvalid},
		{name: "an unknown word", words: [3]string{"", "stream:once", ""}, want: ErrInvalid},
		{name: "an unknown stdin", words: [3]string{"log:a", "", ""}, want: ErrInvalid},
		{name: "a descriptor as stdin only", words: [3]string{"host:", "", ""}, want: ErrInvalid},
		{name: "a descriptor as stderr only", words: [3]string{"", "", "host:"}, want: ErrInvalid},
		{name: "a stream and descriptors", words: [3]string{"stream:", "host:", ""}, want: ErrInvalid},
		{name: "descriptors and a stream", words: [3]string{"host:", "host:", "stream:"}, want: ErrInvalid},
	} {
		if got, err := ParseStdio(tt.words[0], tt.words[1], tt.words[2]); !errors.Is(err, tt.want) {
			t.Errorf("%s: %#v, %v", tt.name, got, err)
		}
	}
}
