package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/image/local"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// Auth has credentials for one pull, in place of auth.json's: Token, an OAuth2 identity token, or Username and
// Password.
type Auth struct{ Username, Password, Token string }

// PullPolicy says when Pull contacts the registry, as in Kubernetes.
type PullPolicy string

// The pull policies; the zero value is PullAlways.
const (
	PullAlways  PullPolicy = "Always"
	PullMissing PullPolicy = "IfNotPresent"
	PullNever   PullPolicy = "Never"
)

// PullOptions configure a pull or a load.
type PullOptions struct {
	Auth   *Auth // nil: auth.json
	Policy PullPolicy
	// Insecure allows plain HTTP and untrusted certificates for the registry.
	Insecure bool
	// Progress, if not nil, is called with the progress of each blob. It is called by one goroutine at a time and must
	// not block for long.
	Progress func(Progress)
}

// Pull fetches the image that name means, unless its disk exists already, and makes name refer to it in this instance.
// Concurrent pulls of the same image, by any number of callers and processes, are merged. A failed pull leaves nothing.
// Errors: ErrNotFound, ErrUnauthorized, ErrUnavailable, ErrDigest, ErrInvalid, ErrPolicy, ErrNoSpace, ErrMemory.
func (s *Store) Pull(ctx context.Context, name string, opts PullOptions) (Image, error) {
	img, err := s.pull(ctx, name, opts)
	if err != nil {
		return Image{}, fmt.Errorf("pull %s: %w", name, err)
	}
	return img, nil
}

func (s *Store) pull(ctx context.Context, name string, opts PullOptions) (Image, error) {
	if opts.Policy == PullMissing || opts.Policy == PullNever {
		img, err := s.Resolve(name)
		if err == nil || opts.Policy == PullNever || !errors.Is(err, ErrNotFound) {
			return img, err
		}
	}
	// The library caches registries.conf, and an engine lives long.
	sysregistriesv2.InvalidateCache()
	candidates, err := s.getenv.pullNames(name)
	if err != nil {
		return Image{}, err
	}
	var errs []error
	for _, named := range candidates {
		img, err := s.pullNamed(ctx, named, opts)
		if err == nil || ctx.Err() != nil {
			return img, err
		}
		if len(candidates) > 1 {
			err = fmt.Errorf("%s: %w", named, err)
		}
		errs = append(errs, err)
	}
	return Image{}, joinLine(errs)
}

func (s *Store) pullNamed(ctx context.Context, named reference.Named, opts PullOptions) (Image, error) {
	from, err := docker.NewReference(named)
	if err != nil {
		return Image{}, fmt.Errorf("%w: name %s: %w", ErrInvalid, named, err)
	}
	// A caller with other credentials, or another policy, must not share a pull.
	key, err := json.Marshal([]any{opts.Auth, opts.Insecure, s.getenv.all()})
	if err != nil {
		return Image{}, err
	}
	sum := sha256.Sum256(key)
	open := func(ctx context.Context, dir string) (types.ImageSource, []reference.Named, error) {
		sys := s.getenv.context(dir, opts.Auth)
		setInsecure(sys, opts.Insecure)
		allowed, err := newReach(sys, named.String())
		if err != nil {
			return nil, nil, fmt.Errorf("read registries.conf: %w", err)
		}
		allowed.limit(sys)
		src, err := from.NewImageSource(ctx, sys)
		return src, []reference.Named{named}, err
	}
	img, err := s.fetch(ctx, hex.EncodeToString(sum[:])+named.String(), opts, open)
	return img, classify(err, reference.Domain(named))
}

// Load converts the image in source ("oci:DIR[:TAG]", "oci-archive:FILE[:TAG]", "docker-archive:FILE[:NAME]", or the
// path of any of them), and makes name refer to it. Without a name it uses the source's own names. Errors: as for Pull.
func (s *Store) Load(ctx context.Context, source, name string, opts PullOptions) (Image, error) {
	img, err := s.loadFrom(ctx, source, name, opts)
	if err != nil {
		return Image{}, fmt.Errorf("load %s: %w", source, classify(err, ""))
	}
	return img, nil
}

func (s *Store) loadFrom(ctx context.Context, source, name string, opts PullOptions) (Image, error) {
	named, err := loadName(name)
	if err != nil {
		return Image{}, err
	}
	return s.fetch(ctx, source+"\x00"+name, opts, func(ctx context.Context, dir string) (types.ImageSource, []reference.Named, error) {
		src, err := s.openLocal(ctx, source, dir)
		if err != nil {
			return nil, nil, err
		}
		if named != nil {
			return src, named, nil
		}
		return src, src.Names(), nil
	})
}

// openLocal opens a source on this host. It copies a compressed archive into dir.
func (s *Store) openLocal(ctx context.Context, source, dir string) (src *local.Source, err error) {
	err = s.rooms.spend(ctx, copyRoom, func(limit int64) error {
		return s.converters.run(ctx, func(g *hostcgroup.Group) error {
			src, err = local.Open(ctx, g, source, dir, limit)
			return localError(err, limit)
		})
	})
	return src, err
}

// localError adds the class of a source's error.
func localError(err error, limit int64) error {
	var fault *convert.Error
	switch {
	case errors.As(err, &fault):
		return faultError(fault, limit)
	case errors.Is(err, local.ErrLarge):
		return fmt.Errorf("%w: %w (%s)", ErrNoSpace, err, makeRoom)
	case errors.Is(err, local.ErrFormat), errors.Is(err, local.ErrWhich):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

// opener opens an image's source, with dir for its temporary files. It returns the names that the image gets.
type opener func(ctx context.Context, dir string) (types.ImageSource, []reference.Named, error)

// fetch fetches an image through the flight called key, and returns it.
func (s *Store) fetch(ctx context.Context, key string, opts PullOptions, open opener) (Image, error) {
	id, err := s.flights.do(ctx, key, opts.Progress, func(ctx context.Context, report func(Progress)) (string, error) {
		return s.transfer(ctx, open, opts.Auth, report)
	})
	if err != nil {
		return Image{}, err
	}
	refs, err := s.refs(s.instance)
	if err != nil {
		return Image{}, err
	}
	return s.load(id, refs)
}

// joinLine joins errors in one line.
func joinLine(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	joined := errors.Join(errs...)
	return &classError{nil, joined, strings.Join(texts, "; ")}
}
