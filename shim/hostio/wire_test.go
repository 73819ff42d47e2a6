package hostio

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHelloIsWhatWasEncoded(t *testing.T) {
	long := strings.Repeat("x", 255)
	for _, want := range []Hello{
		{Process: Process{Container: "c"}},
		{Process: Process{Container: "c", Exec: "e"}, Stdin: true, Stdout: true, Stderr: true},
		{Process: Process{Container: long, Exec: long}, Terminal: true, Rows: 24, Columns: 0xffff},
		{Process: Process{Container: "c"}, Stderr: true},
	} {
		b, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeHello(b)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		for n := range b { // cut anywhere
			if _, err := DecodeHello(b[:n]); !errors.Is(err, ErrProtocol) {
				t.Errorf("DecodeHello of the first %d bytes of %+v: got %v", n, want, err)
			}
		}
	}
	for _, p := range []Process{{}, {Exec: "e"}, {Container: long + "x"}, {Container: "c", Exec: long + "x"}} {
		if _, err := (Hello{Process: p}).Encode(); !errors.Is(err, ErrProtocol) {
			t.Errorf("Encode of %.20v: got %v", p, err)
		}
	}
}

func TestDecodeHelloRefuses(t *testing.T) {
	for name, b := range map[string]string{
		"nothing":                "",
		"another version":        "\x02\x00\x01c\x00\x00\x00\x00\x00",
		"no container":           "\x01\x00\x00\x00\x00\x00\x00\x00",
		"an unknown flag":        "\x01\x10\x01c\x00\x00\x00\x00\x00",
		"a terminal and a pipe":  "\x01\x03\x01c\x00\x00\x00\x00\x00",
		"bytes after the end":    "\x01\x00\x01c\x00\x00\x00\x00\x00x",
		"an id beyond the end":   "\x01\x00\xffc\x00",
		"an exec beyond the end": "\x01\x00\x01c\x02e",
	} {
		if h, err := DecodeHello([]byte(b)); !errors.Is(err, ErrProtocol) {
			t.Errorf("DecodeHello of %s: got %+v, %v", name, h, err)
		}
	}
}

func TestExitIsWhatWasEncoded(t *testing.T) {
	for _, tc := range []struct{ in, want Exit }{
		{Exit{}, Exit{}},
		{Exit{Code: 137, Signal: 9, Reason: "VMKilled", Message: "gone"}, Exit{Code: 137, Signal: 9, Reason: "VMKilled", Message: "gone"}},
		{Exit{Message: "a\x1b[1m\nb"}, Exit{Message: "a?[1m?b"}},
		{
			Exit{Code: 255, Signal: 64, Reason: strings.Repeat("r", 300), Message: strings.Repeat("m", 3000)},
			Exit{Code: 255, Signal: 64, Reason: strings.Repeat("r", 64), Message: strings.Repeat("m", 1024)},
		},
	} {
		b := tc.in.Encode()
		if len(b) > MaxPayload {
			t.Errorf("an exit of %d bytes", len(b))
		}
		got, err := DecodeExit(b)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	for _, b := range []string{
		"", "\x00\x00", "\x00\x00\x01", "\x00\x41\x00", "\x00\x00\xff" + strings.Repeat("x", 600), "\x00\x00\x00" + strings.Repeat("x", 1025),
	} {
		if e, err := DecodeExit([]byte(b)); !errors.Is(err, ErrProtocol) {
			t.Errorf("DecodeExit(%.10q): got %+v, %v", b, e, err)
		}
	}
}

func TestRefusalKeepsItsClass(t *testing.T) {
	for _, tc := range []struct {
		class error
		text  string
		want  error
	}{
		{ErrNotFound, "why", ErrNotFound},
		{ErrBusy, "why", ErrBusy},
		{ErrRefused, "why", ErrRefused},
		{io.EOF, "another\x07", ErrRefused},
		{ErrBusy, strings.Repeat("x", 5000), ErrBusy},
	} {
		b := EncodeRefusal(tc.class, tc.text)
		if err := decodeRefusal(b); !errors.Is(err, tc.want) || strings.Contains(err.Error(), "\x07") || len(b) > MaxPayload {
			t.Errorf("%v %.20q: got %.50v in %d bytes", tc.class, tc.text, err, len(b))
		}
	}
	for _, b := range []string{"", "\x03text", "\x00" + strings.Repeat("x", 1025)} {
		if err := decodeRefusal([]byte(b)); !errors.Is(err, ErrProtocol) {
			t.Errorf("decodeRefusal(%.10q): got %v", b, err)
		}
	}
}

func TestFrames(t *testing.T) {
	b := AppendFrame(AppendFrame(nil, KindLeave, nil), KindSignal, []byte{9})
	r := bytes.NewReader(b)
	if kind, payload, err := ReadFrame(r); kind != KindLeave || len(payload) != 0 || err != nil {
		t.Errorf("first frame: got %d, %q, %v", kind, payload, err)
	}
	if kind, payload, err := ReadFrame(r); kind != KindSignal || string(payload) != "\x09" || err != nil {
		t.Errorf("second frame: got %d, %q, %v", kind, payload, err)
	}
	if _, _, err := ReadFrame(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: got %v, want EOF", err)
	}
	for name, tc := range map[string]struct {
		in   string
		want error
	}{
		"a cut head":    {"\x03\x00", io.ErrUnexpectedEOF},
		"a cut payload": {"\x03\x00\x05abc", io.ErrUnexpectedEOF},
		"no payload":    {"\x03\x00\x05", io.ErrUnexpectedEOF},
		"too long":      {"\x03\xff\xff", ErrProtocol},
	} {
		if _, _, err := ReadFrame(strings.NewReader(tc.in)); !errors.Is(err, tc.want) {
			t.Errorf("ReadFrame, %s: got %v, want %v", name, err, tc.want)
		}
		if _, _, err := ParseFrame([]byte(tc.in)); !errors.Is(err, ErrProtocol) {
			t.Errorf("ParseFrame, %s: got %v", name, err)
		}
	}
	if _, _, err := ParseFrame(b); !errors.Is(err, ErrProtocol) {
		t.Errorf("ParseFrame of two frames: got %v", err)
	}
}

// FuzzDecode: no message makes a decoder panic.
func FuzzDecode(f *testing.F) {
	hello, _ := Hello{Process: Process{"c", "e"}, Stdin: true}.Encode()
	f.Add(hello)
	f.Add(Exit{Code: 1, Reason: "Error", Message: "m"}.Encode())
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = DecodeHello(b)
		_, _ = DecodeExit(b)
		_ = decodeRefusal(b)
		_, _, _ = ParseFrame(b)
	})
}
