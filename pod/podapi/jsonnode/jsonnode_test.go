package jsonnode

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestStream(t *testing.T) {
	t.Parallel()
	s := New([]byte("\n{\"a\\/b\": [1.50,\n true, null, \"\\ud83d\\ude00\"]}{}\n\n7 "), 100, 10)
	node, text, err := s.Next()
	if err != nil || string(text) != "{\"a\\/b\": [1.50,\n true, null, \"\\ud83d\\ude00\"]}" || node.Line != 2 {
		t.Fatalf("%v, %q, line %d", err, text, node.Line)
	}
	var got []string
	for _, one := range node.Content[1].Content {
		got = append(got, one.Tag+" "+one.Value)
	}
	if node.Content[0].Value != "a/b" || strings.Join(got, ", ") != "!!float 1.50, !!bool true, !!null null, !!str 😀" ||
		node.Content[1].Content[1].Line != 3 {
		t.Errorf("%q: %q", node.Content[0].Value, got)
	}
	for _, want := range []string{"{}", "7"} {
		if _, text, err := s.Next(); err != nil || string(text) != want {
			t.Fatalf("%v, %q", err, text)
		}
	}
	if _, _, err := s.Next(); !errors.Is(err, io.EOF) || s.Line() != 5 {
		t.Errorf("%v at line %d", err, s.Line())
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text, want string
		line       int
	}{
		{"{\"a\": 1,\n\n}", "invalid character '}'", 3},
		{"{\"a\": 1\n \"b\": 2}", "invalid character '\"' after object key:value pair", 2},
		{"{\"a\": 1\n", "the text ends within a value", 1},
		{"{\"a\": \"", "the text ends within a value", 1},
		{"{1: 2}", "invalid character '1'", 1},
		{"{'a': 2}", "invalid character '\\''", 1},
		{"}", "invalid character '}' looking for beginning of value", 1},
		{"\n# no", "invalid character '#'", 2},
		{"{\"a\": \"\n\"}", "invalid character '\\n' in string literal", 1},
		{strings.Repeat("[", 12), ErrTooLarge.Error(), 1},
		{"[" + strings.Repeat("1,", 100), ErrTooLarge.Error(), 1},
	} {
		s := New([]byte(test.text), 100, 10)
		if _, _, err := s.Next(); err == nil || !strings.Contains(err.Error(), test.want) || s.Line() != test.line {
			t.Errorf("%q: %v at line %d, want %q at %d", test.text, err, s.Line(), test.want, test.line)
		}
	}
}

// FuzzStream: the stream ends for every text, with at most one value per byte.
func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"a": [1]} {} 7`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := New(text, 1000, 10)
		for n := 0; ; n++ {
			if _, _, err := s.Next(); err != nil {
				return
			}
			if n > len(text) {
				t.Fatal("more values than bytes")
			}
		}
	})
}
