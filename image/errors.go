package image

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/docker/distribution/registry/api/errcode"
	v2 "github.com/docker/distribution/registry/api/v2"
	"go.podman.io/image/v5/docker"

	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// The errors that callers distinguish with errors.Is.
var (
	// ErrNotFound: no such image, here or in the registry.
	ErrNotFound = errdefs.ErrNotFound.WithMessage("image not found")
	// ErrUnauthorized: the registry wants credentials, or refused them.
	ErrUnauthorized = errdefs.ErrUnauthenticated.WithMessage("registry refused access")
	// ErrAmbiguous: several images share an id prefix.
	ErrAmbiguous = errclass.With(errclass.ErrAmbiguous, errors.New("more than one image matches"))
	// ErrInUse: the image is pinned by a sandbox.
	ErrInUse = errdefs.ErrFailedPrecondition.WithMessage("image is in use")
	// ErrInvalid: a reference, digest, manifest or layer breaks its rules.
	ErrInvalid = errdefs.ErrInvalidArgument.WithMessage("invalid image")
	// ErrDigest: the content does not have the requested digest.
	ErrDigest = errors.New("digest does not match")
	// ErrUnavailable: the registry could not be reached, or went away.
	ErrUnavailable = errdefs.ErrUnavailable.WithMessage("registry unavailable")
	// ErrNoSpace: the disk of the store is full, or the image is larger than the free space.
	ErrNoSpace = errdefs.ErrResourceExhausted.WithMessage("no space left for the image")
	// ErrMemory: there was too little memory to unpack the image.
	ErrMemory = convert.ErrMemory
	// ErrPolicy: policy.json does not allow the image.
	ErrPolicy = errdefs.ErrPermissionDenied.WithMessage("image refused by policy")
)

// InUseError is an ErrInUse with the ids of the sandboxes that use the image.
type InUseError struct{ Sandboxes []string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("%v by sandbox %s", ErrInUse, strings.Join(e.Sandboxes, ", "))
}

// Unwrap returns ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }

// classify adds the class of a library's error, and puts the message on one line. The advice in the message names
// registry.
func classify(err error, registry string) error {
	if err == nil || classified(err) {
		return err
	}
	var refused docker.ErrUnauthorizedForCredentials
	var status docker.UnexpectedHTTPStatusError
	var op *net.OpError
	var request *url.Error
	var dns *net.DNSError
	var coder errcode.ErrorCoder // an Error, or a bare ErrorCode
	code := errcode.ErrorCodeUnknown
	if errors.As(err, &coder) {
		code = coder.ErrorCode()
	}
	switch {
	case errors.As(err, &refused), code == errcode.ErrorCodeUnauthorized, code == errcode.ErrorCodeDenied,
		errors.As(err, &status) && (status.StatusCode == 401 || status.StatusCode == 403):
		return &classError{ErrUnauthorized, err, fmt.Sprintf("%v (try: bulkhead login %s)", ErrUnauthorized, registry)}
	case code == v2.ErrorCodeManifestUnknown, code == v2.ErrorCodeNameUnknown,
		errors.As(err, &status) && status.StatusCode == 404:
		return &classError{ErrNotFound, err, fmt.Sprintf("%v in the registry %s: check its name and tag", ErrNotFound, registry)}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return &classError{ErrNoSpace, err, oneLine(err)}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &op):
		return err
	case errors.As(err, &op), errors.As(err, &dns), errors.As(err, &request), errors.As(err, &status):
		return &classError{ErrUnavailable, err, fmt.Sprintf("%v: %s%s", ErrUnavailable, oneLine(err), unavailableHint(err, registry))}
	}
	return &classError{nil, err, oneLine(err)}
}

// unavailableHint returns the most likely remedy, empty if there is none.
func unavailableHint(err error, registry string) string {
	switch {
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"),
		strings.Contains(err.Error(), "first record does not look like a TLS handshake"):
		return fmt.Sprintf(" (a plain-HTTP registry: set insecure = true for %s in registries.conf, or use --tls-verify=false)", registry)
	case strings.Contains(err.Error(), "x509: "):
		return fmt.Sprintf(" (put the authority's certificate into /etc/containers/certs.d/%s/ca.crt, or use --tls-verify=false)", registry)
	case registry == "localhost":
		return " (load images of this host with bulkhead image load; for a node, add --for node)"
	}
	return ""
}

func classified(err error) bool {
	var c *classError
	if errors.As(err, &c) {
		return true
	}
	for _, class := range []error{ErrNotFound, ErrUnauthorized, ErrInvalid, ErrDigest, ErrUnavailable, ErrNoSpace, ErrMemory, ErrPolicy} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// classError is a library's error with a class and a one-line message.
type classError struct {
	class, cause error
	text         string
}

func (e *classError) Error() string { return e.text }

// Detail returns the library's own text, if the message does not have it.
func (e *classError) Detail() string {
	if cause := e.cause.Error(); !strings.Contains(e.text, oneLine(e.cause)) {
		return cause
	}
	return ""
}

func (e *classError) Unwrap() []error {
	if e.class == nil {
		return []error{e.cause}
	}
	return []error{e.class, e.cause}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
