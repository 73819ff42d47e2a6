// Package images lists a node's images and removes unused ones when the disk fills, the least recently used first.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/internal/retry"
)

const (
	// every is the interval between checks of the disk.
	every = 5 * time.Minute
	// maxImages limits the number of images in a Node's status, and maxNames the names of each.
	maxImages, maxNames = 50, 5
)

// Options configure a Collector. All but Logger are required.
type Options struct {
	Images  internalapi.ImageManagerService
	Runtime internalapi.RuntimeService
	// Disk measures the file system with the images.
	Disk func() (host.Disk, error)
	// High is the disk usage in percent at which images are removed. The removal stops at Low.
	High, Low int
	// MinAge is the minimum age of an image before it is removed.
	MinAge time.Duration
	// Warn records an event of the node.
	Warn   func(reason, message string)
	Logger *slog.Logger
}

// Collector records when images were used. It is safe for concurrent use. Its owner calls Run once.
type Collector struct {
	o Options

	mu   sync.Mutex
	seen map[string]*record // by ID
}

// record has the times of an image. An image that was never used counts as used when it was first seen.
type record struct{ first, used time.Time }

// New returns a keeper.
func New(o Options) *Collector {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Collector{o: o, seen: map[string]*record{}}
}

// Run removes images when the disk fills, until ctx ends.
func (k *Collector) Run(ctx context.Context) {
	retry.Pauses{First: every, Last: every}.Loop(ctx, every, nil, func() error { return k.Collect(ctx) }, func(err error) {
		k.o.Logger.Warn("removing unused images failed", "error", err)
	})
}

// Collect removes unused images if the disk usage is above High, until it falls to Low.
func (k *Collector) Collect(ctx context.Context) error {
	unused, err := k.unused(ctx) // also records which images are in use
	if err != nil {
		return err
	}
	disk, err := k.o.Disk()
	if err != nil || disk.Total == 0 {
		return err
	}
	free := float64(disk.Available) / float64(disk.Total) * 100
	if 100-free < float64(k.o.High) {
		return nil
	}
	want := disk.Total/100*uint64(100-k.o.Low) - disk.Available
	freed, err := k.remove(ctx, unused, want)
	if freed < want {
		message := fmt.Sprintf("Failed to garbage collect required amount of images. Attempted to free %d bytes, but only found %d bytes "+
			"eligible to free.", want, freed)
		k.o.Warn("FreeDiskSpaceFailed", message)
	}
	return err
}

// Reclaim removes all unused images.
func (k *Collector) Reclaim(ctx context.Context) error {
	unused, err := k.unused(ctx)
	if err != nil {
		return err
	}
	_, err = k.remove(ctx, unused, 1<<62)
	return err
}

// remove removes images in the order of the list, until enough bytes are free.
func (k *Collector) remove(ctx context.Context, list []*runtimeapi.Image, want uint64) (freed uint64, err error) {
	for _, image := range list {
		if freed >= want {
			break
		}
		if failed := k.o.Images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: image.GetId()}); failed != nil {
			err = errors.Join(err, fmt.Errorf("remove image %s: %w", image.GetId(), failed))
			continue
		}
		k.o.Logger.Info("removed an unused image", "image", image.GetId(), "names", image.GetRepoTags(), "bytes", image.GetSize())
		freed += image.GetSize()
	}
	return freed, err
}

// unused returns the images that may be removed, the least recently used first.
func (k *Collector) unused(ctx context.Context) (out []*runtimeapi.Image, err error) {
	list, err := k.o.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	containers, err := k.o.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	uses := map[string]bool{}
	for _, c := range containers {
		uses[c.GetImageId()], uses[c.GetImageRef()], uses[c.GetImage().GetImage()] = true, true, true
	}
	now, there := time.Now(), map[string]*record{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, image := range list {
		r := k.seen[image.GetId()]
		if r == nil {
			r = &record{first: now, used: now}
		}
		there[image.GetId()] = r
		if used(image, uses) {
			r.used = now
		} else if !image.GetPinned() && now.Sub(r.first) >= k.o.MinAge {
			out = append(out, image)
		}
	}
	k.seen = there
	slices.SortStableFunc(out, func(a, b *runtimeapi.Image) int {
		x, y := there[a.GetId()], there[b.GetId()]
		return cmp.Or(x.used.Compare(y.used), x.first.Compare(y.first))
	})
	return out, nil
}

// used reports whether one of an image's names is in uses.
func used(image *runtimeapi.Image, uses map[string]bool) bool {
	return uses[image.GetId()] || slices.ContainsFunc(names(image), func(name string) bool { return uses[name] })
}

func names(image *runtimeapi.Image) []string {
	return slices.Concat(image.GetRepoDigests(), image.GetRepoTags())
}

// Largest returns the images for a Node's status, the largest first and up to a limit.
func (k *Collector) Largest(ctx context.Context) ([]corev1.ContainerImage, error) {
	list, err := k.o.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	slices.SortStableFunc(list, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.GetSize(), a.GetSize()), cmp.Compare(a.GetId(), b.GetId()))
	})
	var out []corev1.ContainerImage
	for _, image := range list[:min(len(list), maxImages)] {
		if all := names(image); len(all) > 0 {
			out = append(out, corev1.ContainerImage{Names: all[:min(len(all), maxNames)], SizeBytes: int64(image.GetSize())})
		}
	}
	return out, nil
}
