package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

// volumeLimits bound the files of one volume, which the guest holds in memory.
var volumeLimits = atomicdir.Limits{Bytes: 16 << 20, Files: 8192}

// piece is how much of a volume goes over in one call, in bytes.
const piece = 1 << 20

// replaced says of an event in a volume's directory that its files have been
// replaced, which is by their link's renaming.
func replaced(e fsnotify.Event) bool {
	return filepath.Base(e.Name) == atomicdir.Data && e.Has(fsnotify.Create)
}

// files is a volume whose files lie on the host, where a kubelet or package
// volume has written them, and are copied into the pod. When they change, so
// does the copy.
type files struct {
	pod *pod
	store.Files

	mu      sync.Mutex // held while they are sent
	watched bool
}

// sendVolumes has volumes of files copied into the pod, each once.
func (p *pod) sendVolumes(ctx context.Context, all []store.Files) error {
	for _, f := range all {
		if err := p.filesOf(f).ensure(ctx); err != nil {
			return failure.Wrap(err, "volume %s", f.Name)
		}
	}
	return nil
}

// resumeVolumes watches again what an earlier engine has watched, and sends what
// has changed since.
func (p *pod) resumeVolumes() {
	p.mu.Lock()
	var all []store.Files
	for _, ctr := range p.containers {
		all = append(all, ctr.Files...)
	}
	p.mu.Unlock()
	for _, f := range all {
		p.e.spawn(p.filesOf(f).resume)
	}
}

// filesOf is the pod's volume of those files.
func (p *pod) filesOf(f store.Files) *files {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.volumes == nil {
		p.volumes = map[string]*files{}
	}
	v := p.volumes[f.Dir]
	if v == nil {
		v = &files{pod: p, Files: f}
		p.volumes[f.Dir] = v
	}
	return v
}

// ensure returns when the files are in the pod.
func (v *files) ensure(ctx context.Context) error {
	// First, so that nothing is missed.
	if err := v.follow(false); err != nil {
		return err
	}
	return v.send(ctx)
}

// resume is follow for what an earlier engine has watched: nobody asks for it
// again, so it is tried until it succeeds.
func (v *files) resume() {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		if up, _ := v.pod.up(); !up || v.pod.e.ctx.Err() != nil {
			return
		}
		err := v.follow(true)
		if err == nil {
			return
		}
		v.pod.e.log.Warn("watch a pod's volume", "pod", v.pod.id, "volume", v.Name, "error", err)
		select {
		case <-time.After(wait):
		case <-v.pod.e.ctx.Done():
			return
		}
	}
}

// up tells whether the pod runs, and of the next change of that.
func (p *pod) up() (up bool, renewed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready() && !p.gone, p.renewed
}

// follow begins to watch the directory, once. With again, what it holds is sent
// at first: it may have changed while nobody watched.
func (v *files) follow(again bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watched {
		return nil
	}
	if err := v.pod.e.paths.Check(v.Dir); err != nil {
		return err
	}
	changed, stop, err := v.pod.e.watches.Add(v.pod.e.ctx, v.Dir)
	if err != nil {
		return fmt.Errorf("watch for changes: %w", err)
	}
	if !v.pod.e.spawn(func() { defer stop(); v.watch(changed, again) }) {
		stop()
		return errClosed
	}
	v.watched = true
	return nil
}

// watch sends the files whenever the host's have been replaced, until the pod is
// not up any more.
func (v *files) watch(replaced <-chan struct{}, changed bool) {
	ctx, wait := v.pod.e.ctx, firstRetry
	for {
		up, renewed := v.pod.up()
		if !up || ctx.Err() != nil {
			return
		}
		var retry <-chan time.Time
		if changed {
			err := v.send(ctx)
			if changed = err != nil; changed {
				v.pod.e.log.Warn("send a pod's volume", "pod", v.pod.id, "volume", v.Name, "error", err)
				retry = time.After(wait)
				wait = min(2*wait, lastRetry)
			} else {
				wait = firstRetry
			}
		}
		select {
		case <-replaced:
			changed = true
		case <-retry:
		case <-renewed:
		case <-ctx.Done():
			return
		}
	}
}

// send copies the files into the pod, unless it has the very same.
func (v *files) send(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	set, err := v.read()
	if err != nil {
		return err
	}
	c, err := v.pod.live(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	digest := digestOf(set, v.Group)
	state, err := c.Ext.Files(ctx, &shimv1.FilesRequest{Volume: v.Name})
	if err != nil || state.GetDigest() == digest {
		return err
	}
	return v.transfer(ctx, c, set, digest)
}

// read reads the host's files. Where the engine is an ordinary user's, all are
// that user's, and mean root's.
func (v *files) read() ([]atomicdir.File, error) {
	parent, name, err := v.pod.e.paths.Open(v.Dir)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	root, err := parent.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("read its files: %w", err)
	}
	defer root.Close()
	set, err := atomicdir.Read(root, volumeLimits)
	if err != nil {
		return nil, err
	}
	for i := range set {
		if os.Geteuid() != 0 {
			set[i].UID, set[i].GID = 0, 0
		}
		if v.Group != 0 {
			set[i].GID = v.Group
		}
	}
	return set, nil
}

// digestOf names a set of files.
func digestOf(set []atomicdir.File, group int) string {
	slices.SortFunc(set, func(a, b atomicdir.File) int { return strings.Compare(a.Path, b.Path) })
	h := sha256.New()
	number := func(n int) { _ = binary.Write(h, binary.LittleEndian, int64(n)) } // a hash takes all
	number(group)
	for _, f := range set {
		number(len(f.Path))
		h.Write([]byte(f.Path))
		number(int(f.Mode))
		number(f.UID)
		number(f.GID)
		number(len(f.Data))
		h.Write(f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// transfer sends a set in pieces.
func (v *files) transfer(ctx context.Context, c *link.Conn, set []atomicdir.File, digest string) error {
	req := &shimv1.FilesRequest{Begin: true}
	size := 0
	flush := func(last bool) error {
		req.Volume, req.Digest, req.Group, req.Commit = v.Name, digest, uint32(v.Group), last
		_, err := c.Ext.Files(ctx, req)
		req, size = &shimv1.FilesRequest{}, 0
		return err
	}
	for _, f := range set {
		for first := true; first || len(f.Data) > 0; first = false {
			n := min(len(f.Data), piece)
			if size > 0 && size+n > piece {
				if err := flush(false); err != nil {
					return err
				}
			}
			req.Files = append(req.Files, &shimv1.VolumeFile{
				Path: f.Path, Mode: uint32(f.Mode.Perm()), Uid: uint32(f.UID), Gid: uint32(f.GID), Data: f.Data[:n],
			})
			size += n + len(f.Path) + 64
			f.Data = f.Data[n:]
		}
	}
	return flush(true)
}
