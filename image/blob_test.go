package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/types"
)

// source provides one blob.
type source struct {
	types.ImageSource
	ref  types.ImageReference
	in   io.Reader
	size int64 // the claimed size
	err  error // returned by GetBlob
}

func (s source) Reference() types.ImageReference { return s.ref }

func (s source) GetBlob(context.Context, types.BlobInfo, types.BlobInfoCache) (io.ReadCloser, int64, error) {
	if s.err != nil {
		return nil, 0, s.err
	}
	return io.NopCloser(s.in), s.size, nil
}

// places are a registry and a directory.
func places(t *testing.T) (registry, directory types.ImageReference) {
	t.Helper()
	named, err := reference.ParseNormalizedNamed("reg.test/x:1")
	if err != nil {
		t.Fatal(err)
	}
	registry, err = docker.NewReference(named)
	if err != nil {
		t.Fatal(err)
	}
	if directory, err = layout.ParseReference(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return registry, directory
}

// TestFetch: a blob must have its digest and must not be longer than the manifest says. Its readers see all of it, or
// the error.
func TestFetch(t *testing.T) {
	registry, directory := places(t)
	gone := errors.New("gone")
	const text = "some text of a layer"
	for _, tc := range []struct {
		what   string
		from   source
		claims int64 // the manifest
		want   error
		total  int64 // from the progress
	}{
		{what: "as it says", from: source{size: 20}, claims: 20, total: 20},
		{what: "no size", from: source{size: -1}, claims: -1, total: -1},
		{what: "size from the manifest", from: source{size: -1}, claims: 20, total: 20},
		{what: "size of nothing", from: source{size: 0}, claims: 20, total: 0},
		{what: "size of nothing in the manifest", from: source{size: 20}, claims: 0, total: 20, want: ErrDigest},
		{what: "longer", from: source{size: 20}, claims: 19, total: 20, want: ErrDigest},
		{what: "other text", from: source{in: strings.NewReader("other"), size: 20}, claims: 20, total: 20, want: ErrDigest},
		{what: "cut", from: source{in: io.MultiReader(strings.NewReader("some"), iotest.ErrReader(gone))}, claims: 20, want: ErrUnavailable},
		{what: "not there", from: source{err: gone}, claims: 20, want: ErrUnavailable},
		{what: "a broken file", from: source{ref: directory, err: gone}, claims: 20, want: ErrInvalid},
		{what: "refused", from: source{err: docker.ErrUnauthorizedForCredentials{Err: gone}}, claims: 20, want: ErrUnauthorized},
		{what: "cancelled", from: source{err: context.Canceled}, claims: 20, want: context.Canceled},
		{what: "late", from: source{err: context.DeadlineExceeded}, claims: 20, want: context.DeadlineExceeded},
		{what: "a fault that is known", from: source{err: fmt.Errorf("%w: x", ErrPolicy)}, claims: 20, want: ErrPolicy},
	} {
		if tc.from.in == nil {
			tc.from.in = iotest.OneByteReader(strings.NewReader(text))
		}
		if tc.from.ref == nil {
			tc.from.ref = registry
		}
		b, err := newBlob(types.BlobInfo{Digest: digest.FromString(text), Size: tc.claims}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		var got []byte
		go func() {
			var err error
			got, err = io.ReadAll(b.reader())
			read <- err
		}()
		var told []Progress
		err = b.fetch(t.Context(), tc.from, func(p Progress) { told = append(told, p) })
		if !errors.Is(err, tc.want) || classified(err) != classified(tc.want) {
			t.Errorf("%s: got %v, want %v", tc.what, err, tc.want)
		}
		if readErr := <-read; !errors.Is(readErr, tc.want) || tc.want == nil && string(got) != text {
			t.Errorf("%s: its reader got %q, %v", tc.what, got, readErr)
		}
		for _, p := range told {
			if p.Total != tc.total || p.Digest != b.info.Digest.String() || p.Done && p.Offset != 20 {
				t.Errorf("%s: progress %+v", tc.what, p)
			}
		}
		if done := len(told) > 0 && told[len(told)-1].Done; done != (tc.want == nil) {
			t.Errorf("%s: progress %+v at the end", tc.what, told)
		}
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestReadersAreTheirOwn: a reader that stops affects neither the other readers nor the fetch.
func TestReadersAreTheirOwn(t *testing.T) {
	registry, _ := places(t)
	b, err := newBlob(types.BlobInfo{Digest: digest.FromString("text"), Size: 4}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	stopped, other := b.reader(), b.reader()
	waits := make(chan error, 1)
	go func() { _, err := io.ReadAll(stopped); waits <- err }()
	if err := stopped.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waits; !errors.Is(err, errStopped) {
		t.Errorf("the stopped reader: %v", err)
	}
	if err := b.fetch(t.Context(), source{ref: registry, in: strings.NewReader("text")}, func(Progress) {}); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(other); string(got) != "text" || err != nil {
		t.Errorf("the other: %q, %v", got, err)
	}
}

// TestReadBlob: a blob that is read whole is bounded, and must have its digest.
func TestReadBlob(t *testing.T) {
	registry, _ := places(t)
	largest := strings.Repeat("x", maxManifest)
	for _, tc := range []struct {
		text, of string
		want     error
	}{{"", "", nil}, {"x", "x", nil}, {"x", "y", ErrDigest}, {largest, largest, nil}, {largest + "x", largest + "x", ErrInvalid}} {
		from := source{ref: registry, in: strings.NewReader(tc.text)}
		data, err := readBlob(t.Context(), from, types.BlobInfo{Digest: digest.FromString(tc.of)})
		if !errors.Is(err, tc.want) || tc.want == nil && string(data) != tc.text {
			t.Errorf("%d bytes: %d, %v, want %v", len(tc.text), len(data), err, tc.want)
		}
	}
}
