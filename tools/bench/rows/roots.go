package rows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

// rootPatience bounds the engine's calls for one sample.
const rootPatience = 2 * time.Minute

// rooted is a running pod with containers on roots of every kind. Its engine is this process, because no command
// can request a directory of the host as a root.
type rooted struct {
	*engine.Engine
	pod string
	n   int
}

// roots measures a container on a directory of the host and one on an image, in one pod.
func roots(ctx context.Context, b *Bench) (err error) {
	e, tree, err := b.openRooted(ctx)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rootPatience)
		defer cancel()
		if e.pod != "" {
			err = errors.Join(err, e.RemovePod(end, e.pod))
		}
		err = errors.Join(err, e.Close(end))
	}()
	img, err := e.Images().Load(ctx, "oci-archive:"+b.Image, Small, image.PullOptions{})
	if err != nil {
		return err
	}
	request := engine.PodRequest{Key: "bench/roots", Identity: engine.Identity{Name: "roots", Namespace: "bench", UID: "uid-roots"}}
	if e.pod, err = e.StartPod(ctx, request); err != nil {
		return err
	}
	var all []contender
	for _, tt := range []struct {
		name, what string
		root       containerv1.Root
	}{
		{"container on an image", "an image's disk under a layer of its own", containerv1.Image{ID: img.ID}},
		{"container on a directory", "a directory of the host with the same files", containerv1.Share{Name: tree}},
	} {
		row := b.row(report.Row{
			Group: "root", Name: tt.name, Unit: "ms",
			What: "a container of true in a running pod, made, started and ended, on " + tt.what + "; the first in the pod included",
		}, nil)
		all = append(all, contender{row: row, sample: func(ctx context.Context) error { return e.run(ctx, row, tt.root) }})
	}
	if err := b.pair(ctx, b.Runs, all...); err != nil {
		return err
	}
	b.ratio(report.Row{Group: "root", Name: "directory to image", Unit: "×"}, all[1].row, all[0].row)
	return nil
}

// openRooted opens an engine with the first build's programs, and creates a directory with the files of the small
// image.
func (b *Bench) openRooted(ctx context.Context) (e *rooted, tree string, err error) {
	dir, err := b.mkdir("r") // short: sockets lie below it
	if err != nil {
		return nil, "", err
	}
	tree = filepath.Join(dir, "tree")
	busybox, err := os.ReadFile("/bin/busybox")
	if err == nil {
		err = os.MkdirAll(filepath.Join(tree, "bin"), 0o755)
	}
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(tree, "bin", "busybox"), busybox, 0o755),
			os.Symlink("busybox", filepath.Join(tree, "bin", "true")))
	}
	if err != nil {
		return nil, "", fmt.Errorf("create a root directory: %w", err)
	}
	bin := b.Builds[0].Bin
	bundle, err := guest.Load(filepath.Join(bin, "guest"))
	if err != nil {
		return nil, "", err
	}
	opened, err := engine.Open(ctx, engine.Options{
		Roots: dirs.Roots{Data: filepath.Join(dir, "d"), State: filepath.Join(dir, "s")}, Instance: "b", Guest: bundle,
		Shim: filepath.Join(bin, "bulkhead-shim"), Share: filepath.Join(bin, "bulkhead-share"), Warm: filepath.Join(bin, "bulkhead-warm.so"),
		Network:   func(network.Kind) (network.Provider, error) { return network.None{}, nil },
		HostPaths: []string{dir}, NoForks: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, "", err
	}
	return &rooted{Engine: opened}, tree, nil
}

// run runs one container and measures creating, starting and running it.
func (e *rooted) run(ctx context.Context, row *report.Row, root containerv1.Root) error {
	ctx, cancel := context.WithTimeout(ctx, rootPatience)
	defer cancel()
	spec, err := oci.New("", "true")
	if err != nil {
		return err
	}
	events, err := e.Subscribe(64)
	if err != nil {
		return err
	}
	defer events.Close()
	e.n++
	name := fmt.Sprintf("c%d", e.n)
	began := time.Now()
	id, err := e.CreateContainer(ctx, e.pod, engine.ContainerRequest{
		Key: name + "/0", Name: name, Spec: spec, Root: root, Stdio: containerv1.Discard{},
	})
	if err == nil {
		err = e.StartContainer(ctx, id)
	}
	for err == nil {
		var event engine.Event
		select {
		case event = <-events.Events():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if event.Kind == engine.Stopped && event.ID == id {
			row.Add(ms(time.Since(began)))
			return e.RemoveContainer(ctx, id)
		}
	}
	return err
}
