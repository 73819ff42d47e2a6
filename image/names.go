package image

import (
	"fmt"
	"path"
	"strings"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/shortnames"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

// pullNames returns the full names that a user's name may mean, in the order of the tries. It follows podman's rules
// (aliases, unqualified-search registries), and uses docker.io if registries.conf has none, as Kubernetes expects.
func (getenv Getenv) pullNames(name string) ([]reference.Named, error) {
	sys := getenv.names()
	if !isShort(name) {
		return onlyNormalized(name)
	}
	search, err := sysregistriesv2.UnqualifiedSearchRegistries(sys)
	if err != nil {
		return nil, fmt.Errorf("read registries.conf: %w", err)
	}
	resolved, err := shortnames.Resolve(sys, name)
	if err != nil {
		if len(search) == 0 {
			return onlyNormalized(name)
		}
		return nil, fmt.Errorf("%w: name %.255q: %w", ErrInvalid, name, err)
	}
	var out []reference.Named
	for _, c := range resolved.PullCandidates {
		out = append(out, reference.TagNameOnly(c.Value))
	}
	return out, nil
}

// localNames returns the full names to look up a user's name.
func (getenv Getenv) localNames(name string) ([]string, error) {
	var out []string
	if isShort(name) {
		named, err := shortnames.ResolveLocally(getenv.names(), name)
		if err != nil {
			return nil, fmt.Errorf("%w: name %.255q: %w", ErrInvalid, name, err)
		}
		for _, n := range named {
			out = append(out, n.String())
		}
	}
	named, err := onlyNormalized(name)
	if err != nil {
		return nil, err
	}
	for _, n := range named {
		out = append(out, n.String())
	}
	return out, nil
}

// loadName returns the full name that a loaded image gets by name, none if name is empty. A name without a registry is
// a local one.
func loadName(name string) ([]reference.Named, error) {
	if name == "" {
		return nil, nil
	}
	if isShort(name) {
		name = path.Join("localhost", name)
	}
	return onlyNormalized(name)
}

// isShort reports whether a name has no registry.
func isShort(name string) bool {
	first, _, found := strings.Cut(name, "/")
	return !found || !strings.ContainsAny(first, ".:") && first != "localhost"
}

func onlyNormalized(name string) ([]reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("%w: name %.255q: %w", ErrInvalid, name, err)
	}
	if digested, ok := named.(reference.Digested); ok {
		// With both, the digest decides; the library takes only one.
		named, err = reference.WithDigest(reference.TrimNamed(named), digested.Digest())
		if err != nil {
			return nil, fmt.Errorf("%w: name %.255q: %w", ErrInvalid, name, err)
		}
	}
	return []reference.Named{reference.TagNameOnly(named)}, nil
}

// names returns a context that never asks the user: the engine has no terminal.
func (getenv Getenv) names() *types.SystemContext {
	sys := getenv.context("", nil)
	mode := types.ShortNameModeDisabled
	sys.ShortNameMode = &mode
	return sys
}
