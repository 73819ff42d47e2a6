package local

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// fakeFiles are the files of docker save, with any readers as layers.
type fakeFiles struct {
	small  map[string]string
	layers map[string]layer
}

type layer struct {
	claims int64
	in     io.Reader
}

func (f fakeFiles) open(name string) (io.ReadCloser, int64, error) {
	if text, ok := f.small[name]; ok {
		return io.NopCloser(strings.NewReader(text)), int64(len(text)), nil
	}
	if l, ok := f.layers[name]; ok {
		return io.NopCloser(l.in), l.claims, nil
	}
	return nil, 0, os.ErrNotExist
}

func (fakeFiles) Close() error { return nil }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestLayersAreBounded: no more of an archive's layers is read than fits, whatever sizes they claim.
func TestLayersAreBounded(t *testing.T) {
	const limit = 100
	for _, tc := range []struct {
		what   string
		names  string
		layers map[string]layer
		read   int // bytes
		want   error
	}{
		{what: "one that fits", names: `"a"`, layers: map[string]layer{"a": text(100)}, read: 100},
		{what: "two that fit", names: `"a","b"`, layers: map[string]layer{"a": text(40), "b": text(60)}, read: 100},
		{what: "one, several times", names: `"a","./a","a"`, layers: map[string]layer{"a": text(60)}, read: 60},
		{what: "one that is too large", names: `"a"`, layers: map[string]layer{"a": text(101)}, want: ErrLarge},
		{what: "two that are", names: `"a","b"`, layers: map[string]layer{"a": text(40), "b": text(61)}, read: 40, want: ErrLarge},
		{what: "one that grows", names: `"a"`, layers: map[string]layer{"a": {claims: 1, in: text(1000).in}}, read: 101, want: ErrLarge},
		{what: "none", names: `"c"`, want: os.ErrNotExist},
	} {
		read := 0
		for name, l := range tc.layers {
			in := l.in
			l.in = readerFunc(func(p []byte) (int, error) { n, err := in.Read(p); read += n; return n, err })
			tc.layers[name] = l
		}
		manifest := `[{"Config":"config","Layers":[` + tc.names + `]}]`
		s := &Source{files: fakeFiles{map[string]string{"manifest.json": manifest, "config": "{}"}, tc.layers}}
		if err := s.readDocker(t.Context(), "", limit); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.what, err, tc.want)
		}
		if read != tc.read {
			t.Errorf("%s: %d bytes are read, want %d", tc.what, read, tc.read)
		}
	}
}

func text(size int) layer { return layer{int64(size), strings.NewReader(strings.Repeat("x", size))} }

// TestHashingIsCancelled: reading a layer for its digest can be cancelled.
func TestHashingIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	endless := readerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	s := &Source{files: fakeFiles{
		map[string]string{"manifest.json": `[{"Config":"config","Layers":["a"]}]`, "config": "{}"},
		map[string]layer{"a": {1 << 60, endless}},
	}}
	if err := s.readDocker(ctx, "", 1<<62); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
