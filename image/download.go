package image

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// parallel is how many layers are downloaded at once.
const parallel = 4

// A disk is expected to take diskFactor bytes for each byte of its layers, and diskBase more. A larger one is made
// while no other pull runs.
const (
	diskFactor = 4
	diskBase   = 64 << 20
)

// download fetches the layers, several at once, and converts them as they arrive.
func (s *Store) download(ctx context.Context, st *stage, r *sourceImage, report func(Progress)) (size int64, err error) {
	layers, queue, err := blobs(st.dir, r)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var fetches sync.WaitGroup
	fetched := make(chan struct{})
	start := sync.OnceFunc(func() {
		fetches.Go(func() {
			defer close(fetched)
			fetch(ctx, cancel, r, queue, report)
		})
	})
	release := sync.OnceFunc(func() {
		cancel(nil)
		fetches.Wait()
		for _, b := range queue {
			_ = b.close() // an unnamed file has nothing to lose
		}
	})
	defer release()
	pending := int64(0)
	for _, b := range queue { // the registry's claims, checked before anything is fetched
		if pending += b.info.Size; pending > maxRoom {
			return 0, errLayers
		}
	}
	first := true
	err = s.rooms.spend(ctx, pending+pending*diskFactor+diskBase, func(bytes int64) (err error) {
		if bytes < pending {
			return errLayers
		}
		start()
		err = s.converters.runSoon(ctx, fetched, func(ctx context.Context, g *hostcgroup.Group) (err error) {
			size, err = makeDisk(ctx, g, st.built(), min(bytes-pending, slot.Size), layers, r.config.RootFS.DiffIDs)
			return err
		})
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		if first && errors.Is(err, ErrNoSpace) { // the second try has all layers
			fetches.Wait()
			first, pending = false, 0
			return err
		}
		release() // before its space is promised to others
		return err
	})
	return size, err
}

var errLayers = fmt.Errorf("%w: its layers need more than the free space (%s)", ErrNoSpace, makeRoom)

// blobs returns the image's layers, lowest first, and the distinct ones in the same order. The caller closes the
// latter.
func blobs(dir string, r *sourceImage) (layers, queue []*blob, err error) {
	byDigest := map[digest.Digest]*blob{}
	for _, info := range r.layers {
		b := byDigest[info.Digest]
		if b == nil {
			if b, err = newBlob(info, dir); err != nil {
				for _, b := range queue {
					err = errors.Join(err, b.close())
				}
				return nil, nil, err
			}
			byDigest[info.Digest] = b
			queue = append(queue, b)
		}
		layers = append(layers, b)
	}
	return layers, queue, nil
}

// fetch fetches blobs and starts in their order: the lowest is needed first. If one fails, the others are cancelled.
func fetch(ctx context.Context, cancel context.CancelCauseFunc, r *sourceImage, queue []*blob, report func(Progress)) {
	slots := make(chan struct{}, parallel)
	if !r.src.HasThreadSafeGetBlob() {
		slots = make(chan struct{}, 1)
	}
	var fetches sync.WaitGroup
	defer fetches.Wait()
	for _, b := range queue {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			b.fail(ctx.Err())
			continue
		}
		fetches.Go(func() {
			defer func() { <-slots }()
			if err := b.fetch(ctx, r.src, report); err != nil {
				cancel(err)
			}
		})
	}
}
