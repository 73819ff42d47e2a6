package payload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry serves one image from memory, over plain HTTP on loopback.
type Registry struct {
	// Reference is the name of the image, with the registry's address.
	Reference string
	// Packed is the size of a pull in bytes.
	Packed int64

	server *http.Server
	wg     sync.WaitGroup
}

// Serve starts a registry with img. Close stops it.
func Serve(ctx context.Context, img v1.Image) (r *Registry, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve a registry: %w", err)
	}
	quiet := log.New(io.Discard, "", 0)
	r = &Registry{
		Reference: l.Addr().String() + "/bench/image:1",
		server:    &http.Server{Handler: registry.New(registry.Logger(quiet)), ErrorLog: quiet},
	}
	r.wg.Go(func() { _ = r.server.Serve(l) }) // it ends with Close; an earlier end makes the pull fail
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("fill the registry: %w", err), r.Close())
		}
	}()
	ref, err := name.ParseReference(r.Reference, name.Insecure)
	if err != nil {
		return nil, err
	}
	if err := remote.Write(ref, img, remote.WithContext(ctx)); err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		size, err := layer.Size()
		if err != nil {
			return nil, err
		}
		r.Packed += size
	}
	return r, nil
}

// Close stops the registry.
func (r *Registry) Close() error {
	err := r.server.Close()
	r.wg.Wait()
	return err
}
