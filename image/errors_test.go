package image

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/distribution/registry/api/errcode"
	v2 "github.com/docker/distribution/registry/api/v2"
	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/types"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/image/convert"
)

// TestClassify: an answer of a registry or this host becomes an error of one line, with the class that callers need.
func TestClassify(t *testing.T) {
	status := func(code int) error {
		return fmt.Errorf("read:\n%w", docker.UnexpectedHTTPStatusError{StatusCode: code})
	}
	plain := errors.New("two\nlines")
	for _, tc := range []struct {
		what  string
		err   error
		class error
		says  string
	}{
		{what: "nothing", err: nil},
		{what: "refused credentials", err: docker.ErrUnauthorizedForCredentials{Err: plain}, class: ErrUnauthorized, says: "login reg.test"},
		{what: "status 401", err: status(401), class: ErrUnauthorized, says: "login reg.test"},
		{what: "status 403", err: status(403), class: ErrUnauthorized, says: "login reg.test"},
		{what: "unauthorized", err: errcode.ErrorCodeUnauthorized.WithMessage("no"), class: ErrUnauthorized},
		{what: "denied", err: errcode.ErrorCodeDenied.WithMessage("no"), class: ErrUnauthorized},
		{what: "status 404", err: status(404), class: ErrNotFound, says: "reg.test"},
		{what: "no manifest", err: v2.ErrorCodeManifestUnknown.WithMessage("no"), class: ErrNotFound},
		{what: "no repository", err: v2.ErrorCodeNameUnknown.WithMessage("no"), class: ErrNotFound},
		{what: "status 500", err: status(500), class: ErrUnavailable},
		{what: "disk full", err: fmt.Errorf("write: %w", syscall.ENOSPC), class: ErrNoSpace},
		{what: "quota", err: syscall.EDQUOT, class: ErrNoSpace},
		{what: "limit", err: syscall.EFBIG, class: ErrNoSpace},
		{what: "cancelled", err: &url.Error{Op: "Get", Err: context.Canceled}, class: context.Canceled},
		{what: "the caller's deadline", err: &url.Error{Op: "Get", Err: context.DeadlineExceeded}, class: context.DeadlineExceeded},
		{what: "the network's", err: &net.OpError{Op: "dial", Err: context.DeadlineExceeded}, class: ErrUnavailable},
		{what: "no such host", err: &net.DNSError{Name: "reg.test"}, class: ErrUnavailable},
		{what: "no answer", err: &url.Error{Op: "Get", Err: plain}, class: ErrUnavailable, says: "two lines"},
		{
			what: "plain HTTP", err: &url.Error{Op: "Get", Err: errors.New("http: server gave HTTP response to HTTPS client")},
			class: ErrUnavailable, says: "insecure = true for reg.test",
		},
		{what: "an image's own fault", err: fmt.Errorf("%w: x", ErrInvalid), class: ErrInvalid, says: "invalid image: x"},
		{what: "anything else", err: plain, class: plain, says: "two lines"},
	} {
		got := classify(tc.err, "reg.test")
		if !errors.Is(got, tc.class) {
			t.Errorf("%s: %v, want %v", tc.what, got, tc.class)
			continue
		}
		for _, class := range []error{ErrUnauthorized, ErrNotFound, ErrUnavailable, ErrNoSpace, ErrInvalid} {
			if !errors.Is(tc.class, class) && errors.Is(got, class) {
				t.Errorf("%s: %v, which is %v", tc.what, got, class)
			}
		}
		if got != nil && !strings.Contains(got.Error(), tc.says) {
			t.Errorf("%s: %v, want %q in it", tc.what, got, tc.says)
		}
		if got != nil && strings.Contains(got.Error(), "\n") {
			t.Errorf("%s: %q has several lines", tc.what, got)
		}
		if again := classify(got, "other.test"); got != nil && again.Error() != got.Error() {
			t.Errorf("%s, twice: %v", tc.what, again)
		}
	}
	for registry, want := range map[string]bool{"localhost": true, "reg.test": false} {
		if got := classify(&net.DNSError{}, registry).Error(); strings.Contains(got, "image load") != want {
			t.Errorf("%s: %s", registry, got)
		}
	}
}

// TestJoinLine: errors of several registries become one line, and a single error is unchanged.
func TestJoinLine(t *testing.T) {
	if got := joinLine([]error{ErrNotFound}); got != ErrNotFound { //nolint:errorlint // the same one
		t.Errorf("one error: %v", got)
	}
	got := joinLine([]error{ErrNotFound, ErrUnavailable})
	if !errors.Is(got, ErrNotFound) || !errors.Is(got, ErrUnavailable) || strings.Contains(got.Error(), "\n") {
		t.Errorf("two errors: %v", got)
	}
}

// TestFaults: the converter's error about an image gets a class, and the layer's name if it names a layer.
func TestFaults(t *testing.T) {
	layers := []*blob{
		{info: types.BlobInfo{Digest: digest.FromString("lowest")}}, {info: types.BlobInfo{Digest: digest.FromString("upper")}},
	}
	for _, tc := range []struct {
		kind  convert.Kind
		limit int64
		class error
	}{
		{convert.Large, slot.Size - 1, ErrNoSpace},
		{convert.Large, slot.Size, ErrInvalid},
		{convert.Space, slot.Size, ErrNoSpace},
		{convert.Space, 1, ErrNoSpace},
		{convert.Digest, 1, ErrDigest},
		{convert.Invalid, 1, ErrInvalid},
		{convert.Host, 1, nil},
		{"of its own", slot.Size, nil},
	} {
		for layer, want := range map[int]string{
			-1: "", 0: layers[0].info.Digest.String(), 1: layers[1].info.Digest.String(), 2: "", 1 << 30: "", -1 << 30: "",
		} {
			fault := &convert.Error{Kind: tc.kind, Layer: layer, Text: "why"}
			got := layerError(layers, fmt.Errorf("wrapped: %w", fault), tc.limit)
			if tc.class != nil && !errors.Is(got, tc.class) || tc.class == nil && classified(got) {
				t.Errorf("%s, at most %d bytes: %v, want %v", tc.kind, tc.limit, got, tc.class)
			}
			if text := got.Error(); strings.Contains(text, "layer sha256:") != (want != "") || !strings.Contains(text, want) {
				t.Errorf("%s of layer %d: %v", tc.kind, layer, got)
			}
		}
	}
	other := errors.New("no fault")
	if got := layerError(layers, other, 1); got != other { //nolint:errorlint // the same one
		t.Errorf("another error: %v", got)
	}
}
